"""The single faults that can be planted in a module: each a small change of its syntax tree.

What decides nothing is left alone: docstrings, annotations, decorators, the texts of messages,
exceptions once they are raised, and `strict` of `zip`, which only guards.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, TypeGuard

Change: TypeAlias = tuple[str, ast.AST]
"""A kind of fault, and what stands for the node then."""

Path: TypeAlias = tuple[tuple[str, int | None], ...]
"""The way from a module to a node: fields, and places in those that are lists."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
DROPPED = (ast.Add, ast.Sub, ast.Mod)
"""Operators without whose second operand the first still makes sense."""
OPPOSITES = {
    one: other
    for pair in (("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"))
    for one, other in (pair, pair[::-1])
}
AROUND = 30
"""Letters that are shown of what is the same before and behind a fault."""
TYPING = frozenset({"cast", "TypeVar", "NewType"})


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        kind: What sort of fault it is.
        source: The line that it is in, without the blanks around it.
        old: What stands there.
        new: What would stand there.
        ordinal: How many faults before it have the same four texts.
        line: The number of its line.
        extent: The first and the last line of the statement that it is in; of one with a body,
            those of its head.
        at_import: Whether it is executed when the module is imported, in no function.
        path: The way to the node.
        node: What would stand there, as a tree.
    """

    kind: str
    source: str
    old: str
    new: str
    ordinal: int
    line: int
    extent: tuple[int, int]
    at_import: bool
    path: Path
    node: ast.AST

    @property
    def text(self) -> str:
        """The fault as a person reads it."""
        return f"{self.old}  ->  {self.new}"

    def plant(self, source: str) -> ast.Module:
        """Give the module with this fault."""
        tree = ast.parse(source)
        above: ast.AST = tree
        for field, place in self.path[:-1]:
            above = _at(above, field, place)
        field, place = self.path[-1]
        new = copy.deepcopy(self.node)
        if place is None:
            setattr(above, field, new)
        else:
            getattr(above, field)[place] = new
        return tree


def mutations(source: str) -> list[Mutation]:
    """Find all faults that can be planted in a module."""
    tree = ast.parse(source)
    walk = _Walk(source.splitlines())
    walk.visit(tree, (), (), at_import=True)
    return walk.found


class _Walk:
    """A walk through a tree that notes what can be changed in it."""

    def __init__(self, lines: list[str]) -> None:
        self.found: list[Mutation] = []
        self._lines = lines
        self._seen: Counter[tuple[str, ...]] = Counter()

    def visit(self, node: ast.AST, path: Path, above: tuple[ast.AST, ...], at_import: bool) -> None:
        """Note the faults of a node and of all below it.

        Args:
            node: Where the walk stands.
            path: The way there from the module.
            above: The nodes on that way.
            at_import: Whether the node is executed when the module is imported.
        """
        if _is_left_alone(node):
            return
        for kind, new in _changes(node, above):
            self._note(kind, node, new, path, above, at_import)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for field, place, each in _children(node):
            later = is_function and field == "body"
            self.visit(each, (*path, (field, place)), (*above, node), at_import and not later)

    def _note(
        self,
        kind: str,
        node: ast.AST,
        new: ast.AST,
        path: Path,
        above: tuple[ast.AST, ...],
        at_import: bool,
    ) -> None:
        new = ast.fix_missing_locations(ast.copy_location(copy.copy(new), node))
        line = next(each.lineno for each in (node, *reversed(above)) if hasattr(each, "lineno"))
        old, shown = _shown(node, new, path, above)
        texts = kind, self._lines[line - 1].strip(), old, shown
        extent = _extent((*above, node))
        self.found.append(Mutation(*texts, self._seen[texts], line, extent, at_import, path, new))
        self._seen[texts] += 1


def _at(node: ast.AST, field: str, place: int | None) -> ast.AST:
    found = getattr(node, field)
    child: ast.AST = found if place is None else found[place]
    return child


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            for place, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield field, place, each


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring, or `...`
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in TYPING
        case ast.keyword(arg="strict"):
            return True
    return False


def _extent(nodes: tuple[ast.AST, ...]) -> tuple[int, int]:
    """The lines of the innermost statement; of one with a body, those of its head."""
    statement = next(each for each in reversed(nodes) if isinstance(each, ast.stmt))
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    last = statement.end_lineno or statement.lineno
    if body:
        first = body[0]
        begins: int = first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno
        last = max(statement.lineno, begins - 1)
    return statement.lineno, last


def _shown(node: ast.AST, new: ast.AST, path: Path, above: tuple[ast.AST, ...]) -> tuple[str, str]:
    """Both as texts, of constants with what is around them, cut where they are long and alike."""
    old: ast.AST = node
    if isinstance(node, ast.Constant) and isinstance(above[-1], ast.expr | ast.keyword):
        old, around = above[-1], copy.copy(above[-1])
        field, place = path[-1]
        values = getattr(old, field)
        changed = new if place is None else [*values[:place], new, *values[place + 1 :]]
        setattr(around, field, changed)
        new = around
    before, after = _text(old), _text(new)
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    return _cut(before, head, tail), _cut(after, head, tail)


def _alike(one: str, other: str) -> int:
    """With how many letters both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _cut(text: str, head: int, tail: int) -> str:
    """Shorten what lies before and behind a part of a text, and that part in its middle."""
    first, part, last = text[:head], text[head : len(text) - tail], text[len(text) - tail :]
    first = first if len(first) <= AROUND else "…" + first[-AROUND:]
    last = last if len(last) <= AROUND else last[:AROUND] + "…"
    part = part if len(part) <= 3 * AROUND else f"{part[:AROUND]} … {part[-AROUND:]}"
    return first + part + last


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def _changes(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[Change]:
    """All faults of one node."""
    for operator in _OPERATORS:
        yield from operator(node, above)


def _comparison(node: ast.AST, _: tuple[ast.AST, ...]) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)


