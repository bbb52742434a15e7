"""The mutation operators: small changes of a module's syntax tree, each a single fault.

Code that cannot change a result is left out: docstrings, annotations, decorators, message texts,
`raise` statements, the `strict` argument of `zip`, and -1 in `reshape`.
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
"""The kind of a fault, and the replacement of the node."""

Path: TypeAlias = tuple[tuple[str, int | None], ...]
"""The path from a module to a node: field names, with an index where a field is a list."""

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
"""Operators whose second operand is left out in a fault."""
OPPOSITES = {
    name: opposite
    for pair in (("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"))
    for name, opposite in (pair, pair[::-1])
}
CONTEXT_LETTERS = 30
"""Letters shown of the unchanged text before and after a fault."""
TYPING = frozenset({"cast", "TypeVar", "NewType"})


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Attributes:
        kind: The kind of the fault.
        source: The source line, without leading and trailing blanks.
        old: The text that the fault replaces.
        new: The replacement.
        ordinal: The number of earlier faults with the same four texts.
        line: The line number.
        extent: The first and last line of the enclosing statement; of a statement with a body,
            those of its head.
        at_import: Whether the code runs at import, outside any function.
        path: The path to the node.
        node: The replacement as a tree.
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
        """The fault as the report prints it."""
        return f"{self.old}  ->  {self.new}"

    def plant(self, source: str) -> ast.Module:
        """The syntax tree of a module's source with this fault."""
        tree = ast.parse(source)
        parent: ast.AST = tree
        for field, index in self.path[:-1]:
            parent = _child(parent, field, index)
        field, index = self.path[-1]
        new = copy.deepcopy(self.node)
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new
        return tree


def mutations(source: str) -> list[Mutation]:
    """All faults that can be planted in a module's source."""
    tree = ast.parse(source)
    walk = _Walk(source.splitlines())
    walk.visit(tree, (), (), at_import=True)
    return walk.found


class _Walk:
    """A walk through a syntax tree that collects its faults."""

    def __init__(self, lines: list[str]) -> None:
        self.found: list[Mutation] = []
        self._lines = lines
        self._seen: Counter[tuple[str, ...]] = Counter()

    def visit(self, node: ast.AST, path: Path, above: tuple[ast.AST, ...], at_import: bool) -> None:
        """Collect the faults of a node and of its descendants.

        Args:
            node: The current node.
            path: The path from the module to the node.
            above: The node's ancestors, outermost first.
            at_import: Whether the node runs at import.
        """
        if _is_excluded(node, above):
            return
        for kind, new in _changes(node, above):
            self._add(kind, node, new, path, above, at_import)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for field, index, child in _children(node):
            deferred = is_function and field == "body"
            self.visit(child, (*path, (field, index)), (*above, node), at_import and not deferred)

    def _add(
        self,
        kind: str,
        node: ast.AST,
        new: ast.AST,
        path: Path,
        above: tuple[ast.AST, ...],
        at_import: bool,
    ) -> None:
        new = ast.fix_missing_locations(ast.copy_location(copy.copy(new), node))
        line = next(at.lineno for at in (node, *reversed(above)) if hasattr(at, "lineno"))
        old, shown = _shown(node, new, path, above)
        texts = kind, self._lines[line - 1].strip(), old, shown
        extent = _extent((*above, node))
        self.found.append(Mutation(*texts, self._seen[texts], line, extent, at_import, path, new))
        self._seen[texts] += 1


