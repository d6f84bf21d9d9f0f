"""Sessions that replay a trace: the session contract, the text's rows, and the time they take."""

import numpy as np
import pytest
from simulated import VOCAB, measured, trace

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError, Interrupted
from edgedec.records.trace import Choices, Trace
from edgedec.replay.costs import PassCost
from edgedec.replay.sessions import Surroundings, TraceModel, TraceRows
from edgedec.replay.sharing import Shared
from edgedec.replay.virtual_clock import VirtualClock
from edgedec.testing import SessionContract


def model(clock=None, role="target", text=None, factors=None, **changes) -> TraceModel:
    clock = clock or VirtualClock()
    place = measured(role, **changes)
    text = text or trace()
    around = Surroundings(clock, Shared(clock, factors))
    return TraceModel(TraceRows(text, role, VOCAB), role, PassCost(place, text.prompt), around)


class TestContract(SessionContract):
    @pytest.fixture
    def model(self) -> TraceModel:
        return model()


class TestContractOfChains(SessionContract):
    @pytest.fixture
    def model(self) -> TraceModel:
        return model(branches=1, role="draft")


def test_the_target_says_the_text_and_the_draft_what_it_was_recorded_to_say():
    text = trace()
    for role, choices in (("target", text.target), ("draft", text.draft)):
        session = model(role=role).open(128)
        session.prefill(text.tokens[: text.prompt - 1])
        for i, ids in enumerate(choices.ids):
            scored = session.forward(TokenTree(text.tokens[text.prompt - 1 + i]), want=Want.TOP)
            assert scored.top_ids[0].tolist() == list(ids)
            assert scored.logits is None
            session.commit([0])


def test_a_branch_that_leaves_the_text_never_comes_back_to_it():
    text = trace()
    session = model(text=text).open(128)
    session.prefill(text.tokens[: text.prompt - 1])
    tree = TokenTree(text.tokens[text.prompt - 1])
    right = tree.add(text.tokens[text.prompt], 0)
    wrong = tree.add((text.tokens[text.prompt] + 1) % VOCAB, 0)
    below = tree.add(text.tokens[text.prompt + 1], wrong)
    deeper = tree.add(text.tokens[text.prompt + 1], right)
    session.forward(tree)
    assert session._true == [True, True, False, False, True]
    session.commit([0, wrong, below])
    scored = session.forward(TokenTree(text.tokens[text.prompt + 2]))
    assert session._true == [False]
    session.rollback(text.prompt)
    scored = session.forward(TokenTree.chain(text.tokens[text.prompt : text.prompt + 2]))
    assert scored.first()[0] == list(text.tokens[text.prompt + 1 : text.prompt + 3])
    assert deeper == 4


def test_confidence_is_the_largest_probability_whatever_the_noise_made_of_the_order():
    ids = ((5, 6), (7, 8))
    text = Trace("t", 0.8, 2, (1, 2, 5, 7), Choices(ids, ((0.2, 0.6), (0.9, 0.1))), None)
    rows = TraceRows(text, "target", VOCAB)
    np.testing.assert_allclose(np.exp(rows.logits[:2]), [[0.6, 0.2], [0.9, 0.1]], rtol=1e-5)
    assert rows.ids[:2].tolist() == [[5, 6], [7, 8]]
    with pytest.raises(InputError, match="no draft model"):
        TraceRows(text, "draft", VOCAB)


def test_passes_take_what_was_measured():
    clock, place = VirtualClock(), measured()
    session = model(clock).open(512)
    session.prefill([0] * 150)
    assert clock.now() == pytest.approx(150 * place.prefill_s)
    for rows in (1, 3, 8, 20):
        before = clock.now()
        session.forward(TokenTree.chain([0] * rows))
        assert clock.now() - before == pytest.approx(place.seconds(rows, 150))
        session.rollback(150)


def test_a_curve_of_doubled_costs_doubles_the_time():
    seconds = []
    for factor in (1, 2):
        clock = VirtualClock()
        session = model(clock, one_row_s=8e-3 * factor, row_s=1e-3 * factor).open(64)
        session.prefill([0] * 9)
        session.forward(TokenTree.chain([1, 2, 3]))
        seconds.append(clock.now())
    assert seconds[1] == pytest.approx(2 * seconds[0])


