"""Single options of a text by their names."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgedec import GenerateOptions, OpenOptions, Pipeline, SamplingParams
from edgedec._support.option_names import ELSEWHERE, check_names
from edgedec.errors import InputError
from edgedec.generation.keywords import with_changes
from edgedec.records.load import LoadOptions

PROMPT = "def read_lines(path):"


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    with Pipeline.open("demo", threads=1) as opened:
        yield opened


def test_load_options_are_named_among_the_others() -> None:
    options = OpenOptions(threads=2, kv="q8_0", drafter="model", draft="demo", draft_threads=1)
    assert options.load == LoadOptions(threads=2, kv="q8_0")
    assert options.draft_load == LoadOptions(threads=1, kv="q8_0")
    assert (options.drafter, options.draft) == ("model", Path("demo"))
    changed = options.changed(threads=3, kv=None)
    assert (changed.load, changed.draft_load) == (LoadOptions(threads=3), options.draft_load)
    assert dataclasses.replace(options, threads=3, kv=None) == changed
    with pytest.raises(InputError, match="kv 'q9': expected one of f32"):
        OpenOptions(kv="q9")
    with pytest.raises(TypeError, match=r"unknown option 'thread': did you mean threads"):
        OpenOptions(thread=2)


def test_a_drafter_given_as_draft_is_taken_as_before() -> None:
    assert OpenOptions(draft="lookup") == OpenOptions(drafter="lookup")
    assert OpenOptions(draft="./lookup").draft == Path("lookup")
    kept = OpenOptions(draft="small.gguf").changed(draft="lookup")
    assert kept == OpenOptions(draft="small.gguf", drafter="lookup")


def test_former_names_of_options_for_opening_are_accepted() -> None:
    assert OpenOptions(row_invariant=True) == OpenOptions(batch_invariant=True)
    assert OpenOptions(draft_model="lookup") == OpenOptions(draft=Path("lookup"))
    both = OpenOptions(draft="lookup", draft_model="small.gguf")
    assert both == OpenOptions(drafter="lookup", draft="small.gguf")
    opened = OpenOptions(batch_invariant=True, draft="small.gguf")
    now = opened.changed(row_invariant=False, draft_model="demo")
    assert now == OpenOptions(batch_invariant=False, draft="demo")
    with pytest.raises(InputError, match="row_invariant is True and batch_invariant is False"):
        OpenOptions(row_invariant=True, batch_invariant=False)
    with Pipeline.open("demo", plan="none", row_invariant=True) as pipeline:
        assert pipeline.plan["batch_invariant"] is True


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"draft": "lookup", "drafter": "hybrid"},
            "draft is 'lookup', which names a drafter, and ",
        ),
        ({"load": None}, "load is None: expected LoadOptions"),
        ({"load": 5}, "load is 5: expected LoadOptions"),
        ({"draft_load": 5, "draft_device": "cpu"}, "draft_load is 5: expected LoadOptions"),
        ({"runtime_options": None}, "runtime_options is None: expected options by name"),
        ({"draft_threads": 0}, "draft_threads is 0: expected 1 or more"),
        ({"draft_gpu_layers": -2}, "draft_gpu_layers is -2: expected -1 or more"),
        ({"draft_kv": "q9"}, "draft_kv 'q9': expected one of f32"),
    ],
)
def test_wrong_options_for_opening_say_which(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(expected)}"):
        OpenOptions(**options)


def test_a_drafter_given_as_draft_goes_before_the_automatic_one() -> None:
    assert OpenOptions(draft="lookup", drafter="auto") == OpenOptions(drafter="lookup")
    assert OpenOptions(draft="auto", drafter="lookup") == OpenOptions(drafter="lookup")
    assert OpenOptions(drafter="lookup").changed(draft="auto") == OpenOptions()


def test_a_draft_model_may_be_named_by_text() -> None:
    with Pipeline.open("demo", draft="demo", drafter="model", threads=1) as pipeline:
        assert pipeline.generate(PROMPT, max_new_tokens=4).token_ids


def test_options_by_name_are_those_of_the_objects(pipeline: Pipeline) -> None:
    sampling = SamplingParams(temperature=0.8, seed=4, top_k=50)
    # Plainly: a near-tie must not part texts that only their options could.
    plain = GenerateOptions(max_new_tokens=12, sampling=sampling, drafter="none")
    told = pipeline.generate(PROMPT, plain)
    named: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.8, "seed": 4, "top_k": 50}
    found = pipeline.generate(PROMPT, drafter="none", **named)
    assert found.token_ids == told.token_ids
    assert len(found.token_ids) == 12
    streamed = list(pipeline.stream(PROMPT, drafter="none", **named))
    assert [event.token for event in streamed] == told.token_ids
    greedy = pipeline.generate(PROMPT, max_new_tokens=12, drafter="none")
    assert greedy.token_ids != told.token_ids


def test_names_override_what_the_object_says() -> None:
    base = GenerateOptions(max_new_tokens=9, sampling=SamplingParams(top_k=5, seed=1))
    changed = with_changes(base, {"seed": 2, "stop": "end", "logit_bias": {3: 1.0}})
    assert changed == GenerateOptions(
        max_new_tokens=9,
        sampling=SamplingParams(top_k=5, seed=2, logit_bias={3: 1.0}),
        stop=("end",),
    )
    both = with_changes(base, {"sampling": SamplingParams(top_p=0.5), "seed": 7})
    assert both.sampling == SamplingParams(top_p=0.5, seed=7)
    assert with_changes(base, {"stop": ["a", "b"]}).stop == ("a", "b")
    assert with_changes(base, {}) is base
    assert base.sampling.seed == 1


def test_the_former_name_of_a_drafter_is_accepted(pipeline: Pipeline) -> None:
    options = GenerateOptions(draft="lookup")
    assert options == GenerateOptions(drafter="lookup")
    assert dataclasses.replace(options, drafter="none") == GenerateOptions(drafter="none")
    assert with_changes(options, {"draft": "none"}).drafter == "none"
    assert with_changes(options, {"draft": None}).drafter is None
    assert pipeline.generate(PROMPT, max_new_tokens=2, draft="none").plan["drafter"] == "none"
    with pytest.raises(InputError, match="draft is 'text' and drafter is 'none': give one, draft"):
        GenerateOptions(draft="text", drafter="none")
    with pytest.raises(InputError, match="draft is 'text' and drafter is 'none': give one, draft"):
        with_changes(options, {"draft": "text", "drafter": "none"})


@pytest.mark.parametrize("name", ["generate", "stream", "chat"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("max_tokens", "did you mean max_new_tokens?"),
        ("temprature", "did you mean temperature"),
        ("max_time", "did you mean timeout?"),
        ("stop_strings", "did you mean stop?"),
        ("zzz", "expected one of max_new_tokens, temperature, top_k"),
        ("memory", "give it to Pipeline.open"),
        ("timout", "did you mean timeout"),
    ],
)
def test_a_wrong_name_says_the_right_one(pipeline: Pipeline, name, given, meant) -> None:
    ask: Callable[..., Any] = getattr(pipeline, name)
    prompt: Any = [{"role": "user", "content": "x"}] if name == "chat" else PROMPT
    if name == "chat" and pipeline.tokenizer.chat_template is None:
        pytest.skip("the demo has no chat template")
    with pytest.raises(TypeError) as caught:
        ask(prompt, **{given: 1})
    assert f"unknown option {given!r}: {meant}" in str(caught.value)


def test_opening_says_the_right_name_as_well() -> None:
    with pytest.raises(TypeError, match=r"unknown option 'n_threads': did you mean threads\?"):
        Pipeline.open("demo", n_threads=2)
    assert OpenOptions().changed(threads=2).load.threads == 2
    with pytest.raises(TypeError, match="unknown option 'temperature': give it to generate or"):
        Pipeline.open("demo", temperature=0.8)


@pytest.mark.parametrize("wrong", [10, {"temperature": 1}, GenerateOptions, SamplingParams()])
def test_something_else_in_the_place_of_options(pipeline: Pipeline, wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected GenerateOptions, or single options by name"):
        pipeline.generate(PROMPT, wrong)


@pytest.mark.parametrize("wrong", [GenerateOptions(), {"threads": 1}, {}, 7])
def test_something_else_in_the_place_of_what_opens(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected OpenOptions, or single options by name"):
        Pipeline.open("demo", wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature -1: expected"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        *(({"logit_bias": wrong}, r"logit_bias .*: expected token ids with numbers")
          for wrong in (None, [1, 2], 3)),
        ({"sampling": None, "temperature": 0.5}, "sampling is None: expected SamplingParams"),
    ],
)  # fmt: skip
def test_values_are_checked_as_ever(
    pipeline: Pipeline, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        pipeline.generate(PROMPT, **options)


def test_the_plan_of_a_text_is_what_it_was_decoded_with(pipeline: Pipeline) -> None:
    def drafted_by(**options: Any) -> tuple[object, object, object]:
        plan = pipeline.generate(PROMPT, max_new_tokens=4, **options).plan
        return plan["drafter"], plan["draft_length"], plan["policy"]

    assert drafted_by() == ("hybrid", "auto", "measured")
    assert drafted_by(drafter="none") == drafted_by(draft_length=0) == ("none", 0, "fixed")
    assert drafted_by(drafter="lookup") == ("lookup", "auto", "measured")
    assert drafted_by(drafter="model", draft_length=3) == ("model", 3, "fixed")
    assert pipeline.plan["drafter"] == "hybrid"


def test_every_name_of_another_library_leads_to_an_option() -> None:
    known = {f.name for c in (GenerateOptions, SamplingParams) for f in dataclasses.fields(c)}
    known |= {"timeout", *OpenOptions.names()}
    assert set(ELSEWHERE.values()) <= known
    assert not set(ELSEWHERE) & known
    for name, meant in ELSEWHERE.items():
        with pytest.raises(TypeError, match=rf"did you mean {meant}\?"):
            check_names({name: 1}, sorted(known))


@pytest.mark.parametrize("length", [-1, "4", 1.5, None])
def test_a_wrong_draft_length_is_refused_before_anything_is_loaded(length: object) -> None:
    with pytest.raises(InputError, match=r"draft_length is .*: expected auto or 0 and more"):
        OpenOptions(draft_length=length)
    assert OpenOptions(draft_length=0).draft_length == 0
