"""What all workers of a run are given is plain data, from which they build the same options."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgedec.batch.run import settings, settings_of
from edgedec.cluster.common import common, decisive, generate_options, open_options
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import EdgedecError
from edgedec.hardware.device import available_cores
from edgedec.loading.options import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline

TEXT = GenerateOptions(
    16, SamplingParams(temperature=0.8, logit_bias={3: -1.5}, seed=7), stop=("\n",),
    json_schema='{"type": "object"}', timeout_s=9.0,
)  # fmt: skip
GIVEN: list[dict[str, Any]] = [
    {},
    {"threads": 2, "drafter": "model", "draft_length": 3, "draft_threads": 1, "plan": "none"},
    {"accept": "match", "max_context": 512, "providers": ("CPUExecutionProvider",)},
    {"memory": 400_000_000, "max_context": 512, "kv_memory": 50_000_000, "format": "onnx"},
]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: " ".join(given) or "none")
def test_a_worker_builds_the_options_that_were_given(given: dict[str, Any]) -> None:
    asked = OpenOptions(**given)
    run = common("demo", asked, TEXT, GenerateOptions())
    json.dumps(run)  # which takes plain data alone
    wanted = asked.changed(max_context=run["max_context"])
    assert open_options(run, available_cores(), None) == wanted
    assert generate_options(run["text"]) == TEXT
    assert generate_options(run["answer"]) == GenerateOptions() != TEXT


def test_a_worker_with_fewer_cores_than_its_node_binds_its_threads(monkeypatch) -> None:
    monkeypatch.setattr("edgedec.cluster.common.available_cores", lambda: 4)
    run = common("demo", OpenOptions(), TEXT, TEXT)
    assert open_options(run, 4, None).load.threads is None
    assert open_options(run, 3, None).load.threads == 3
    chosen = common("demo", OpenOptions(threads=2), TEXT, TEXT)
    assert open_options(chosen, 3, None).load.threads == 2


def test_the_draft_s_path_is_the_node_s(tmp_path: Path) -> None:
    run = common("demo", OpenOptions(draft="demo"), TEXT, TEXT)
    assert run["models"].keys() == {"target", "draft"}
    assert open_options(run, available_cores(), str(tmp_path)).draft == tmp_path


@pytest.mark.parametrize("given", GIVEN[:3], ids=lambda given: " ".join(given) or "none")
def test_the_file_is_that_of_a_local_batch(given: dict[str, Any]) -> None:
    text = GenerateOptions(16, SamplingParams(temperature=0.8, seed=7))
    asked = OpenOptions(**given)
    run = common("demo", asked, text, text)
    with Pipeline.open("demo", asked) as pipeline:
        here = settings_of(pipeline, text, asked.accept)
    assert settings(decisive(run, asked.accept), text) == here
    shorter = decisive({**run, "max_context": run["max_context"] - 1}, asked.accept)
    assert settings(shorter, text) != here


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"plan": "plan.json"}, "--plan plan.json is for one machine"),
        ({"corpus": "texts.txt"}, "--corpus is a file of this machine"),
        ({"memory": 400_000_000}, "give --max-context as well"),
        ({"kv_memory": 400_000_000}, "give --max-context as well"),
        ({"max_context": 1 << 20}, "max-context"),
    ],
)
def test_what_would_differ_from_node_to_node_is_refused(given, said: str) -> None:
    with pytest.raises(EdgedecError, match=said):
        common("demo", OpenOptions(**given), TEXT, TEXT)


def test_memory_is_what_was_given_or_what_the_plan_takes() -> None:
    given = OpenOptions(memory=400_000_000, max_context=512)
    assert common("demo", given, TEXT, TEXT)["bytes"] == 400_000_000
    long, short = (
        common("demo", OpenOptions(max_context=one), TEXT, TEXT)["bytes"] for one in (4096, 512)
    )
    assert 60_000_000 < short < long < 400_000_000
