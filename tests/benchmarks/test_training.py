"""The recipe that trains drafters for a published target: what it asks, keeps and learns."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import random_tensors, save_checkpoint, tiny_config

from benchmarks.training import answers, questions
from edgedec.models.registry import spec_for

PROSE = (
    "The committee met on Tuesday and agreed that the old bridge is to be kept as it is, since the"
    " people of the village walk over it every day and like the view of the river from there."
)


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A little text in place of the library and the packages of the machine."""
    functions = [f"def f{n}(x):\n    return x + {n}\n" * 4 for n in range(40)]
    documented = [
        (f"f{n}", f"Return the sum of {n} and what is given, as a number.") for n in range(40)
    ]
    monkeypatch.setattr(questions, "library", lambda: (list(documented), list(functions)))
    texts = [PROSE.replace("Tuesday", f"day {n}") for n in range(40)]
    monkeypatch.setattr(questions, "package_texts", lambda: iter(texts))


def test_questions_are_of_many_kinds_and_equal_for_equal_arguments(at_hand: None) -> None:
    made = questions.questions(200)
    assert {"general", "summary", "json", "list", "edit", "code", "explain", "maths"} <= {
        kind for kind, _ in made
    }
    assert made == questions.questions(200)
    assert made != questions.questions(200, seed=8)
    assert not any("{" in text for kind, text in made if kind in ("general", "maths"))


def test_texts_are_a_third_each_of_what_is_at_hand(at_hand: None) -> None:
    found = questions.texts(30)
    assert [len([t for t in found if t.startswith(kind)]) for kind in ("def", "Return", "The")] == [
        10, 10, 10
    ]  # fmt: skip
    assert found == questions.texts(30)


def test_what_a_benchmark_asks_is_left_out(at_hand: None) -> None:
    made = questions.questions(200)
    asked = made[3][1]
    left = questions.questions(200, held_out=f"another prompt\n{asked}\n")
    assert asked in [text for _, text in made]
    assert asked not in [text for _, text in left]
    assert len(left) < len(made)
    assert len(left) > len(made) - 20


def test_paragraphs_are_prose() -> None:
    table = "| 12 | 13 | 14 | 15 |" * 20
    link = PROSE + " See https://example.com for more."
    texts = [f"Title\n\n{PROSE}\n\n{table}\n\n{link}\n"]
    assert list(questions.paragraphs(texts)) == [PROSE]


def test_the_library_at_hand_has_docstrings_and_functions() -> None:
    documented, functions = questions.library()
    assert len(documented) > 1000
    assert len(functions) > 1000
    assert all(text.lstrip().startswith(("def ", "@")) for text in functions)


def test_a_token_is_drawn_as_often_as_its_probability_says() -> None:
    rng = np.random.default_rng(0)
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    counts = np.bincount([answers.draw(logits, 1.0, rng) for _ in range(4000)], minlength=3)
    np.testing.assert_allclose(counts / 4000, [0.5, 0.3, 0.2], atol=0.04)
    assert answers.draw(logits, 0.0, rng) == 0
    cold = np.bincount([answers.draw(logits, 0.2, rng) for _ in range(4000)], minlength=3)
    assert cold[0] > counts[0] + 400


def test_no_unlikely_token_is_drawn() -> None:
    logits = np.zeros(4 * answers.TOP_K, np.float32)
    logits[: answers.TOP_K] = 1
    rng = np.random.default_rng(0)
    assert max(answers.draw(logits, 5.0, rng) for _ in range(500)) < answers.TOP_K


def test_half_an_answer_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    assert answers.answered(file) == set()
    whole = answers.Answer(3, "maths", 2, [1, 2, 3]).line()
    file.write_text(f"{whole}\n{answers.Answer(4, 'maths', 2, [1, 2, 3]).line()[:20]}")
    assert answers.answered(file) == {3}


