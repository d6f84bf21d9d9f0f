"""Two models at once: what was measured, the worst for other pairs, or no overlap at all."""

import pytest

from edgedec.errors import ProfileError
from edgedec.planning.choose import decide
from edgedec.planning.predict import predict
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, Plan
from edgedec.records.profile import NOT_AT_ONCE, Contention
from tests.profiles import FIRST, GPU, SECOND, WORK, draft, fastest, of, profile, target

THIRD = Place("onnx", threads=1, cores=(2,))


def met(target_at: Place, draft_at: Place, one: float, other: float) -> Contention:
    return Contention(target_at.label, draft_at.label, one, other)


def known(*contention: Contention):
    models = (target(FIRST), draft(SECOND), draft(THIRD), draft(GPU))
    return profile(*models, contention=contention, right=0.9)


MEASURED = met(FIRST, SECOND, 1.6, 3.0)
OF_GPU = met(FIRST, GPU, 9.0, 9.0)
PLAN = Plan(FIRST, THIRD, "model", 3, schedule=OVERLAPPED)


def test_a_pair_that_was_not_measured_is_no_better_than_the_worst_on_the_processor() -> None:
    found = known(MEASURED, met(SECOND, FIRST, 9.0, 9.0), OF_GPU)  # no target is at SECOND
    assert found.at_once(FIRST, SECOND) == MEASURED
    assert found.at_once(FIRST, GPU) == OF_GPU
    worst = known(MEASURED, OF_GPU).at_once(FIRST, THIRD)
    assert worst == met(FIRST, THIRD, 1.6, 3.0)
    assert known(met(FIRST, SECOND, 0.9, 0.9)).at_once(FIRST, THIRD) == met(FIRST, THIRD, 1.0, 1.0)
    assert known().at_once(FIRST, THIRD) is known(OF_GPU).at_once(FIRST, THIRD) is None


@pytest.mark.parametrize("closer", [None, predict])
def test_plans_of_an_unmeasured_pair_take_it_so(closer) -> None:
    assumed = decide(known(MEASURED), WORK, predict=closer)
    said = known(MEASURED, met(FIRST, THIRD, 1.6, 3.0))
    free = known(MEASURED, met(FIRST, THIRD, 1.0, 1.0))
    wanted = {"schedule": OVERLAPPED, "draft": THIRD}
    told = fastest(decide(said, WORK, predict=closer), **wanted)
    assert fastest(assumed, **wanted) == pytest.approx(told)
    assert fastest(decide(free, WORK, predict=closer), **wanted) > 1.02 * told


def test_where_nothing_was_measured_nothing_overlaps() -> None:
    decision = decide(known(), WORK, predict=predict)
    options = of(decision, schedule=OVERLAPPED)
    assert options
    assert {one.refused for one in options} == {NOT_AT_ONCE}
    with pytest.raises(ProfileError, match=NOT_AT_ONCE):
        predict(known(), PLAN, WORK)
    assert predict(known(), Plan(FIRST, THIRD, "model", 3), WORK).tokens_per_second > 0
    assert predict(known(MEASURED), PLAN, WORK).tokens_per_second > 0
