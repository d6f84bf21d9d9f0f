"""Options of a generation: sampling, constraints, and when it ends."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edgedec._support.files import open_regular
from edgedec._support.model_path import DEMO
from edgedec._support.options import declared
from edgedec.cli._flags import flag, flags, made
from edgedec.cli._terminal import note
from edgedec.cli._values import text
from edgedec.decoding.params import SamplingParams
from edgedec.generation import ANSWER_TOKENS, TEXT_TOKENS
from edgedec.generation.keywords import TEXTS
from edgedec.generation.options import GRAMMARS, GenerateOptions

if TYPE_CHECKING:
    from edgedec.pipeline import Pipeline

_MOST_SYSTEM_BYTES = 1 << 20


def system_text(value: str) -> str:
    """Return a system message: ``@FILE`` is the text of that file, ``@@...`` a text with an @.

    Raises:
        click.BadParameter: the file cannot be read, is not UTF-8, or is empty or too large.

    """
    if not value.startswith("@"):
        return text(value)
    if value.startswith("@@"):
        return text(value[1:])
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


LENGTH = flag(TEXTS["max_new_tokens"], default=ANSWER_TOKENS)
SHAPE = flags(declared(SamplingParams), without=("temperature", "seed"))
STOP = flag(TEXTS["stop"])
# Options of an answer, and those that constrain a text or say more of it.
ANSWER = [LENGTH, *flags(TEXTS, without=("max_new_tokens", "logprobs", *GRAMMARS))]
FORM, LOGPROBS = flags(TEXTS, GRAMMARS), flag(TEXTS["logprobs"])


class _System(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A system message; the configuration file's is taken as it stands."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        source = ctx.get_parameter_source(str(param.name)) if ctx and param else None
        return value if source == ParameterSource.DEFAULT_MAP else system_text(value)


SYSTEM = click.option("--system", type=_System(), metavar="TEXT|@FILE",
                      help="System message: instructions a chat model gets before the prompt. "
                      "@FILE reads them from a file; @@ begins a text with @.")  # fmt: skip

HIDE = click.option("--hide-thinking", is_flag=True,
                    help="Do not print the thinking; by default it goes to standard "
                    "error.")  # fmt: skip


@functools.cache
def parameters() -> dict[str, click.Parameter]:
    """Return the options of a text by their names in Python, for values given elsewhere."""
    found = [one for one in TEXTS.values() if one.option.help and one.name not in GRAMMARS]
    return {one.name: made(one) for one in found if one.name != "logprobs"}


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
    """Warn that the demo does not follow instructions in a system message."""
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
    asked = [one.field for one in declared(GenerateOptions).values() if one.option.help]
    given = {name: chosen[name] for name in asked if chosen.get(name) is not None}
    return GenerateOptions(**given, sampling=sampling_params(chosen, own))


def sampling_params(chosen: dict[str, Any], own: SamplingParams | None = None) -> SamplingParams:
    """Return ``SamplingParams`` from the values of ``SHAPE``, a temperature and a seed."""
    import dataclasses

    given = {name: chosen[name] for name in declared(SamplingParams) if chosen[name] is not None}
    given["logit_bias"] = dict(chosen["logit_bias"])
    return dataclasses.replace(own or SamplingParams(), **given)
