"""Single mutations of a Python source: where one can stand, and the source with it.

Left alone is what no test should depend on: annotations, docstrings, the words of errors,
assertions and text in f-strings.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

_OTHER = {
    "Lt": ast.LtE, "LtE": ast.Lt, "Gt": ast.GtE, "GtE": ast.Gt, "Eq": ast.NotEq, "NotEq": ast.Eq,
    "Is": ast.IsNot, "IsNot": ast.Is, "In": ast.NotIn, "NotIn": ast.In, "And": ast.Or,
    "Or": ast.And, "Add": ast.Sub, "Sub": ast.Add, "Mult": ast.Div, "Div": ast.Mult,
    "FloorDiv": ast.Mult, "Mod": ast.FloorDiv, "Pow": ast.Mult, "LShift": ast.RShift,
    "RShift": ast.LShift, "BitAnd": ast.BitOr, "BitOr": ast.BitAnd, "BitXor": ast.BitAnd,
    "MatMult": ast.Mult,
}  # fmt: skip
_NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}
# Calls that mean the same, or nothing, with their arguments swapped.
_SYMMETRIC = {
    *_NAMES, "isinstance", "issubclass", "hasattr", "getattr", "cast", "zip", "maximum", "minimum",
    "gcd", "isclose",
}  # fmt: skip
_NEVER = {"annotation", "returns", "decorator_list", "type_params"}  # fields of nodes


class Mutation(NamedTuple):
    """The change of that number in a source, and the lines of which a test must run one."""

    path: str
    number: int
    line: int
    lines: tuple[int, int]
    before: str
    after: str

    @property
    def name(self) -> str:
        """Tells it from every other one; changes when what stands before it moves it."""
        return hashlib.sha256("\0".join(map(str, self)).encode()).hexdigest()[:12]


def mutations(path: str, source: str) -> list[Mutation]:
    """Return all of a source."""
    return [
        Mutation(path, number, node.lineno, lines, _short(node), _short(other))
        for number, (node, other, lines, _) in enumerate(_changes(ast.parse(source)))
    ]


def mutated(source: str, number: int) -> str:
    """Return a source with one of its mutations; comments are lost."""
    tree = ast.parse(source)
    for at, (_, other, _, put) in enumerate(_changes(tree)):
        if at == number:
            put(other)
            return ast.unparse(ast.fix_missing_locations(tree))
    raise IndexError(number)


Change = tuple[ast.expr | ast.stmt, ast.AST, tuple[int, int], Callable[[ast.AST], None]]


def _changes(
    node: ast.AST, lines: tuple[int, int] = (1, 1 << 30), inside: bool = False
) -> Iterator[Change]:
    """Yield nodes, what may take their place, the lines to run, and what puts it there."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if field in _NEVER or not isinstance(child, ast.AST) or _left_alone(child):
                continue
            reach, within = lines, inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                # Defaults are made once, at import: a test that calls the function notices.
                reach, within = (child.body[0].lineno, child.end_lineno or child.lineno), True
            elif isinstance(child, ast.stmt) and inside:
                body = getattr(child, "body", None)
                last = max(child.lineno, body[0].lineno - 1) if body else child.end_lineno
                reach = (child.lineno, last or child.lineno)

            if isinstance(child, ast.expr | ast.stmt):
                put = partial(setattr, node, field)
                if isinstance(value, list):
                    put = partial(value.__setitem__, index)
                is_test = field == "test" and isinstance(node, ast.If | ast.IfExp)
                yield from ((child, other, reach, put) for other in _others(child, is_test))
            if not isinstance(child, ast.Raise | ast.Delete):
                yield from _changes(child, reach, within)


def _left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant()) | ast.If(ast.Name("TYPE_CHECKING")):
            return True
        case _:
            return isinstance(node, ast.Assert | ast.JoinedStr)


def _others(node: ast.AST, is_test: bool) -> Iterator[ast.AST]:  # noqa: C901
    if is_test and not isinstance(node, ast.UnaryOp | ast.Compare):  # else mutated as such
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.Compare(left, ops, rights):
            for at, op in enumerate(ops):
                yield ast.Compare(left, [*ops[:at], _other(op), *ops[at + 1 :]], rights)
        case ast.BinOp(left, op, right) if not (_is_text(left) or _is_text(right)):
            yield ast.BinOp(left, _other(op), right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(_other(op), values)
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield ast.Constant(2 * value or 1.0)
        case ast.Call(ast.Name(name), values, more) if name in _NAMES:
            yield ast.Call(ast.Name(_NAMES[name]), values, more)
        case ast.Call(called, [first, second, *rest], more):
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            name = ast.unparse(called).rpartition(".")[2]
            if name not in _SYMMETRIC and not starred and _short(first) != _short(second):
                yield ast.Call(called, [second, first, *rest], more)
        case ast.Break() | ast.Continue():
            yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
        case ast.Assign([ast.Name() | ast.Tuple()]) | ast.Expr(ast.Yield() | ast.YieldFrom()):
            return  # without it the next line would fail
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Delete() | ast.Raise(ast.expr()):
            yield ast.Pass()


def _other(op: ast.AST) -> ast.AST:
    return _OTHER[type(op).__name__]()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str | bytes)


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:60]
