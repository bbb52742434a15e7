"""Functions of the runtime: written in a subset of Python, compiled to machine code by LLVM.

`@compiled` marks such a function. Its numbers are signed integers of 64 bits, or doubles; memory
may hold narrower ones, which are extended when they are read and cut when they are written. It has:

- arguments, results and local variables: numbers, pointers, records, and `Value`s of many lanes;
- `if`, `while`, `for` over `range(...)` and `set_bits(...)`, `break`, `continue`, `return`;
- arithmetic, comparisons, `and`, `or`, `not`, conditional expressions; `a // b` and `a % b` of
  numbers that are not negative;
- records: `site.offset`, `site.offset = 4`; pointers: `words[i]`, `words[i] |= mask`, `words + i`,
  `if pointer:` for one that is not null;
- calls of other compiled functions.

Everything else is done by Python while the function is compiled: calls of ordinary functions, which
write code from `Value`s, `if` with a condition that Python knows, `for` over a tuple, and the names
of the module or function around it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial, reduce
from types import CodeType
from typing import Any, Generic, TypeVar, overload

from llvmlite import ir

from memlab.device.emulator.codegen.records import (
    NUMBER,
    Item,
    Nested,
    Number,
    Pointer,
    PointerTo,
    Reference,
    builder,
    building,
    item_of,
    raw_value,
    seen,
    stack_room,
    type_of,
)
from memlab.device.emulator.isa.values import F64, PRED, S64, Value, maximum, minimum

F = TypeVar("F", bound=Callable[..., Any])
_I64 = ir.IntType(64)


def _is_among(value: Any, others: Any) -> Any:
    if not any(isinstance(one, Value) for one in (value, *others)):
        return value in others
    return reduce(operator.or_, (value == other for other in others))


def _divided(name: str, operate: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if not isinstance(a, Value):
        if not isinstance(b, Value):
            return operate(a, b)
        a = b.like(a)
    return Value(a.builder, getattr(a.builder, name)(a.ir, a.like(b).ir), a.type)


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: partial(_divided, "udiv", operator.floordiv),
    ast.Mod: partial(_divided, "urem", operator.mod),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: _is_among,
}


_OF_TRUTHS = ast.BitAnd | ast.BitOr | ast.BitXor | ast.Eq | ast.NotEq  # these need no numbers


def set_bits(bits: int) -> Iterator[int]:
    """The places of the set bits of a number, lowest first, for a `for`."""
    raise NotImplementedError("only compiled functions can loop over bits")


def unlikely(condition: Any) -> bool:
    """A condition of an `if` for which the compiler lays out code as mostly false."""
    raise NotImplementedError("only compiled functions have likely conditions")


@dataclass(frozen=True)
class Compiled(Generic[F]):
    """A function that is compiled.

    Attributes:
        function: The Python function.
        name: The name of its machine code.
        exported: Whether Python or the code of programs calls it.
        seldom: Whether it is called in uncommon cases only. It is then not inlined, and keeps the
            caller's registers, so that the common case need not save them.
        inline: Whether it is inlined into its callers; None where LLVM decides.
    """

    function: F
    name: str
    exported: bool
    seldom: bool
    inline: bool | None

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def signature(self) -> tuple[dict[str, Item], Item]:
        """The items of the arguments and of the result."""
        hints = inspect.get_annotations(self.function, eval_str=True)
        result = item_of(hints.pop("return"))
        return {name: item_of(hint) for name, hint in hints.items()}, result

    @property
    def type(self) -> ir.FunctionType:
        """The type of its machine code."""
        arguments, result = self.signature
        return ir.FunctionType(type_of(result), list(map(type_of, arguments.values())))

    def declared(self, module: ir.Module) -> ir.Function:
        """The function in a module; where it is new there, with all that it calls."""
        known = module.globals.get(self.name)
        if known is not None:
            return known
        function = ir.Function(module, self.type, self.name)
        function.attributes.add("nounwind")
        if not self.exported:
            function.linkage = "internal"
        if self.seldom:
            function.calling_convention = "preserve_mostcc"
        if self.seldom or self.inline is not None:
            function.attributes.add("alwaysinline" if self.inline else "noinline")
        _Writer(self, function).write()
        return function


@overload
def compiled(function: F) -> F: ...
@overload
def compiled(
    *, name: str = "", exported: bool = False, seldom: bool = False, inline: bool | None = None
) -> Callable[[F], F]: ...
def compiled(
    function: Any = None,
    *,
    name: str = "",
    exported: bool = False,
    seldom: bool = False,
    inline: bool | None = None,
) -> Any:
    """Mark a function as compiled: see the module and `Compiled`."""
    if function is None:
        return partial(compiled, name=name, exported=exported, seldom=seldom, inline=inline)
    return Compiled(function, name or function.__name__, exported, seldom, inline)


class _Writer:
    """Writes the code of a function."""

    def __init__(self, compiled: Compiled[Any], function: ir.Function) -> None:
        self._function, self._compiled = function, compiled
        python = compiled.function
        self._tree = _parsed(python.__code__)
        closure = zip(python.__code__.co_freevars, python.__closure__ or (), strict=True)
        self._outer = {
            **vars(builtins),
            **python.__globals__,
            **{name: cell.cell_contents for name, cell in closure},
            "min": minimum,
            "max": maximum,
            "float": lambda value: value.to(F64),
        }
        self._b = ir.IRBuilder(function.append_basic_block("entry"))
        self._often = _names_assigned_often(self._tree)
        self._names: dict[str, Any] = {}
        self._loops: list[tuple[ir.Block, ir.Block]] = []  # where `continue` and `break` go

    def write(self) -> None:
        """Write the whole function."""
        arguments, self._result = self._compiled.signature
        with building(self._b):
            # Variables live in memory at first, in a block before the first one; LLVM then keeps
            # them in registers.
            start = self._b.append_basic_block("start")
            self._b.position_at_end(start)
            for (name, item), raw in zip(arguments.items(), self._function.args, strict=True):
                raw.name = name
                self._assign_name(name, seen(item, raw))
            if self._statements(self._tree.body):
                if self._result is not None:
                    raise self._error(self._tree, "the end is reached without a result")
                self._b.ret_void()
            self._b.position_at_end(self._function.entry_basic_block)
            self._b.branch(start)

    def _error(self, node: ast.AST, problem: str) -> SyntaxError:
        line = getattr(node, "lineno", 0)
        return SyntaxError(f"{self._compiled.name}, its line {line}: {problem}")

    # --- Statements ------------------------------------------------------------------------------

    def _statements(self, body: Sequence[ast.stmt]) -> bool:
        """Write statements; returns whether control reaches what lies behind them."""
        for place, statement in enumerate(body, 1):
            try:
                goes_on = self._statement(statement)
            except (TypeError, AttributeError) as problem:
                raise self._error(statement, str(problem)) from problem
            if not goes_on:
                if body[place:]:
                    raise self._error(body[place], "this is never reached")
                return False
        return True

    def _statement(self, node: ast.stmt) -> bool:
        """Write a statement; returns whether control reaches what lies behind it."""
        match node:
            case ast.Expr():
                self._value(node.value)
            case ast.Assign():
                value = self._value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, self._value(node.value))
            case ast.AugAssign():
                self._change(node)
            case ast.For():
                self._for(node)
            case ast.If():
                return self._if(node)
            case ast.While():
                return self._while(node)
            case ast.Return():
                return self._return(node)
            case ast.Break() | ast.Continue():
                self._b.branch(self._loops[-1][isinstance(node, ast.Break)])
                return False
            case _:
                raise self._error(node, f"{type(node).__name__} cannot be compiled")
        return True

    def _change(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            before = self._names[target.id].read()
            self._assign_name(target.id, _operate(node.op, before, self._value(node.value)))
        elif isinstance(target, ast.Attribute):
            record = self._value(target.value)
            changed = _operate(node.op, getattr(record, target.attr), self._value(node.value))
            setattr(record, target.attr, changed)
        else:
            array, index = self._value(target.value), self._value(target.slice)
            array[index] = _operate(node.op, array[index], self._value(node.value))

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self._assign_name(target.id, value)
            case ast.Attribute():
                setattr(self._value(target.value), target.attr, value)
            case ast.Subscript():
                self._value(target.value)[self._value(target.slice)] = value
            case ast.Tuple():
                for part, one in zip(target.elts, value, strict=True):
                    self._assign(part, one)
            case _:
                raise self._error(target, "this cannot be assigned to")

    def _assign_name(self, name: str, value: Any) -> None:
        if name not in self._often:
            self._names[name] = value
            return
        if name not in self._names:
            self._names[name] = _Variable(value)
        self._names[name].write(value)

    def _return(self, node: ast.Return) -> bool:
        if node.value is None or self._result is None:
            if node.value is not None:
                self._value(node.value)
            self._b.ret_void()
        else:
            self._b.ret(raw_value(self._result, self._value(node.value)))
        return False

    def _if(self, node: ast.If) -> bool:
        test = node.test
        rare = isinstance(test, ast.Call) and self._is_builtin(test.func, unlikely)
        condition = self._value(test.args[0] if rare else test)  # type: ignore[attr-defined]
        if not isinstance(condition, Value | Pointer):
            return self._statements(node.body if condition else node.orelse)
        then, otherwise = self._block("then"), self._block("otherwise")
        branch = self._b.cbranch(_truth(condition), then, otherwise)
        if rare:
            branch.set_weights([1, 99])
        self._b.position_at_end(then)
        reaches = self._statements(node.body)
        if not node.orelse:
            if reaches:
                self._b.branch(otherwise)
            self._b.position_at_end(otherwise)
            return True
        last = self._b.block
        self._b.position_at_end(otherwise)
        also_reaches = self._statements(node.orelse)
        if not (reaches or also_reaches):
            return False
        end = self._block("end")
        if also_reaches:
            self._b.branch(end)
        if reaches:
            self._b.position_at_end(last)
            self._b.branch(end)
        self._b.position_at_end(end)
        return True

    def _while(self, node: ast.While) -> bool:
        head, body, end = self._block("head"), self._block("body"), self._block("end")
        self._b.branch(head)
        self._b.position_at_end(head)
        condition = self._value(node.test)
        forever = not isinstance(condition, Value | Pointer) and bool(condition)
        if forever:
            self._b.branch(body)
        else:
            self._b.cbranch(_truth(condition), body, end)
        self._b.position_at_end(body)
        self._loop_body(node.body, head, end)
        self._b.position_at_end(end)
        if forever and not any(isinstance(part, ast.Break) for part in ast.walk(node)):
            self._b.unreachable()
            return False
        return True

    def _for(self, node: ast.For) -> None:
        loop = node.iter
        if isinstance(loop, ast.Call) and self._is_builtin(loop.func, range):
            self._for_range(node, [self._value(argument) for argument in loop.args])
        elif isinstance(loop, ast.Call) and self._is_builtin(loop.func, set_bits):
            self._for_bits(node, self._value(loop.args[0]))
        else:
            for value in self._value(loop):
                self._assign(node.target, value)
                self._statements(node.body)

    def _for_range(self, node: ast.For, bounds: Sequence[Any]) -> None:
        first, last = bounds if len(bounds) == 2 else (0, *bounds)
        start, stop = raw_value(NUMBER, first), raw_value(NUMBER, last)
        self._loop(
            node,
            start,
            goes_on=lambda index: self._b.icmp_signed("<", index, stop),
            shown=lambda index: index,
            following=lambda index: self._b.add(index, _I64(1), flags=["nsw"]),
        )

    def _for_bits(self, node: ast.For, bits: Value) -> None:
        b, one = self._b, ir.IntType(1)(1)
        self._loop(
            node,
            bits.ir,
            goes_on=lambda left: b.icmp_signed("!=", left, left.type(0)),
            shown=lambda left: b.cttz(left, one),
            following=lambda left: b.and_(left, b.sub(left, left.type(1))),
        )

    def _loop(
        self,
        node: ast.For,
        start: ir.Value,
        goes_on: Callable[[ir.Value], ir.Value],
        shown: Callable[[ir.Value], ir.Value],
        following: Callable[[ir.Value], ir.Value],
    ) -> None:
        b, before = self._b, self._b.block
        head, body, latch, end = map(self._block, ("head", "body", "latch", "end"))
        b.branch(head)
        b.position_at_end(head)
        state = b.phi(start.type)
        state.add_incoming(start, before)
        b.cbranch(goes_on(state), body, end)
        b.position_at_end(body)
        self._assign(node.target, seen(NUMBER, shown(state)))
        self._loop_body(node.body, latch, end)
        b.position_at_end(latch)
        state.add_incoming(following(state), latch)
        b.branch(head)
        b.position_at_end(end)

    def _loop_body(self, body: Sequence[ast.stmt], latch: ir.Block, end: ir.Block) -> None:
        self._loops.append((latch, end))
        if self._statements(body):
            self._b.branch(latch)
        self._loops.pop()

    def _block(self, name: str) -> ir.Block:
        return self._function.append_basic_block(name)

    # --- Expressions -----------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Any:
        """What an expression stands for: a value of the machine code, or any object of Python."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._named(node)
            case ast.Attribute():
                return getattr(self._value(node.value), node.attr)
            case ast.Subscript():
                return self._value(node.value)[self._value(node.slice)]
            case ast.Tuple():
                return tuple(map(self._value, node.elts))
            case ast.BinOp():
                left, right = self._value(node.left), self._value(node.right)
                return _operate(node.op, left, right)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self._short_circuit(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Call():
                return self._called(node)
        # The rest, such as a lambda, is Python's: it sees the values of all names.
        source = compile(ast.fix_missing_locations(ast.Expression(node)), "<compiled>", "eval")
        known = {name: _read(value) for name, value in self._names.items()}
        return eval(source, {**self._outer, **known})

    def _named(self, node: ast.Name) -> Any:
        if node.id in self._names:
            return _read(self._names[node.id])
        if node.id not in self._outer:
            raise self._error(node, f"{node.id} is not known")
        return self._outer[node.id]

    def _unary(self, node: ast.UnaryOp) -> Any:
        operand = self._value(node.operand)
        if isinstance(node.op, ast.USub):
            return -operand
        if isinstance(node.op, ast.Invert):
            return ~operand
        if not isinstance(operand, Value | Pointer):
            return not operand
        return Value(self._b, self._b.not_(_truth(operand)), PRED)

    def _short_circuit(self, node: ast.BoolOp) -> Any:
        """`and`, `or`: what comes later is evaluated only where it decides."""
        ends = isinstance(node.op, ast.Or)
        first, *others = node.values
        value = self._value(first)
        if not others:
            return value
        rest = ast.BoolOp(node.op, others)
        if not isinstance(value, Value | Pointer):
            return value if bool(value) == ends else self._short_circuit(rest)
        condition = Value(self._b, _truth(value), PRED)
        known = _Variable(condition)
        known.write(condition)
        more, end = self._block("more"), self._block("end")
        self._b.cbranch(condition.ir, *((end, more) if ends else (more, end)))
        self._b.position_at_end(more)
        later = self._short_circuit(rest)
        is_value = isinstance(later, Value | Pointer)
        known.write(Value(self._b, _truth(later), PRED) if is_value else bool(later))
        self._b.branch(end)
        self._b.position_at_end(end)
        return known.read()

    def _comparison(self, node: ast.Compare) -> Any:
        left, result = self._value(node.left), None
        for relation, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other)
            holds = _operate(relation, left, right)
            result = holds if result is None else result & holds
            left = right
        return result

    def _choice(self, node: ast.IfExp) -> Any:
        """A conditional expression: only one side is evaluated."""
        condition = self._value(node.test)
        if not isinstance(condition, Value | Pointer):
            return self._value(node.body if condition else node.orelse)
        then, otherwise, end = map(self._block, ("then", "otherwise", "end"))
        self._b.cbranch(_truth(condition), then, otherwise)
        variable = None
        for block, side in ((then, node.body), (otherwise, node.orelse)):
            self._b.position_at_end(block)
            value = self._value(side)
            variable = variable or _Variable(value)
            variable.write(value)
            self._b.branch(end)
        self._b.position_at_end(end)
        assert variable is not None
        return variable.read()

    def _called(self, node: ast.Call) -> Any:
        function = self._value(node.func)
        arguments = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments += self._value(argument.value)
            else:
                arguments.append(self._value(argument))
        if not isinstance(function, Compiled):
            named = {word.arg: self._value(word.value) for word in node.keywords if word.arg}
            return function(*arguments, **named)
        kinds, result = function.signature
        if len(kinds) != len(arguments) or node.keywords:
            raise self._error(node, f"{function.name} takes {len(kinds)} arguments in order")
        raw = [
            raw_value(item, value) for item, value in zip(kinds.values(), arguments, strict=True)
        ]
        returned = self._b.call(function.declared(self._function.module), raw)
        return seen(result, returned)

    def _is_builtin(self, node: ast.expr, function: Any) -> bool:
        return isinstance(node, ast.Name) and self._outer.get(node.id) is function


