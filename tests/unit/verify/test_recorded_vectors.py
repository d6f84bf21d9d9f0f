"""A model is held to recorded logits: its own pass, altered ones do not, files are untrusted."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edgedec import Pipeline
from edgedec.cli import main
from edgedec.errors import InputError
from edgedec.verify.near_ties import rescore
from edgedec.verify.vectors import VectorsResult, hold_to_vectors, read_vectors

PROMPT, LENGTH = "def read_lines(path):", 6


@pytest.fixture(scope="module")
def recorded() -> tuple[list[int], int, Any]:
    """The demo target's own logits along a text: tokens, the first that is predicted, rows."""
    with Pipeline.open("demo", drafter="none", plan="none", threads=1) as pipeline:
        tokens = pipeline.generate(PROMPT, max_new_tokens=LENGTH, temperature=0).token_ids
        prompt = list(pipeline.tokenizer.encode(PROMPT))
        return [*prompt, *tokens], len(prompt), rescore(pipeline.target, prompt, tokens, 1)


def as_json(tokens: list[int], first: int, logits: Any, *, top: int) -> dict[str, Any]:
    rows = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    best = np.argsort(-rows, axis=1, kind="stable")[:, :top]
    pairs = [[[int(one), float(row[one])] for one in ids] for row, ids in zip(rows, best)]  # noqa: B905
    return {"vectors": 1, "texts": [{"tokens": tokens, "first": first, "top": pairs}]}


def held(folder: Path, raw: Any) -> VectorsResult:
    file = folder / "vectors.json"
    file.write_text(json.dumps(raw), "utf-8")
    return hold_to_vectors("demo", read_vectors(file))


def test_a_model_holds_to_its_own_logits_alone(recorded: Any, tmp_path: Path) -> None:
    tokens, first, logits = recorded
    own = held(tmp_path, as_json(tokens, first, logits, top=20))
    assert own.holds
    assert (own.texts, own.places, own.same_best) == (1, LENGTH, 1.0)
    assert own.kl_nats < 1e-6
    assert own.largest_logprob_error < 1e-4

    # The control: another model's logits.
    other = np.random.default_rng(0).permuted(logits, axis=1)
    strange = held(tmp_path, as_json(tokens, first, other, top=20))
    assert not strange.holds
    assert strange.same_best < 1
    assert strange.largest_logprob_error > 1


def test_whole_rows_say_the_same(recorded: Any, tmp_path: Path) -> None:
    tokens, first, logits = recorded
    noisy = logits + np.random.default_rng(1).normal(0, 0.5, logits.shape)
    file = tmp_path / "vectors.npz"
    np.savez(file, tokens=np.asarray(tokens), first=first, logits=noisy.astype(np.float32))
    whole = hold_to_vectors("demo", read_vectors(file))
    part = held(tmp_path, as_json(tokens, first, noisy, top=20))
    # What is recorded in part is a lower bound.
    assert 0 < part.kl_nats <= whole.kl_nats
    assert not hold_to_vectors("demo", read_vectors(file), max_kl=whole.kl_nats / 2).holds


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"vectors": 2}, "vectors is 2, expected 1"),
        ({"texts": []}, "a list of 1 to 1000"),
        ({"texts": [3]}, "a list of objects"),
        ({"first": 0}, "an index"),
        ({"first": 99}, "an index"),
        ({"tokens": [1, -2]}, "a list of sizes"),
        ({"top": [[[1, -0.5]]] * 7}, "6 places"),
        ({"top": [[[1, -0.5], [1, -2.0]]] * 6}, "pairs of a token"),
        ({"top": [[[1, 0.5]]] * 6}, "pairs of a token"),
        ({"top": [[[1, "0"]]] * 6}, "pairs of a token"),
        ({"top": [[]] * 6}, "pairs of a token"),
        ({"more": 1}, "unknown field more"),
    ],
)
def test_what_is_no_file_of_vectors_is_one_line(
    change: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    good = {"tokens": [1, 2, 3, 4, 5, 6, 7], "first": 1, "top": [[[1, -0.5], [2, -3]]] * 6}
    whole = {"vectors": 1, "texts": [good]}
    file = tmp_path / "v.json"
    file.write_text(json.dumps(whole), "utf-8")
    assert len(read_vectors(file)) == 1
    if set(change) & {"vectors", "texts"}:
        whole |= change
    else:
        good |= change
    file.write_text(json.dumps(whole), "utf-8")
    with pytest.raises(InputError, match=expected) as caught:
        read_vectors(file)
    assert "\n" not in str(caught.value)


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "v.npz"
    np.savez(file, tokens=np.array([{}], dtype=object), first=1, logits=np.zeros((1, 2)))
    with pytest.raises(InputError, match="numpy's arrays"):
        read_vectors(file)
    file.write_bytes(b"PK nothing")
    with pytest.raises(InputError, match="numpy's arrays"):
        read_vectors(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("tokens.npy", b"x")
    with pytest.raises(InputError, match="numpy's arrays"):
        read_vectors(file)


def test_a_token_outside_the_vocabulary_is_one_line(tmp_path: Path) -> None:
    raw = {"vectors": 1, "texts": [{"tokens": [1, 2], "first": 1, "top": [[[999999, -0.5]]]}]}
    with pytest.raises(InputError, match="the token 999999, and the model 4096"):
        held(tmp_path, raw)


def test_the_command_says_whether_it_holds(recorded: Any, tmp_path: Path) -> None:
    tokens, first, logits = recorded
    file = tmp_path / "vectors.json"
    file.write_text(json.dumps(as_json(tokens, first, logits, top=5)), "utf-8")
    done = CliRunner().invoke(main, ["verify", "demo", "--vectors", str(file)])
    assert done.exit_code == 0, done.output
    assert "same best token    100.0%" in done.output
    file.write_text(json.dumps(as_json(tokens, first, -logits, top=5)), "utf-8")
    done = CliRunner().invoke(main, ["verify", "demo", "--vectors", str(file), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["holds"] is False
