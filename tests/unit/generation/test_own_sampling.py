"""The sampling that a model's files ask for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from edgedec import SamplingParams
from edgedec.generation.own_sampling import USUAL, described, of_answers, sampling_of
from edgedec.gguf.sampling import stated_sampling

QWEN = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (QWEN, SamplingParams(temperature=0.6, top_k=20, top_p=0.95)),
        ({"temperature": 0.7}, SamplingParams(temperature=0.7)),
        ({"do_sample": True}, SamplingParams(temperature=1.0)),
        ({"top_p": 0.9, "min_p": 0.1}, SamplingParams(temperature=1.0, top_p=0.9, min_p=0.1)),
        ({"temperature": 0.7, "top_k": -1}, SamplingParams(temperature=0.7)),
        ({**QWEN, "do_sample": False}, SamplingParams()),
        (
            {**QWEN, "do_sample": False, "repetition_penalty": 1.1},
            SamplingParams(repetition_penalty=1.1),
        ),
        ({"repetition_penalty": 1.1}, SamplingParams(repetition_penalty=1.1)),
        ({"temperature": 0.0, "top_p": 0.9}, SamplingParams(top_p=0.9)),
        ({"temperature": 1}, SamplingParams(temperature=1)),
    ],
)
def test_what_is_asked_for(stated: dict[str, Any], expected: SamplingParams) -> None:
    assert sampling_of(stated) == expected


@pytest.mark.parametrize("stated", [{}, {"temperature": "0.6"}, {"top_k": None}, {"eos": 3}])
def test_nothing_is_asked_for(stated: dict[str, Any]) -> None:
    assert sampling_of(stated) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"top_p": 0},
        {"top_p": float("nan")},
        {"temperature": 1e9},
        {"top_k": 1.5e300},
        {"top_k": float("nan")},
        {"min_p": -1},
        {"temperature": 10**400},
    ],
)
def test_a_value_out_of_range_is_left_out(
    wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "edgedec"):
        found = sampling_of({"temperature": 0.6, **wrong})
    assert found is not None
    (name,) = wrong
    assert getattr(found, name) == getattr(SamplingParams(temperature=1.0), name)
    (line,) = caplog.messages
    assert line.startswith(f"the model's own sampling: {name} ")
    assert line.endswith(": it is left out")


def test_in_words() -> None:
    assert described(SamplingParams(temperature=0.6, top_p=0.95, top_k=20)) == (
        "temperature 0.6, top-p 0.95, top-k 20"
    )
    assert described(SamplingParams(repetition_penalty=1.05)) == "greedy, repetition-penalty 1.05"


def test_a_gguf_file_states_it_in_keys_of_its_own() -> None:
    metadata = {
        "general.sampling.temp": 0.6000000238418579,  # what 32 bits hold of 0.6
        "general.sampling.top_k": 20,
        "general.sampling.top_p": 0.949999988079071,
        "general.sampling.min_p": "0.1",
        "general.sampling.penalty_repeat": True,
    }
    assert stated_sampling(metadata) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert stated_sampling({}) == {}


def test_answers_without_a_wish_are_drawn_as_usual() -> None:
    assert of_answers({}) == USUAL
    assert not USUAL.greedy
    assert of_answers({"do_sample": False}) == SamplingParams()  # the control: a wish wins
