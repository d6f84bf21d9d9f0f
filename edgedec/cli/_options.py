"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from edgedec.assembly import OpenOptions
    from edgedec.pipeline import GenerateOptions

F = TypeVar("F", bound=Callable[..., Any])
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
# The drafters by their files; importing their package would import numpy.
_DRAFTERS = Path(__file__).parents[1] / "decoding" / "drafting"
DRAFTS = ["auto", *sorted({file.stem for file in _DRAFTERS.glob("[a-z]*.py")} - {"base"})]


def size(value: str | int) -> int:
    """Bytes, as a person writes them: 512MB, 1.5GiB, 300000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", str(value).strip().upper())
    if match is None:
        raise click.BadParameter(f"{value!r}: expected a size such as 512MB or 1.5GiB")
    return int(float(match[1]) * UNITS[match[2]])


def draft_length(value: str | int) -> int | str:
    """``auto`` or a number of tokens."""
    if value == "auto":
        return "auto"
    if not re.fullmatch(r"[0-9]{1,3}", str(value)):
        raise click.BadParameter(f"{value!r}: expected auto or a number of tokens, 0 to 999")
    return int(value)


def bias(value: str | tuple[int, float]) -> tuple[int, float]:
    """``ID=VALUE``: a token id and what is added to its logit."""
    if isinstance(value, tuple):
        return value
    try:
        token, amount = value.split("=")
        return int(token), float(amount)
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected a token id and a number, as 17=-2.5"
        ) from None


OPEN = [
    click.option("--draft", type=click.Choice(DRAFTS), default="auto", show_default=True,
                 help="What drafts: a draft model, the text so far, both (hybrid), nothing."),
    click.option("--draft-length", type=draft_length, default="auto", show_default=True,
        metavar="auto|N",
                 help="Tokens to draft in a round; auto decides by measured cost."),
    click.option("--accept", metavar="RULE",
                 help="Acceptance rule: coupling (default), match or speculative, which are "
                 "lossless; typical and bild change the text."),
    click.option("--threads", type=click.IntRange(1, 1024), help="CPU threads; default: all."),
    click.option("--provider", "providers", multiple=True, metavar="NAME",
                 help="ONNX Runtime execution provider; repeat for second choices."),
    click.option("--max-context", type=click.IntRange(min=2), metavar="TOKENS",
                 help="Tokens a text may have, its prompt included; default: the model's limit."),
    click.option("--kv-memory", type=size, metavar="SIZE",
                 help="Memory for all key/value caches, as 512MB; default: no limit."),
    click.option("--row-invariant/--no-row-invariant", default=None,
                 help="Pad passes so that quantised numbers do not depend on drafting; "
                 "default: for models of 64 MB and more, where it costs nothing."),
]  # fmt: skip

SAMPLE = [
    click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True,
                 metavar="N", help="Tokens to write at most."),
    click.option("--temperature", type=float, default=0.0, show_default=True,
                 help="0 is greedy."),
    click.option("--top-k", type=int, default=0, help="Keep the k most likely tokens."),
    click.option("--top-p", type=float, default=1.0,
                 help="Keep the most likely tokens that hold this probability together."),
    click.option("--min-p", type=float, default=0.0,
                 help="Keep tokens at least this times as likely as the most likely one."),
    click.option("--repetition-penalty", type=float, default=1.0,
                 help="Above 1: tokens of prompt and text become less likely."),
    click.option("--presence-penalty", type=float, default=0.0,
                 help="Subtracted from the logits of tokens in the text."),
    click.option("--frequency-penalty", type=float, default=0.0,
                 help="The same for each time they occurred."),
    click.option("--logit-bias", type=bias, multiple=True, metavar="ID=VALUE",
                 help="Added to this token's logit; repeatable."),
    click.option("--seed", type=int, help="Of all random choices; default: drawn and reported."),
    click.option("--stop", multiple=True, metavar="TEXT", help="Ends the text; repeatable."),
    click.option("--timeout", type=float, metavar="SECONDS", help="End the text after this time."),
]  # fmt: skip

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def texts(count: int, least_tokens: int) -> list[Callable[[F], F]]:
    """Which prompts to decode and how far, for commands that compare texts."""
    return [
        click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     metavar="FILE.jsonl",
                     help='Lines such as {"prompt": "Hello"}; default: heads of functions that '
                     "the demo pair was not trained on."),
        click.option("--count", type=click.IntRange(min=1), default=count, show_default=True,
                     help="How many of the default prompts."),
        click.option("--max-new-tokens", type=click.IntRange(min=least_tokens), default=128,
                     show_default=True, metavar="N", help="Tokens of each text."),
    ]  # fmt: skip


def options(*groups: list[Callable[[F], F]]) -> Callable[[F], F]:
    """All options of these groups, in their order."""

    def decorate(command: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def open_options(chosen: dict[str, Any]) -> OpenOptions:
    """``OpenOptions`` from the values of ``OPEN``; a lossy rule is noted on stderr."""
    from edgedec.assembly import OpenOptions
    from edgedec.decoding.acceptance import rule

    accept = chosen["accept"]
    if accept is not None and not rule(accept).lossless:
        click.echo(f"note: --accept {accept} is not lossless: it changes the text", err=True)
    return OpenOptions(
        draft=chosen["draft"],
        draft_length=chosen["draft_length"],
        threads=chosen["threads"],
        providers=tuple(chosen["providers"]),
        max_context=chosen["max_context"],
        kv_memory=chosen["kv_memory"],
        accept=accept,
        row_invariant=chosen["row_invariant"],
    )


def generate_options(chosen: dict[str, Any]) -> GenerateOptions:
    """``GenerateOptions`` from the values of ``SAMPLE``."""
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.pipeline import GenerateOptions

    return GenerateOptions(
        max_new_tokens=chosen["max_new_tokens"],
        sampling=SamplingParams(
            temperature=chosen["temperature"],
            top_k=chosen["top_k"],
            top_p=chosen["top_p"],
            min_p=chosen["min_p"],
            repetition_penalty=chosen["repetition_penalty"],
            presence_penalty=chosen["presence_penalty"],
            frequency_penalty=chosen["frequency_penalty"],
            logit_bias=dict(chosen["logit_bias"]),
            seed=chosen["seed"],
        ),
        stop=tuple(chosen["stop"]),
        logprobs=chosen.get("logprobs"),
        timeout_s=chosen["timeout"],
    )