class _Variable:
    """A variable of a function, in memory."""

    def __init__(self, first: Any) -> None:
        """Make room for values like the first one."""
        match first:
            case bool() | int():
                self._item: Item = NUMBER
            case float():
                self._item = Number(F64)
            case Value():
                self._item = Number(first.type, first.lanes)
            case Pointer():
                self._item = PointerTo(first.target)
            case Reference():
                self._item = Nested(first._record)
            case _:
                raise TypeError(f"{first!r} cannot change while the function runs")
        self._place = stack_room(type_of(self._item))

    def read(self) -> Any:
        return seen(self._item, builder().load(self._place, typ=type_of(self._item)))

    def write(self, value: Any) -> None:
        builder().store(raw_value(self._item, value), self._place)


def _read(value: Any) -> Any:
    return value.read() if isinstance(value, _Variable) else value


def _truth(value: Any) -> ir.Value:
    """Whether a number is not 0, or a pointer is not null."""
    tested: Any = value.address if isinstance(value, Pointer) else value
    return tested.ir if tested.type == PRED else (tested != 0).ir


def _operate(operation: ast.AST, left: Any, right: Any) -> Any:
    """Combine two operands; a truth counts as a number, as in Python, unless both are truths."""
    if isinstance(right, Value) and isinstance(left, bool | int | float):
        left = right.like(left)
    both = isinstance(left, Value) and isinstance(right, Value)
    if both and (left.type != right.type or not isinstance(operation, _OF_TRUTHS)):
        left, right = _as_number(left), _as_number(right)
    return _OPERATORS[type(operation)](left, right)


def _as_number(value: Value) -> Value:
    return value.to(S64) if value.type == PRED and not value.lanes else value


@cache
def _parsed(code: CodeType) -> ast.FunctionDef:
    """The syntax tree of a function; those that one place makes several times share it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


def _names_assigned_often(tree: ast.FunctionDef) -> set[str]:
    """The names that more than one place of a function assigns to: they need memory."""
    assigned = [argument.arg for argument in tree.args.args]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.append(node.id)
    return {name for name in assigned if assigned.count(name) > 1}
