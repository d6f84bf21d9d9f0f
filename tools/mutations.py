"""Single mutations of a Python source: where one can stand, and the source with it.

Left alone is what no test should depend on: annotations, docstrings, the words of errors,
assertions that help a type checker, and text in f-strings.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

_ALWAYS = 1 << 30
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_NAMES = {"all": "any", "any": "all", "min": "max", "max": "min"}
# Calls that mean the same, or nothing, with their arguments swapped.
_SYMMETRIC = {*_NAMES, "isinstance", "issubclass", "hasattr", "getattr", "cast", "zip"} | {
    "maximum",
    "minimum",
    "gcd",
    "isclose",
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one source.

    Attributes:
        path: of the source, as it was given.
        start, stop: the bytes that are replaced.
        line: where they begin.
        lines: the first and the last line that a test must run to notice.
        operator: what kind of change.
        before, after: the two texts.

    """

    path: str
    start: int
    stop: int
    line: int
    lines: tuple[int, int]
    operator: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """Tells it from every other one; changes when what stands before it moves it."""
        text = "\0".join([self.path, str(self.start), self.operator, self.before, self.after])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def apply(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.after.encode() + source[self.stop :]


def mutations(path: str, source: bytes) -> list[Mutation]:
    """All of them, in the order of the source."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda m: (m.start, m.stop, m.operator, m.after))


class _Finder(ast.NodeVisitor):
    """Visits what may be mutated and collects the changes."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        # Lines of the innermost statement inside a function; the whole file outside of any.
        self._lines = (1, _ALWAYS)
        self._inside = False

    # -- what holds statements ----------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self._lines, self._inside
        # Defaults are made once, at import: a test that calls the function notices.
        self._lines = (node.body[0].lineno, node.end_lineno or node.lineno)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._inside = True
        for statement in node.body:
            self.visit(statement)
        self._lines, self._inside = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before = self._lines, self._inside
        self._lines, self._inside = (1, _ALWAYS), False
        for statement in node.body:
            self.visit(statement)
        self._lines, self._inside = before

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt) and self._inside:
            before, self._lines = self._lines, _header(node)
            super().visit(node)
            self._lines = before
        else:
            super().visit(node)

    # -- statements ---------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring, or an ellipsis
        if not isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Await):
            self._add(node, "dropped statement", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._inside and not any(isinstance(t, ast.Name | ast.Tuple) for t in node.targets):
            self._add(node, "dropped statement", "pass")
        if not any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "dropped statement", "pass")
        other = _OPERATORS.get(type(node.op))
        if other is not None and not _text(node.value):
            changed = ast.AugAssign(node.target, other(), node.value)
            self._add(node, "operator", ast.unparse(changed))
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add(node, "dropped statement", "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self._add(node, "dropped statement", "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "loop", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "loop", "break")

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    # -- expressions --------------------------------------------------------------------------

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, op in enumerate(node.ops):
            ops = [*node.ops[:place], _COMPARISONS[type(op)](), *node.ops[place + 1 :]]
            self._replace(node, "comparison", ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _OPERATORS.get(type(node.op))
        if other is not None and not _text(node.left) and not _text(node.right):
            self._replace(node, "operator", ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, "boolean", ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._replace(node, "sign", node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, "constant", ast.Constant(not value))
        elif isinstance(value, int):
            self._replace(node, "constant", ast.Constant(value + 1))
        elif isinstance(value, float):
            self._replace(node, "constant", ast.Constant(2 * value if value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", None)
        if isinstance(called, ast.Name) and name in _NAMES:
            other = ast.Name(_NAMES[name])
            self._replace(node, "built-in", ast.Call(other, node.args, node.keywords))
        first, second = (*node.args[:2], None, None)[:2]
        if first is not None and second is not None and name not in _SYMMETRIC:
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            if not starred and ast.unparse(first) != ast.unparse(second):
                args = [second, first, *node.args[2:]]
                self._replace(node, "swapped arguments", ast.Call(node.func, args, node.keywords))
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    # -- helpers ------------------------------------------------------------------------------

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.UnaryOp | ast.Compare):  # mutated as such
            self._replace(test, "negated", ast.UnaryOp(ast.Not(), test))

    def _replace(self, node: ast.expr, operator: str, other: ast.expr) -> None:
        self._add(node, operator, f"({ast.unparse(ast.fix_missing_locations(other))})")

    def _add(self, node: ast.stmt | ast.expr, operator: str, after: str) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        stop = self._starts[node.end_lineno - 1] + node.end_col_offset
        before = self._source[start:stop].decode()
        made = Mutation(self._path, start, stop, node.lineno, self._lines, operator, before, after)
        self.found.append(made)


def _header(node: ast.stmt) -> tuple[int, int]:
    """Lines of a statement, without those of the block that it holds."""
    last = node.end_lineno or node.lineno
    bodies: Iterator[list[ast.stmt]] = (
        getattr(node, name) for name in ("body", "cases") if hasattr(node, name)
    )
    for body in bodies:
        last = min(last, max(node.lineno, body[0].lineno - 1))
    return node.lineno, last


def _text(node: ast.expr) -> bool:
    """Return whether it is text, which has no other operators."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