def _child(node: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(node, field)
    child: ast.AST = value if index is None else value[index]
    return child


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield field, index, child


def _is_reshape(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "reshape"


def _is_excluded(node: ast.AST, above: tuple[ast.AST, ...]) -> bool:
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
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            # NumPy reads any negative number as "as many as there are".
            return isinstance(above[-1], ast.Call) and _is_reshape(above[-1])
    return False


def _extent(nodes: tuple[ast.AST, ...]) -> tuple[int, int]:
    """First and last line of the innermost statement; of one with a body, those of its head."""
    statement = next(node for node in reversed(nodes) if isinstance(node, ast.stmt))
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    last = statement.end_lineno or statement.lineno
    if body:
        first = body[0]
        begins: int = first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno
        last = max(statement.lineno, begins - 1)
    return statement.lineno, last


def _shown(node: ast.AST, new: ast.AST, path: Path, above: tuple[ast.AST, ...]) -> tuple[str, str]:
    """The old and the new text: constants with their parent, long common parts shortened."""
    old: ast.AST = node
    if isinstance(node, ast.Constant) and isinstance(above[-1], ast.expr | ast.keyword):
        old, around = above[-1], copy.copy(above[-1])
        field, index = path[-1]
        values = getattr(old, field)
        changed = new if index is None else [*values[:index], new, *values[index + 1 :]]
        setattr(around, field, changed)
        new = around
    before, after = _text(old), _text(new)
    head = _common_prefix(before, after)
    tail = _common_prefix(before[head:][::-1], after[head:][::-1])
    return _cut(before, head, tail), _cut(after, head, tail)


def _common_prefix(first: str, second: str) -> int:
    """The number of letters with which both texts begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _cut(text: str, head: int, tail: int) -> str:
    """Shorten a text of which `head` and `tail` letters at the ends are unchanged."""
    first, part, last = text[:head], text[head : len(text) - tail], text[len(text) - tail :]
    first = first if len(first) <= CONTEXT_LETTERS else "…" + first[-CONTEXT_LETTERS:]
    last = last if len(last) <= CONTEXT_LETTERS else last[:CONTEXT_LETTERS] + "…"
    part = (
        part
        if len(part) <= 3 * CONTEXT_LETTERS
        else f"{part[:CONTEXT_LETTERS]} … {part[-CONTEXT_LETTERS:]}"
    )
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
        for index, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                yield "comparison", ast.Compare(node.left, ops, node.comparators)


def _clause(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[Change]:
    """Leave out an operand of `and`, `or`, `&` or `|`, or a condition of a comprehension."""
    match node:
        case ast.BoolOp():
            for index in range(len(node.values)):
                rest = [*node.values[:index], *node.values[index + 1 :]]
                yield "clause", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() as operator):
            if _is_chain(above[-1], operator) and above[-1].left is node:
                return
            operands = _operands(node, operator)
            for index in range(len(operands)):
                rest = [*operands[:index], *operands[index + 1 :]]
                yield "clause", reduce(lambda left, right: ast.BinOp(left, operator, right), rest)
        case ast.AugAssign(op=ast.BitAnd() | ast.BitOr()):
            yield "clause", ast.Assign([node.target], node.value)
        case ast.comprehension():
            for index in range(len(node.ifs)):
                rest = [*node.ifs[:index], *node.ifs[index + 1 :]]
                yield "clause", ast.comprehension(node.target, node.iter, rest, node.is_async)


def _is_chain(node: ast.AST, operator: ast.operator) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, type(operator))


def _operands(node: ast.expr, operator: ast.operator) -> list[ast.expr]:
    """The operands of a chain such as `a & b & c`."""
    if _is_chain(node, operator):
        return [*_operands(node.left, operator), node.right]
    return [node]


def _condition(node: ast.AST, _: tuple[ast.AST, ...]) -> Iterator[Change]:
    """Take a branch always, never, or on the opposite condition."""
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
    """Leave out `not`, `~` or `-`; negate a returned truth value."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield "negation", node.operand
    if isinstance(node, ast.Return) and node.value is not None:
        functions = [node for node in above if isinstance(node, ast.FunctionDef)]
        result = functions[-1].returns if functions else None
        simple = isinstance(node.value, ast.Constant | ast.Compare | ast.UnaryOp)
        if isinstance(result, ast.Name) and result.id == "bool" and not simple:
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
    """Exchange `min` and `max`, `any` and `all`; leave out an argument of them, or a keyword."""
    if not isinstance(node, ast.Call):
        return
    match node:
        case ast.Call(
            func=ast.Name(id="min" | "max") | ast.Attribute(attr="minimum" | "maximum"),
            args=[first, second],
            keywords=[],
        ):
            yield "clause", first
            yield "clause", second
    match node.func:
        case ast.Name(id=name) if name in OPPOSITES:
            yield (
                "opposite",
                ast.Call(ast.Name(OPPOSITES[name], ast.Load()), node.args, node.keywords),
            )
        case ast.Attribute(value=value, attr=name) if name in OPPOSITES:
            opposite = ast.Attribute(value, OPPOSITES[name], ast.Load())
            yield "opposite", ast.Call(opposite, node.args, node.keywords)
    for index, keyword in enumerate(node.keywords):
        if keyword.arg not in (None, "strict"):
            rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
            yield "argument", ast.Call(node.func, node.args, rest)


def _statement(node: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[Change]:
    """Leave out a statement with an effect; exchange `break` and `continue`."""
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign(targets=targets):
            stores = (ast.Attribute, ast.Subscript)
            if any(
                isinstance(part, stores) for target in targets for part in _parts(target)
            ) and not (isinstance(above[-1], ast.FunctionDef) and above[-1].name == "__init__"):
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
