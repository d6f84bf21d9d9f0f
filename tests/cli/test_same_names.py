"""Options have the same names and values on the command line and in Python: one table for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from edgedec import GenerateOptions, OpenOptions
from edgedec.cli import _options, _sampling, main
from edgedec.generation.keywords import TextOptions, with_changes
from edgedec.generation.options import FORMER
from edgedec.loading.options import OpenChanges

# What a shell writes, and what Python gives; {folder} is one with the files below.
Row = tuple[list[str], dict[str, Any]]
TEXT: list[Row] = [
    (["--max-new-tokens", "9"], {"max_new_tokens": 9}),
    (["--temperature", "0.8"], {"temperature": 0.8}),
    (["--top-k", "5"], {"top_k": 5}),
    (["--top-p", "0.9"], {"top_p": 0.9}),
    (["--min-p", "0.1"], {"min_p": 0.1}),
    (["--repetition-penalty", "1.2"], {"repetition_penalty": 1.2}),
    (["--presence-penalty", "0.3"], {"presence_penalty": 0.3}),
    (["--frequency-penalty", "0.4"], {"frequency_penalty": 0.4}),
    (["--logit-bias", "17=-2.5", "--logit-bias", "3=1"], {"logit_bias": {17: -2.5, 3: 1}}),
    (["--seed", "7"], {"seed": 7}),
    (["--stop", "end"], {"stop": "end"}),
    (["--stop", "a", "--stop", "\\n"], {"stop": ["a", "\n"]}),
    (["--timeout", "2.5"], {"timeout": 2.5}),
    (["--json-mode"], {"json_mode": True}),
    (["--json-schema", "{folder}/schema.json"], {"json_schema": Path("{folder}/schema.json")}),
    (["--json-schema", '{"type": "null"}'], {"json_schema": '{"type": "null"}'}),
    (["--regex", "a|b"], {"regex": "a|b"}),
    (["--grammar", "{folder}/words.lark"], {"grammar": Path("{folder}/words.lark")}),
    (["--think"], {"think": True}),
    (["--no-think"], {"think": False}),
    (["--think-tokens", "64"], {"think_tokens": 64}),
    (["--reasoning-effort", "low"], {"reasoning_effort": "low"}),
    (["--logprobs", "2", "--json"], {"logprobs": 2}),
]
OPEN: list[Row] = [
    (["--draft", "demo"], {"draft": "demo"}),
    (["--draft", "{folder}/small.gguf"], {"draft": "{folder}/small.gguf"}),
    (["--draft", "lookup"], {"draft": "lookup"}),
    (["--drafter", "lookup"], {"drafter": "lookup"}),
    (["--draft-length", "auto"], {"draft_length": "auto"}),
    (["--draft-length", "4"], {"draft_length": 4}),
    (["--draft-context", "128"], {"draft_context": 128}),
    (["--accept", "match"], {"accept": "match"}),
    (["--threads", "2"], {"threads": 2}),
    (["--provider", "CPU"], {"provider": "CPU"}),
    (["--provider", "A", "--provider", "B"], {"provider": ("A", "B")}),
    (["--max-context", "64"], {"max_context": 64}),
    (["--memory", "2GB"], {"memory": "2GB"}),
    (["--memory", "1.5 GiB"], {"memory": "1.5 GiB"}),
    (["--memory", "300000B"], {"memory": 300000}),
    (["--memory", "auto"], {"memory": "auto"}),
    (["--kv-memory", "512MB"], {"kv_memory": "512MB"}),
    (["--plan", "none"], {"plan": "none"}),
    (["--plan", "plan.json"], {"plan": "plan.json"}),
    (["--batch-invariant"], {"batch_invariant": True}),
    (["--no-batch-invariant"], {"batch_invariant": False}),
    (["--format", "gguf"], {"format": "gguf"}),
    (["--device", "cpu"], {"device": "cpu"}),
    (["--draft-device", "cpu"], {"draft_device": "cpu"}),
    (["--weight-memory", "1GB"], {"weight_memory": "1GB"}),
    (["--batch-threads", "3"], {"batch_threads": 3}),
    (["--kv", "q8_0"], {"kv": "q8_0"}),
    (["--kv-type", "q8_0"], {"kv_type": "q8_0"}),
    (["--flash-attention"], {"flash_attention": True}),
    (["--no-flash-attention"], {"flash_attention": False}),
    (["--gpu-layers", "-1"], {"gpu_layers": -1}),
    (["--draft-gpu-layers", "5"], {"draft_gpu_layers": 5}),
    (["--no-mmap"], {"mmap": False}),
    (["--no-repack"], {"repack": False}),
    (["--mlock"], {"mlock": True}),
    (["--rpc", "127.0.0.1:50052,desk:50052"], {"rpc": "127.0.0.1:50052,desk:50052"}),
    (["--rpc-trust"], {"rpc_trust": True}),
    (["--runtime-option", "mmap=off"], {"mmap": False}),
    (["--runtime-option", "weight_memory=1GB"], {"weight_memory": "1GB"}),
    (["--runtime-option", "draft_kv=f16"], {"draft_kv": "f16"}),
]
# Options of the command that are none of a text's or a pipeline's.
COMMAND_ONLY = {
    "model", "named", "prompt",  # arguments of the functions
    "system", "messages",  # likewise, and tested below
    "hide_thinking",  # what is printed
    "prompts", "out", "ray", "as_json",  # many texts and their output
    "verbose", "verbosity", "help_all", "help", "_click_default_help",
}  # fmt: skip
# Names in Python that have none on the command line.
PYTHON_ONLY = {
    # objects with several options
    "sampling", "load", "draft_load",
    # of which the command line has one name
    "timeout_s", "providers",
    # for measuring, and for programs that decode many texts
    "ignore_eos", "parallel", "conversations", "schedule", "draft_depth", "draft_format", "cores",
    "context_limit", "shown_tokens",
    # for the draft alone; --runtime-option draft_NAME=VALUE gives some of them
    *(name for name in OpenChanges.__annotations__ if name.startswith("draft_")),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    (made / "schema.json").write_text('{"type": "object"}')
    (made / "words.lark").write_text('start: "a" | "b"')
    (made / "small.gguf").write_text("")
    return made


@pytest.fixture
def command() -> click.Command:
    found = main.get_command(click.Context(main), "generate")
    assert found is not None
    return found


def context_of(command: click.Command, words: list[str]) -> click.Context:
    above = click.Context(main, info_name="edgedec", **main.context_settings)
    return command.make_context("generate", words, parent=above)


def filled(value: Any, folder: Path) -> Any:
    if isinstance(value, (str, Path)):
        return type(value)(str(value).replace("{folder}", str(folder)))
    return value


def parsed(command: click.Command, words: list[str], folder: Path) -> click.Context:
    given = [filled(word, folder) for word in words]
    return context_of(command, ["demo", "a prompt", *given])


@pytest.mark.parametrize(("words", "named"), TEXT, ids=lambda value: str(value))
def test_options_of_a_text(
    command: click.Command, words: list[str], named: dict[str, Any], folder: Path
) -> None:
    with parsed(command, words, folder) as context:
        told = _sampling.as_text(_sampling.generate_options(context.params))
    given = {name: filled(value, folder) for name, value in named.items()}
    assert with_changes(GenerateOptions(), given) == told
    assert told != GenerateOptions()


@pytest.mark.parametrize(("words", "named"), OPEN, ids=lambda value: str(value))
def test_options_for_opening(
    command: click.Command, words: list[str], named: dict[str, Any], folder: Path
) -> None:
    with parsed(command, words, folder) as context:
        told = _options.open_options(context.params, "target")
    assert OpenOptions(**{name: filled(value, folder) for name, value in named.items()}) == told
    assert told != OpenOptions() or "auto" in named.values()


def unlisted(command: click.Command, table: list[Row]) -> set[str]:
    """Options of the command, by their names in the code, that no row gives."""
    given = {word for words, _ in table for word in words}
    with context_of(command, ["demo", "x"]) as context:
        parameters = command.get_params(context)
    return {
        str(one.name)
        for one in parameters
        if isinstance(one, click.Option) and given.isdisjoint([*one.opts, *one.secondary_opts])
    }


def test_the_table_has_every_option_of_the_command(command: click.Command) -> None:
    assert unlisted(command, [*TEXT, *OPEN]) <= COMMAND_ONLY


def test_an_option_that_is_not_in_the_table_would_be_noticed(command: click.Command) -> None:
    assert unlisted(command, [*TEXT[1:], *OPEN]) - COMMAND_ONLY == {"max_new_tokens"}


def test_the_table_has_every_option_of_python() -> None:
    given = {name for _, named in [*TEXT, *OPEN] for name in named}
    known = {*TextOptions.__annotations__, *OpenChanges.__annotations__}
    assert known - given <= PYTHON_ONLY
    assert not given - known


def test_other_names_lead_to_the_same_field() -> None:
    assert GenerateOptions(timeout=3) == GenerateOptions(timeout_s=3)
    assert FORMER["timeout"] == "timeout_s"
    assert OpenOptions(provider="A") == OpenOptions(providers=("A",)) == OpenOptions(providers="A")
    assert OpenOptions(kv_type="q8_0") == OpenOptions(kv="q8_0")