@pytest.fixture(autouse=True)
def one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Matrices are small here: threads of torch would only wait for each other."""
    if request.node.get_closest_marker("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# A slower kernel where float32 norms meet bfloat16 states.
slower_kernel = pytest.mark.filterwarnings("ignore:Mismatch dtype:UserWarning")


def tiny_target(folder: Path, *, written: float = 1.0) -> Path:
    """A random target; with less ``written`` by its layers, what it says is easier to learn."""
    config = tiny_config(tie_word_embeddings=True, num_hidden_layers=6)
    tensors = random_tensors(spec_for(config))
    for name in tensors:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = tensors[name] * np.float32(written)
    save_checkpoint(folder, config, tensors)
    return folder


def written_chats(count: int = 64) -> list[Any]:
    from benchmarks.training.states import Chat

    rng = np.random.default_rng(1)
    # A text that a head can learn: each token is followed by the next one.
    starts = rng.integers(0, 90, count)
    sizes = rng.integers(12, 40, count)
    return [
        Chat([int((start + n) % 96) for n in range(size)], 4, "maths")
        for start, size in zip(starts, sizes, strict=True)
    ]


@pytest.mark.torch
@slower_kernel
def test_states_are_those_of_each_chat_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.training import head, states

    monkeypatch.setattr(states, "autocast", lambda device: contextlib.nullcontext())

    target = states.load_target(tiny_target(tmp_path / "target"))
    chats = written_chats()
    assert states.keep_states(target, chats, (2, 3), tmp_path / "states") == 2
    # What is kept is not computed again; other chats are noticed.
    before = [file.stat().st_mtime_ns for file in sorted((tmp_path / "states").iterdir())]
    states.keep_states(target, chats, (2, 3), tmp_path / "states")
    assert before == [file.stat().st_mtime_ns for file in sorted((tmp_path / "states").iterdir())]
    longer = [dataclasses.replace(chat, tokens=[*chat.tokens, 1]) for chat in chats]
    with pytest.raises(SystemExit, match="of other chats"):
        head.Chats((longer, tmp_path / "states"))

    import torch

    kept = head.Chats((chats, tmp_path / "states"))
    for number in (0, 31, 32, 63):
        tokens, found, weights = kept.windows(torch.tensor([[number, 0]]))
        assert tokens[0].tolist() == chats[number].tokens
        assert weights[0].tolist() == [head.PROMPT_WEIGHT] * 4 + [1.0] * (tokens.shape[1] - 4)
        _, streams = target.with_states(tokens, (2, 3))
        tolerance = {"atol": 0.01, "rtol": 0.002}
        torch.testing.assert_close(found[:, :, 0], streams[0], **tolerance)
        torch.testing.assert_close(found[:, :, 1], streams[1], **tolerance)
        assert (found[:, :, 0] - streams[1]).abs().max() > tolerance["atol"]  # a tap too high


@pytest.mark.torch
@slower_kernel
def test_texts_are_trained_on_and_not_measured_with(tmp_path: Path) -> None:
    from benchmarks.training import head, states

    target = states.load_target(tiny_target(tmp_path / "target"))
    chats = written_chats(32)
    texts = [dataclasses.replace(chat, prompt=len(chat.tokens)) for chat in chats]
    parts = [(chats, tmp_path / "states"), (texts, tmp_path / "texts")]
    for part, folder in parts:
        states.keep_states(target, part, (2, 3), folder)
    both = head.Chats(*parts)
    assert both.held_out.tolist() == [15, 31]
    assert len(both.trained) == 60
    assert set(both.trained) & {15, 31, 47, 63} == set()
    drawn = both.draw(np.random.default_rng(0), 2000, 0)[:, 0]
    assert set(drawn) == set(both.trained)
    assert 700 < (drawn >= 32).sum() < 1300
    with pytest.raises(SystemExit, match="16 answers"):
        head.Chats(parts[1])


@pytest.mark.torch
@slower_kernel
def test_a_head_learns_and_is_written_as_published_ones_are(tmp_path: Path) -> None:
    import torch

    from benchmarks.training import head, states
    from edgedec.models.heads import head_for

    folder = tiny_target(tmp_path / "target", written=0.1)
    target = states.load_target(folder)
    chats = written_chats()
    states.keep_states(target, chats, (2, 3, 4), tmp_path / "states")
    kept = head.Chats((chats, tmp_path / "states"))
    drafted = torch.arange(0, 96, 2)
    torch.manual_seed(0)
    trained = head.train_head(target, kept, drafted, (2, 3, 4), tmp_path, 120 * 2048)
    again = head.Head(
        dataclasses.replace(target.dims, layers=1), drafted, target, taps=(2, 3, 4), depth=3
    )
    untrained = head.agreement(target, again, kept)
    assert min(trained) > max(untrained) + 0.4

    config = json.loads((tmp_path / "head" / "config.json").read_text())
    spec = head_for(config, spec_for(json.loads((folder / "config.json").read_text())))
    assert tuple(spec.taps) == (2, 3, 4)
    from safetensors.numpy import load_file

    tensors = load_file(tmp_path / "head" / "model.safetensors")
    assert (tensors["d2t"] + np.arange(48) == np.arange(0, 96, 2)).all()
    assert tensors["t2d"].nonzero()[0].tolist() == drafted.tolist()
    rows = target.model.embed_tokens.weight[drafted].half().numpy()
    assert (tensors["lm_head.weight"] == rows).all()
    # What is written reads the states as they are, and drafts what the trained one does.
    written = {name: torch.from_numpy(tensors[name]).float() for name in again.state_dict()}
    again.load_state_dict(written)
    assert min(head.agreement(target, again, kept)) > min(trained) - 0.1
    written["fc.weight"] = written["fc.weight"] * kept.spread().flatten()
    again.load_state_dict(written)
    assert min(head.agreement(target, again, kept)) < min(trained) - 0.2


@pytest.mark.torch
@slower_kernel
def test_a_cut_draft_has_the_layers_of_its_target(tmp_path: Path) -> None:
    import torch

    from benchmarks.training import draft, states

    assert draft.layers_to_keep(30, 6) == [0, 6, 12, 17, 23, 29]
    target = states.load_target(tiny_target(tmp_path / "target"))
    whole = draft.cut(target, 6)
    ids = torch.arange(20)[None]
    torch.testing.assert_close(whole(ids), target(ids))
    less = draft.cut(target, 3)
    assert (less(ids) - target(ids)).abs().max() > 1
    draft.export_draft(less, tmp_path / "target", tmp_path / "draft")
    again = states.load_target(tmp_path / "draft")
    assert again.dims.layers == 3
    torch.testing.assert_close(again(ids), less(ids), atol=0.1, rtol=0)


@pytest.mark.torch
@slower_kernel
def test_a_cut_draft_learns_its_target(tmp_path: Path) -> None:
    import torch

    from benchmarks.training import draft, head, states

    folder = tiny_target(tmp_path / "target")
    target = states.load_target(folder)
    chats = written_chats()
    states.keep_states(target, chats, (2, 3, 4), tmp_path / "states")
    kept, drafted = head.Chats((chats, tmp_path / "states")), torch.arange(96)
    before = draft.agreement(target, draft.cut(target, 2), kept, drafted)
    after = draft.train_draft(target, kept, drafted, folder, tmp_path, layers=2, tokens=20 * 2048)
    assert after > before + 0.1
