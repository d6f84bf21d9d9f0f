"""Options of a generation: sampling, constraints, and when it ends."""

from __future__ import annotations

import functools
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edgedec._support.model_path import DEMO
from edgedec.cli._values import FILE, SEED, schema
from edgedec.generation import ANSWER_TOKENS, TEXT_TOKENS

if TYPE_CHECKING:
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.pipeline import GenerateOptions, Pipeline

_MOST_SYSTEM_BYTES = 1 << 20
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def bias(value: str | tuple[int, float]) -> tuple[int, float]:
    """Parse ``ID=VALUE``: a token id and the number added to its logit."""
    if isinstance(value, tuple):
        return value
    try:
        token, amount = value.split("=")
        return int(token), float(amount)
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected a token id and a number, as 17=-2.5"
        ) from None


def text(value: str) -> str:
    """Return command-line words as text, since terminals send UTF-8 whatever the locale says."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # bytes that are invalid in this locale appear as escapes
        with suppress(UnicodeError):
            return os.fsencode(value).decode("utf-8")
    return value


def stop_text(value: str) -> str:
    """Parse a stop string, in which ``\\n``, ``\\t`` and ``\\\\`` are escapes."""
    return re.sub(r"\\([nt\\])", lambda found: ESCAPES[found[1]], text(value))


def system_text(value: str) -> str:
    """Return a system message: ``@FILE`` is the text of that file, ``@@...`` a text with an @.

    Raises:
        click.BadParameter: the file cannot be read, is not UTF-8, or is empty or too large.

    """
    if not value.startswith("@"):
        return text(value)
    if value.startswith("@@"):
        return text(value[1:])
    from edgedec._support.files import open_regular

    path = Path(value[1:]).expanduser()
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_SYSTEM_BYTES + 1)
        found = data.decode("utf-8-sig")
    except OSError as error:
        raise click.BadParameter(
            f"{value[1:]}: {error.strerror}: expected a file with the system message, or for a text"
            f" that begins with @, @{value}"
        ) from None
    except UnicodeDecodeError as error:
        raise click.BadParameter(
            f"{value[1:]} is not UTF-8 at byte {error.start}: convert it first (iconv -t utf-8)"
        ) from None
    if len(data) > _MOST_SYSTEM_BYTES:
        raise click.BadParameter(f"{value[1:]}: expected at most {_MOST_SYSTEM_BYTES >> 20} MiB")
    if not found.strip():
        raise click.BadParameter(f"{value[1:]} is empty: expected a system message")
    return found.rstrip("\r\n")


# Options that change the target's distribution.
SHAPE = [
    click.option("--top-k", type=int, help="Keep the k most likely tokens."),
    click.option("--top-p", type=float,
                 help="Keep the most likely tokens whose probabilities add up to this."),
    click.option("--min-p", type=float,
                 help="Keep tokens with at least this share of the highest probability."),
    click.option("--repetition-penalty", type=float,
                 help="Above 1: tokens of prompt and text become less likely."),
    click.option("--presence-penalty", type=float,
                 help="Subtracted from the logits of tokens that occur in the text."),
    click.option("--frequency-penalty", type=float,
                 help="Subtracted from a token's logit for each time it occurs in the text."),
    click.option("--logit-bias", type=bias, multiple=True, metavar="ID=VALUE",
                 help="Added to this token's logit; repeatable."),
]  # fmt: skip

STOP = click.option("--stop", type=stop_text, multiple=True, metavar="TEXT",
                    help="Ends the text; repeatable. \\n is a line end, \\t a tab, \\\\ a "
                    "backslash.")  # fmt: skip

LENGTH = click.option("-n", "--max-new-tokens", type=click.IntRange(min=1), default=ANSWER_TOKENS,
                      metavar="N", help="Most tokens to generate. By default an answer of a "
                      "chat template goes on to its end, or to that of the context; other texts, "
                      f"and those of --prompts, have {TEXT_TOKENS} tokens.")  # fmt: skip

SAMPLE = [
    click.option("--temperature", type=float,
                 help="0 is greedy. By default an answer of a chat template is drawn as the "
                 "model's files ask for, else at 0.7 with top-k 40 and top-p 0.9; other texts are "
                 "greedy."),
    *SHAPE,
    click.option("-s", "--seed", type=SEED, metavar="N",
                 help="Random seed; default: one is drawn and reported."),
    STOP,
    click.option("--timeout", type=float, metavar="SECONDS", help="End the text after this time."),
]  # fmt: skip


class _System(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A system message; the configuration file's is taken as it stands."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        source = ctx.get_parameter_source(str(param.name)) if ctx and param else None
        return value if source == ParameterSource.DEFAULT_MAP else system_text(value)


SYSTEM = click.option("--system", type=_System(), metavar="TEXT|@FILE",
                      help="System message: instructions a chat model gets before the prompt. "
                      "@FILE reads them from a file; @@ begins a text with @.")  # fmt: skip

# Options that constrain the text.
FORM = [
    click.option("--json-mode", is_flag=True, help="Generate a JSON object."),
    click.option("--json-schema", type=schema, metavar="FILE|JSON",
                 help="Generate JSON of this schema: a file, or the schema itself in quotes."),
    click.option("--regex", type=text, metavar="PATTERN",
                 help="Generate text that matches this regular expression as a whole."),
    click.option("--grammar", type=FILE, metavar="FILE",
                 help="Generate text of this grammar, in Lark's notation or llama.cpp's (GBNF)."),
]  # fmt: skip


# Options of the thinking before an answer.
THINK = [
    click.option("--think/--no-think", default=None,
                 help="Let a model think before it answers, or not; default: as its chat template "
                 "says."),
    click.option("--think-tokens", type=click.IntRange(min=0), metavar="N",
                 help="Most tokens of thinking; its end is then forced, and the answer follows."),
    click.option("--reasoning-effort", type=click.Choice(["low", "medium", "high"]),
                 help="How much to think, for chat templates that read it."),
]  # fmt: skip
HIDE = click.option("--hide-thinking", is_flag=True,
                    help="Do not print the thinking; by default it goes to standard "
                    "error.")  # fmt: skip


@functools.cache
def parameters() -> dict[str, click.Parameter]:
    """Return the options of a text by their names in Python, for values given elsewhere."""

    def holder() -> None:
        """Takes the options."""

    for option in reversed([LENGTH, *SAMPLE, *THINK]):
        option(holder)
    return {str(one.name): one for one in click.command()(holder).params}


def parsed(name: str, text: str) -> Any:
    """Return the value of one of ``parameters`` as Python has it; BadParameter if it is none.

    One that may be repeated is given once.
    """
    parameter, context = parameters()[name], click.Context(click.Command("set"))
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return click.BOOL.convert(text, parameter, context)
    value = parameter.type_cast_value(context, [text] if parameter.multiple else text)
    return dict(value) if name == "logit_bias" else value


def note_system(model: str, system: str | None) -> None:
    """Say what a system message does to the demo, which is no assistant."""
    from edgedec.cli._terminal import note

    if model == DEMO and system is not None:
        note(
            f"note: {DEMO} was trained on code alone: with --system it continues a chat template"
            " and gives another text, but follows no instructions"
        )


def as_text(options: GenerateOptions) -> GenerateOptions:
    """Return options for a text without a chat template, which may have no end of its own."""
    from dataclasses import replace

    unlimited = options.max_new_tokens == ANSWER_TOKENS
    return replace(options, max_new_tokens=TEXT_TOKENS) if unlimited else options


def described(sampling: SamplingParams, own: SamplingParams | None) -> str:
    """Return in words how tokens are chosen, and whether the model's files ask for that."""
    import dataclasses

    from edgedec.generation.own_sampling import USUAL, described

    if own is None or dataclasses.replace(sampling, seed=own.seed) != own:
        return described(sampling)
    whose = "as usual" if own == USUAL else "as the model asks"
    return f"{whose}: {described(sampling)}"


