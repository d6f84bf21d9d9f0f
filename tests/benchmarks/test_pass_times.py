"""The benches' passes: every session in every turn, with all widths, after the same context."""

from benchmarks.pass_times import pass_times
from edgedec.testing import FakeModel


def test_every_session_has_every_turn_of_each_width() -> None:
    sessions = {name: FakeModel(seed=seed).open(16) for seed, name in enumerate("ab")}
    widths: dict[str, list[int]] = {name: [] for name in sessions}
    for name, session in sessions.items():
        forward = session.forward

        def noted(tree, *, want, name=name, forward=forward):  # type: ignore[no-untyped-def]
            widths[name].append(len(tree))
            return forward(tree, want=want)

        session.forward = noted  # type: ignore[method-assign]
    found = pass_times(sessions, range(1, 12), 4, (1, 3), turns=2)
    assert widths == {"a": [1, 3, 1, 3], "b": [1, 3, 1, 3]}
    assert {name: {width: len(times) for width, times in of.items()} for name, of in found.items()}\
        == {"a": {1: 2, 3: 2}, "b": {1: 2, 3: 2}}  # fmt: skip
    assert [session.length for session in sessions.values()] == [4, 4]