@pytest.mark.parametrize("context", [0, 50, 100, 101, 150, 199, 200, 400])
def test_pass_costs_are_the_profiles(context):
    place = measured()
    cost = PassCost(place)
    for rows in range(1, 24):
        assert cost.seconds(rows, context) == pytest.approx(place.seconds(rows, context))


def test_a_longer_prompt_costs_what_it_would_cost():
    place = measured()
    cost = PassCost(place, prompt=20, stands_for=120)
    assert cost.seconds(2, 30) == pytest.approx(place.seconds(2, 130))
    assert cost.reading(20, of_prompt=True) == pytest.approx(120 * place.prefill_s)
    assert cost.reading(20, of_prompt=False) == pytest.approx(20 * place.prefill_s)


def test_compiled_graphs_compute_their_own_widths():
    place = measured(row_widths=(1, 8))
    cost = PassCost(place)
    assert cost.seconds(1, 100) == place.seconds(1, 100)
    assert cost.seconds(2, 100) == cost.seconds(8, 100) == place.seconds(8, 100)
    assert cost.seconds(9, 100) == pytest.approx(place.seconds(8, 100) + place.seconds(1, 100))


def test_a_running_pass_is_interrupted_from_another_task():
    with VirtualClock() as clock:
        session = model(clock).open(64)
        session.prefill([0] * 3)
        begin = clock.now()

        def interrupt() -> None:
            clock.sleep(0.002)
            session.interrupt()

        clock.start(interrupt, name="interrupt")
        with pytest.raises(Interrupted):
            session.forward(TokenTree(1))
        assert clock.now() - begin == pytest.approx(0.002)
        session.forward(TokenTree(1))
        assert session.length == 3


def both(factors, draft_after: float) -> tuple[float, float]:
    """A target pass of 10 s, and a draft's of 4 s that begins after so many: when they end."""
    with VirtualClock() as clock:
        shared = Shared(clock, factors)
        ends = {}

        def compute(role: str, after: float, seconds: float) -> None:
            clock.sleep(after)
            shared.compute(role, clock.signal(), seconds, lambda: False)
            ends[role] = clock.now()

        task = clock.start(lambda: compute("draft", draft_after, 4.0), name="draft")
        compute("target", 0.0, 10.0)
        task.join()
        return ends["target"], ends["draft"]


def test_passes_slow_each_other_while_they_overlap():
    assert both({}, 1.0) == (10, 5)
    assert both({"target": 1.0, "draft": 1.0}, 1.0) == (10, 5)
    # The draft's 4 s take 8 beside the target; in those the target does 4 s of its work.
    assert both({"target": 2.0, "draft": 2.0}, 1.0) == (pytest.approx(14), pytest.approx(9))
    # It runs alone from 12 on: 2 s of its work were done from 8 to 12.
    target, draft = both({"target": 2.0, "draft": 2.0}, 8.0)
    assert (target, draft) == (pytest.approx(12), pytest.approx(14))
    assert both({"target": 1.5, "draft": 1.0}, 0.0) == (pytest.approx(10 + 4 / 3), 4)


def test_off_the_text_a_row_never_says_what_comes_later():
    text = trace(prompt=4, count=40, seed=5)
    rows = TraceRows(text, "target", VOCAB)
    for place in range(text.prompt, len(text.tokens) - 1):
        for token in range(VOCAB):
            found = rows.row(place, token, right=False)
            if found < rows.count:
                # What the text said before, after the same token.
                assert found < place + 1 - text.prompt
                assert text.tokens[text.prompt + found - 1] == token
            else:
                assert rows.ids[found, 0] != rows.ids[found - rows.count, 0]
    seen = text.tokens[text.prompt]
    assert rows.row(text.prompt + 5, seen, right=False) < rows.count, "nothing is ever recalled"


def test_python_runs_one_thread_at_a_time():
    with VirtualClock() as clock:
        shared = Shared(clock)
        task = clock.start(lambda: shared.interpret(0.3), name="draft")
        clock.sleep(0.1)
        shared.interpret(0.5)
        assert clock.now() == pytest.approx(0.8)
        task.join()