def _clause(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[Change]:
    """Each operand of `and`, `or`, `&` and `|` is left out, and each condition of a filter."""
    match node:
        case ast.BoolOp():
            for place in range(len(node.values)):
                rest = [*node.values[:place], *node.values[place + 1 :]]
                yield "clause", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() as operator):
            if _is_chain(above[-1], operator) and above[-1].left is node:
                return
            operands = _operands(node, operator)
            for place in range(len(operands)):
                rest = [*operands[:place], *operands[place + 1 :]]
                yield "clause", reduce(lambda one, other: ast.BinOp(one, operator, other), rest)
        case ast.AugAssign(op=ast.BitAnd() | ast.BitOr()):
            yield "clause", ast.Assign([node.target], node.value)
        case ast.comprehension():
            for place in range(len(node.ifs)):
                rest = [*node.ifs[:place], *node.ifs[place + 1 :]]
                yield "clause", ast.comprehension(node.target, node.iter, rest, node.is_async)


def _is_chain(node: ast.AST, operator: ast.operator) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, type(operator))


def _operands(node: ast.expr, operator: ast.operator) -> list[ast.expr]:
    """Those of `a & b & c`, which is a tree of two and two."""
    if _is_chain(node, operator):
        return [*_operands(node.left, operator), node.right]
    return [node]


def _condition(node: ast.AST, _: tuple[ast.AST, ...]) -> Iterator[Change]:
    """A branch is always taken, never taken, or taken where it must not be."""
    if not isinstance(node, ast.If | ast.While | ast.IfExp):
        return
    tests: list[ast.expr] = []
    if not isinstance(node, ast.While):
        tests += [ast.Constant(True), ast.Constant(False)]
    if not isinstance(node.test, ast.Compare | ast.UnaryOp | ast.BoolOp):
        tests.append(ast.UnaryOp(ast.Not(), node.test))
    for test in tests:
        changed = copy.copy(node)
        changed.test = test
        yield "condition", changed


def _sign(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[Change]:
    """`not`, `~` and `-` are left out; a truth value that is given back is turned round."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield "negation", node.operand
    if isinstance(node, ast.Return) and node.value is not None:
        functions = [each for each in above if isinstance(each, ast.FunctionDef)]
        gives = functions[-1].returns if functions else None
        simple = isinstance(node.value, ast.Constant | ast.Compare | ast.UnaryOp)
        if isinstance(gives, ast.Name) and gives.id == "bool" and not simple:
            yield "negation", ast.Return(ast.UnaryOp(ast.Not(), node.value))


def _arithmetic(node: ast.AST, _: tuple[ast.AST, ...]) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and not (_is_text(node.left) or _is_text(node.right)):
        if other := ARITHMETIC.get(type(node.op)):
            yield "arithmetic", ast.BinOp(node.left, other(), node.right)
        if isinstance(node.op, DROPPED):
            yield "operand", node.left
    if isinstance(node, ast.AugAssign) and (other := ARITHMETIC.get(type(node.op))):
        yield "arithmetic", ast.AugAssign(node.target, other(), node.value)


def _constant(node: ast.AST, _: tuple[ast.AST, ...]) -> Iterator[Change]:
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
            if value:
                yield "constant", ast.Constant(value - 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(2 * value or 1.0)


def _call(node: ast.AST, _: tuple[ast.AST, ...]) -> Iterator[Change]:
    """`min` for `max`, `any` for `all`; one of what they choose from, or a keyword, is left out."""
    if not isinstance(node, ast.Call):
        return
    match node:
        case ast.Call(
            func=ast.Name(id="min" | "max") | ast.Attribute(attr="minimum" | "maximum"),
            args=[one, other],
            keywords=[],
        ):
            yield "clause", one
            yield "clause", other
    match node.func:
        case ast.Name(id=name) if name in OPPOSITES:
            yield (
                "opposite",
                ast.Call(ast.Name(OPPOSITES[name], ast.Load()), node.args, node.keywords),
            )
        case ast.Attribute(value=value, attr=name) if name in OPPOSITES:
            opposite = ast.Attribute(value, OPPOSITES[name], ast.Load())
            yield "opposite", ast.Call(opposite, node.args, node.keywords)
    for place, keyword in enumerate(node.keywords):
        if keyword.arg not in (None, "strict"):
            rest = [*node.keywords[:place], *node.keywords[place + 1 :]]
            yield "argument", ast.Call(node.func, node.args, rest)


def _statement(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[Change]:
    """What changes something is left out; `break` stands for `continue`."""
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign(targets=targets):
            stores = (ast.Attribute, ast.Subscript)
            if any(isinstance(part, stores) for each in targets for part in _parts(each)) and not (
                isinstance(above[-1], ast.FunctionDef) and above[-1].name == "__init__"
            ):
                yield "statement", ast.Pass()
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Continue():
            yield "loop", ast.Break()


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


_OPERATORS: tuple[Callable[[ast.AST, tuple[ast.AST, ...]], Iterator[Change]], ...] = (
    _comparison,
    _clause,
    _condition,
    _sign,
    _arithmetic,
    _constant,
    _call,
    _statement,
)
