"""A Jinja environment for templates nobody vouches for.

Jinja's immutable sandbox keeps a template from reaching Python; the meter here keeps it from
running or growing without end. Every loop turn, call, sum and filter costs a step, and growth
is refused before it happens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.visitor

MAX_CHARS = 4_000_000
MAX_STEPS = 1_000_000
MAX_SECONDS = 5.0
MAX_INT_BITS = 4096

# Left out: filters that make as much text as a number asks for (center, indent, wordwrap, ...).
FILTERS = [
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "forceescape", "groupby", "int", "items", "join", "last", "length", "list",
    "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round",
    "safe", "select", "selectattr", "sort", "string", "striptags", "sum", "title", "trim",
    "truncate", "unique", "upper", "wordcount",
]  # fmt: skip
WIDENING = {"center", "expandtabs", "format", "format_map", "ljust", "rjust", "translate", "zfill"}
CONTEXTS = (jinja2.Environment, jinja2.runtime.Context, jinja2.nodes.EvalContext)


class Exhausted(Exception):
    """A bound was met."""


class Meter:
    """Steps and seconds of one rendering."""

    def __init__(self) -> None:
        self._steps = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        """Count one.

        Raises:
            Exhausted: too many, or too late.

        """
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Exhausted(f"more than {MAX_STEPS} steps")
        if self._steps % 64 == 0 and time.monotonic() > self._deadline:
            raise Exhausted(f"more than {MAX_SECONDS:.0f} s")


def check_size(size: int) -> None:
    """Refuse text or lists of more than ``MAX_CHARS``."""
    if size > MAX_CHARS:
        raise Exhausted(f"more than {MAX_CHARS} characters")


class MeteredEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox with a meter; its settings are those that model files are written for.

    Attributes:
        meter: of the rendering under way; give a new one to each.

    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        self.meter = Meter()
        self.filters = {
            **{name: self._metered(name, self.filters[name]) for name in FILTERS},
            "tojson": _to_json,
            "_turns": self._turns,
            "_sized": _sized,
        }
        self.globals = {
            "range": _range,
            "dict": dict,
            "namespace": jinja2.utils.Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree: jinja2.nodes.Template = _AddMeter().visit(super()._parse(source, name, filename))
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Also without the methods that widen text to a given number."""
        widens = isinstance(obj, (str, bytes)) and attr in WIDENING
        return not widens and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """One step."""
        self.meter.step()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            _check_replace(owner, [*args, *kwargs.values()])
        elif isinstance(owner, str) and name == "join" and args:
            args = (_check_join(args[0], [owner]),)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """One step; sums and products within bounds, ``%`` for numbers only."""
        self.meter.step()
        _check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _turns(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.meter.step()
            yield item

    def _metered(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that costs a step and refuses growth; Jinja's marks on it stay."""

        def run(*args: Any, **kwargs: Any) -> Any:
            self.meter.step()
            given = [a for a in args if not isinstance(a, CONTEXTS)]
            rest = [*given[1:], *kwargs.values()]
            if name == "replace":
                _check_replace(str(given[0]), rest)
            elif name == "join":
                own = len(args) - len(given)
                args = (*args[:own], _check_join(given[0], rest), *args[own + 1 :])
            return call(*args, **kwargs)

        run.__dict__.update(getattr(call, "__dict__", {}))
        return run


class GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's words for training; here it is nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _AddMeter(jinja2.visitor.NodeTransformer):
    """Puts the meter on every loop and every concatenation of a parsed template."""

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.For:
        if node.recursive:
            raise jinja2.TemplateSyntaxError("recursive loops are not allowed", node.lineno)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_turns")
        return node

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, "_sized")


def _filtered(node: jinja2.nodes.Node, name: str) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _check_replace(text: str, args: list[Any]) -> None:
    widest = max((len(str(a)) for a in args), default=0)
    check_size(len(text) + (len(text) + 1) * widest)


def _check_join(items: Iterable[Any], args: list[Any]) -> list[Any]:
    """The items, counted."""
    separator = len(str(args[0])) if args else 0
    counted, total = [], 0
    for item in items:
        total += separator + len(str(item))
        check_size(total)
        counted.append(item)
    return counted


def _check_operands(operator: str, left: Any, right: Any) -> None:
    if operator == "%" and not isinstance(left, (int, float)):
        raise Exhausted("% on text is not allowed: join with ~")
    sizes = [len(x) for x in (left, right) if hasattr(x, "__len__")]
    whole = [int(x) for x in (left, right) if isinstance(x, int)]
    if operator == "*" and sizes and whole:
        check_size(sizes[0] * max(whole[0], 0))
    elif operator == "+":
        check_size(sum(sizes))
    elif operator in ("*", "**") and len(whole) == 2:
        bits = [abs(x).bit_length() for x in whole]
        if (sum(bits) if operator == "*" else bits[0] * abs(whole[1])) > MAX_INT_BITS:
            raise Exhausted(f"a number of more than {MAX_INT_BITS} bits")


def _sized(text: str) -> str:
    check_size(len(text))
    return text


def _range(*args: int) -> range:
    numbers = range(*args)
    if numbers[MAX_STEPS:]:
        raise Exhausted(f"a range of more than {MAX_STEPS}")
    return numbers


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """As model files expect it: no HTML escapes."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent and min(indent, 16))
    return _sized(text)


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form[:200])
