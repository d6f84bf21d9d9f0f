"""Options of one generation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from edgedec._support.option_names import present_names
from edgedec._support.options import DRAFTING, OUTPUT, TEXT, check_values, described, option
from edgedec.decoding import drafting
from edgedec.decoding.params import SamplingParams
from edgedec.errors import InputError
from edgedec.generation import TEXT_TOKENS
from edgedec.grammar import spec
from edgedec.grammar.spec import Grammar

_GRAMMARS: dict[str, Callable[[Any], Grammar]] = {
    "json_mode": lambda _: spec.json_object(),
    "json_schema": spec.json_schema,
    "regex": spec.regex,
    "grammar": spec.grammar,
}
# Options that constrain a text.
GRAMMARS = tuple(_GRAMMARS)
EFFORTS = ("low", "medium", "high")
# Other names of options: a former one, and that of the command line.
FORMER = {"draft": "drafter", "timeout": "timeout_s"}
Prompt = str | Sequence[int]
Message = Mapping[str, str]


@described
@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """Options of one generation.

    With fp32 weights, or opened with ``batch_invariant=True``, equal options and an equal seed
    give the same text with every drafter; ``OpenOptions`` says what holds otherwise.

    Attributes:
        sampling: how tokens are chosen; the default is greedy.
        timeout: another name of ``timeout_s``, that of the command line.
        draft: the former name of ``drafter``, which is still accepted.

    """

    # fmt: off
    max_new_tokens: int = option(
        TEXT_TOKENS, "Most tokens to generate. By default an answer of a chat template goes on to"
        " its end, or to that of the context; other texts, and those of --prompts, have"
        f" {TEXT_TOKENS} tokens.",
        text="most tokens to generate; the context may end the text earlier. Without ``options`` an"
        " answer to messages goes on to its own end.", group=TEXT, short="-n", metavar="N", least=1,
    )
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = option(
        (), "Ends the text; repeatable. \\n is a line end, \\t a tab, \\\\ a backslash.",
        text="one string or several that end the text; they are not part of it.", group=TEXT,
        kind="stop", metavar="TEXT", takes="str | Sequence[str]",
    )
    logprobs: int | None = option(
        None, "Log probabilities of the tokens and of the N most likely; needs --json or"
        " --prompts.", text="None for none; 0 for each token's own; n for the n most likely as"
        " well.", group=OUTPUT, metavar="N", least=0, most=100,
    )
    timeout_s: float | None = option(
        None, "End the text after this time.", text="seconds after which the text ends with"
        ' ``"timeout"``, those in which it waits for other texts included.', group=TEXT,
        name="timeout", metavar="SECONDS",
    )
    ignore_eos: bool = option(
        False, text="continue past an end-of-text token, for measuring; such a text has no"
        " ``owner``, so that measuring again finds nothing kept.", group=TEXT,
    )
    drafter: str | None = option(
        None, text="the only drafter that may be used, of those the pipeline was opened with"
        " (``lookup`` or ``model``, say); ``none`` is plain decoding; None allows all of them.",
        group=DRAFTING,
    )
    spec: str | None = option(
        None, text="one stage of drafting and its ``k``, as ``lookup:k=4``, in place of ``drafter``"
        " and ``draft_length``, which it becomes.", group=DRAFTING,
    )
    draft_length: int | None = option(
        None, text="tokens to draft per round; 0 is plain decoding, None the pipeline's choice.",
        group=DRAFTING, least=0, wire=(0, 64),
    )
    owner: str | None = option(
        "", text="whose text it is: drafts are copied from the earlier texts of the same owner"
        " alone, and from none if it is None, which keeps the text for no later one.",
        group=DRAFTING,
    )
    json_mode: bool = option(False, "Generate a JSON object.", group=TEXT)
    json_schema: str | Path | bool | Mapping[str, Any] | None = option(
        None, "Generate JSON of this schema: a file, or the schema itself in quotes.",
        text="generate JSON of this schema: JSON, the parsed object, or a file's Path.", group=TEXT,
        kind="schema", metavar="FILE|JSON",
    )
    regex: str | None = option(
        None, "Generate text that matches this regular expression (Rust's syntax) as a whole.",
        group=TEXT, kind="text", metavar="PATTERN",
    )
    grammar: str | Path | None = option(
        None, "Generate text of this grammar, in Lark's notation or llama.cpp's (GBNF).",
        text="generate text of this grammar, in Lark's notation or GBNF, or of a file's Path. At"
        " most one of these four may be given; they need the extra ``grammar``. ``max_new_tokens``"
        " may cut such a text, and then the reason is ``length``. With a model that thinks they"
        " hold for the answer.", group=TEXT, kind="file", metavar="FILE",
    )
    think: bool | None = option(
        None, "Let a model think before it answers, or not; default: as its chat template says.",
        group=TEXT,
    )
    think_tokens: int | None = option(
        None, "Most tokens of thinking; its end is then forced, and the answer follows. They count"
        " among --max-new-tokens.", group=TEXT, metavar="N", least=0, wire=(0, 1 << 24),
    )
    reasoning_effort: str | None = option(
        None, "How much to think, for chat templates that read it.", group=TEXT, choices=EFFORTS,
    )
    shown_tokens: tuple[str, ...] = option(
        (), text="names of special tokens that are shown in the text, where others have none.",
        group=OUTPUT,
    )
    # fmt: on
    timeout: InitVar[float | None] = field(default=None, kw_only=True)
    draft: InitVar[str | None] = field(default=None, kw_only=True)

    def __post_init__(self, timeout: float | None, draft: str | None) -> None:
        given: dict[str, Any] = {"drafter": self.drafter, "draft": draft}
        given |= {"timeout_s": self.timeout_s, "timeout": timeout}
        if self.spec is not None or (self.drafter and drafting.is_spec(str(self.drafter))):
            self._take_spec(given)
        for name, value in present_names(given, FORMER).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "stop", _texts("stop", self.stop))
        shown = _texts("shown_tokens", self.shown_tokens)
        object.__setattr__(self, "shown_tokens", shown)
        object.__setattr__(self, "json_schema", _contents(self.json_schema))
        object.__setattr__(self, "grammar", _contents(self.grammar))
        self._check()

    def _take_spec(self, given: dict[str, Any]) -> None:
        """Make the stage that was given the drafter and the draft length."""
        spec = self.drafter if self.spec is None else self.spec
        stage, *more = drafting.stages(spec)
        keys = dict(stage.keys)
        length = keys.pop("k", None)
        if more or keys:
            raise InputError(
                f"spec {spec!r:.80}: a text takes one stage and its k, of those that the model was"
                " opened with"
            )
        if self.draft_length is not None or None not in (self.spec, self.drafter):
            raise InputError(f"spec {spec!r:.80}: leave drafter and draft_length out beside it")
        given["drafter"] = stage.name
        object.__setattr__(self, "draft_length", length)
        object.__setattr__(self, "spec", None)

    def _check(self) -> None:
        check_values(self)
        if not isinstance(self.sampling, SamplingParams):
            raise InputError(f"sampling is {self.sampling!r:.60}: expected SamplingParams")
        if not isinstance(self.owner, (str, type(None))):
            raise InputError(f"owner is {self.owner!r:.60}: expected a text, or None")
        if self.drafter is not None and not drafting.known(self.drafter):
            raise InputError(drafting.no_drafter(self.drafter))
        if self.timeout_s is not None:
            number = isinstance(self.timeout_s, Real)
            if not number or not self.timeout_s > 0:
                raise InputError(f"timeout is {self.timeout_s!r:.60} s: expected more than 0")
        if self.think not in (True, False, None):
            raise InputError(f"think is {self.think!r:.60}: expected True or False")
        if self.constraint is not None and self.ignore_eos:
            raise InputError("ignore_eos: a text with a grammar ends where the grammar does")

    @property
    def constraint(self) -> Grammar | None:
        """The grammar that constrains the text; None if there is none.

        Raises:
            InputError: more than one is given, or it is invalid.

        """
        asked = {
            "json_mode": self.json_mode or None,
            "json_schema": self.json_schema,
            "regex": self.regex,
            "grammar": self.grammar,
        }
        given = [name for name, value in asked.items() if value is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)}: expected one of them")
        return _GRAMMARS[given[0]](asked[given[0]]) if given else None


def _contents(given: Any) -> Any:
    """Return a file's text if its path is given."""
    return spec.read(given) if isinstance(given, Path) else given


def token_ids(prompt: Sequence[int]) -> list[int]:
    """Return a prompt's token ids as Python integers (numpy's would overflow in n-gram hashes).

    Raises:
        InputError: it is bytes, or not a sequence of integers.

    """
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        raise InputError("the prompt is bytes: expected text, as prompt.decode() gives it")
    try:
        return [operator.index(token) for token in prompt]
    except TypeError:
        raise InputError(
            "the prompt: expected text or a sequence of token ids; messages go to messages=[...]"
        ) from None


def _texts(name: str, given: object) -> tuple[str, ...]:
    """Return a tuple of strings, given one string or several."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray)):
        texts = tuple(given)
        if all(isinstance(text, str) for text in texts):
            return texts
    raise InputError(f"{name} is {given!r:.60}: expected a text or several")