def for_text(chosen: dict[str, Any], pipeline: Pipeline, *, answers: bool) -> GenerateOptions:
    """Return the options of one text; an answer is drawn as the model asks, which -v says."""
    from edgedec.cli._terminal import note

    own = pipeline.sampling if answers else None
    options = generate_options(chosen, own)
    if own is not None and chosen["verbosity"]:
        note(f"sampling {described(options.sampling, own)}")
    # The demo was trained on code and ends no answer.
    return options if answers and pipeline.pair.where != DEMO else as_text(options)


def generate_options(chosen: dict[str, Any], own: SamplingParams | None = None) -> GenerateOptions:
    """Return ``GenerateOptions`` from the values of ``SAMPLE``, and of ``FORM`` if it has them.

    Args:
        chosen: the values, those of ``THINK`` included.
        own: the model's own sampling, for what was not given; None is greedy.

    """
    from edgedec.pipeline import GenerateOptions

    return GenerateOptions(
        max_new_tokens=chosen["max_new_tokens"],
        sampling=sampling_params(chosen, own),
        stop=tuple(chosen["stop"]),
        logprobs=chosen.get("logprobs"),
        timeout_s=chosen["timeout"],
        json_mode=chosen.get("json_mode", False),
        json_schema=chosen.get("json_schema"),
        regex=chosen.get("regex"),
        grammar=chosen.get("grammar"),
        think=chosen.get("think"),
        think_tokens=chosen.get("think_tokens"),
        reasoning_effort=chosen.get("reasoning_effort"),
    )


def sampling_params(chosen: dict[str, Any], own: SamplingParams | None = None) -> SamplingParams:
    """Return ``SamplingParams`` from the values of ``SHAPE``, a temperature and a seed."""
    import dataclasses

    from edgedec.decoding.sampling import SamplingParams

    names = [field.name for field in dataclasses.fields(SamplingParams)]
    given = {name: chosen[name] for name in names if chosen[name] is not None}
    given["logit_bias"] = dict(chosen["logit_bias"])
    return dataclasses.replace(own or SamplingParams(), **given)
