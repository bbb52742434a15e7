"""Values in the code under construction: what a PTX register holds in the lanes of a warp.

A row of the instruction table is a function from values to values. It reads as arithmetic and
writes LLVM instructions: `a * b + c` of two `s32` appends a multiplication and an addition. A value
is an LLVM vector with an element per lane, or a single number where lanes are taken one by one, as
by an atomic operation. Integer arithmetic wraps around, as in PTX; floating-point arithmetic rounds
to nearest even and keeps subnormals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from llvmlite import ir

from memlab.device.emulator.ptx.parser import TYPE_BYTES

Number: TypeAlias = "Value | int | float | bool"
"""A value, or a constant for all lanes that takes the type of the value it is combined with."""


@dataclass(frozen=True)
class ElementType:
    """The type of one lane.

    Attributes:
        kind: `i` signed and `u` unsigned integer, `f` floating point, `p` predicate.
        bits: Its width.
    """

    kind: Literal["i", "u", "f", "p"]
    bits: int

    @property
    def ir(self) -> ir.Type:
        """The LLVM type of one lane."""
        if self.kind == "f":
            return {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}[self.bits]
        return ir.IntType(self.bits)

    @property
    def unsigned(self) -> ElementType:
        """The unsigned integer of this width."""
        return ElementType("u", self.bits)

    @property
    def signed(self) -> ElementType:
        """The signed integer of this width."""
        return ElementType("i", self.bits)

    @property
    def least(self) -> int:
        """The least integer."""
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def most(self) -> int:
        """The greatest integer."""
        return (1 << (self.bits - (self.kind == "i"))) - 1


PRED = ElementType("p", 1)
U8, U16, U32, U64 = (ElementType("u", bits) for bits in (8, 16, 32, 64))
S16, S32, S64 = (ElementType("i", bits) for bits in (16, 32, 64))
F16, F32, F64 = (ElementType("f", bits) for bits in (16, 32, 64))


def element_type(ptx_type: str) -> ElementType:
    """The type of the lanes of a PTX type; packed halves and `bf16` are raw bits."""
    if ptx_type == "pred":
        return PRED
    bits = 8 * TYPE_BYTES[ptx_type]
    if "x2" in ptx_type or ptx_type == "bf16":
        return ElementType("u", bits)
    kinds: dict[str, Literal["i", "f"]] = {"s": "i", "f": "f"}
    return ElementType(kinds.get(ptx_type[0], "u"), bits)


def _arithmetic(
    unsigned: str, real: str = "", signed: str = ""
) -> Callable[[Value, Number], Value]:
    """An operator, by LLVM's instructions; that for signed integers may be another."""
    names = {"u": unsigned, "p": unsigned, "i": signed or unsigned, "f": real}

    def apply(self: Value, other: Number) -> Value:
        instruction = getattr(self.builder, names[self.type.kind])
        return Value(self.builder, instruction(self.ir, self.like(other).ir), self.type)

    return apply


def _reflected(operator: Callable[[Value, Number], Value]) -> Callable[[Value, Number], Value]:
    return lambda self, other: operator(self.like(other), self)


def _comparison(relation: str) -> Callable[[Value, Number], Value]:
    unordered = relation == "!="  # which is true for a NaN
    return lambda self, other: self.compare(relation, other, unordered)


class Value:
    """A value of one element type, with the builder that its instructions are appended to.

    Arithmetic, bitwise and shift operators and comparisons follow NumPy on arrays of one type: the
    other operand has the same type or is a Python number. Shift amounts beyond the width are
    undefined; `isa.integers` defines PTX's. `>>` of a signed value extends its sign. Integer
    division is left to `isa.integers`. Comparisons of floats are false for a NaN, but for `!=`.

    Attributes:
        builder: Where instructions are appended.
        ir: The LLVM value.
        type: The element type.
    """

    __slots__ = ("builder", "ir", "type")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, element: ElementType) -> None:
        self.builder, self.ir, self.type = builder, value, element

    @property
    def lanes(self) -> int:
        """How many lanes; 0 for a single number."""
        kind = self.ir.type
        return int(kind.count) if isinstance(kind, ir.VectorType) else 0

    def lane(self, number: Value) -> Value:
        """One lane as a single number."""
        return self._new(self.builder.extract_element(self.ir, number.ir))

    # --- Constants -------------------------------------------------------------------------------

    @property
    def known(self) -> int | None:
        """The bits of an integer that is a constant, the same in all lanes; None for others."""
        one = self.ir.one if isinstance(self.ir, Splat) else self.ir
        number = one.constant if isinstance(one, ir.Constant) and self.type.kind != "f" else None
        return number if isinstance(number, int) else None

    @property
    def numbers(self) -> list[int] | None:
        """The lanes of an integer constant; None for a value that is computed."""
        if self.known is not None:
            return [self.known] * self.lanes
        lanes = self.ir.constant if isinstance(self.ir, ir.Constant) else None
        return [lane.constant for lane in lanes] if isinstance(lanes, list) else None

    def constant(self, number: float, element: ElementType | None = None) -> Value:
        """A constant for all lanes, of this value's type or another."""
        element = element or self.type
        return Value(self.builder, constant(number, element, self.lanes), element)

    def like(self, number: Number) -> Value:
        """A number as a value of this type; a value is returned as it is.

        Raises:
            TypeError: The value has another type.
        """
        if not isinstance(number, Value):
            return self.constant(number)
        if number.type != self.type:
            raise TypeError(f"{number.type} is combined with {self.type}")
        return number

    def _new(self, value: ir.Value, element: ElementType | None = None) -> Value:
        return Value(self.builder, value, element or self.type)

    # --- Operators -------------------------------------------------------------------------------

    __add__ = _arithmetic("add", "fadd")
    __sub__ = _arithmetic("sub", "fsub")
    __mul__ = _arithmetic("mul", "fmul")
    __truediv__ = _arithmetic("", "fdiv")
    __radd__, __rsub__ = _reflected(__add__), _reflected(__sub__)
    __rmul__, __rtruediv__ = _reflected(__mul__), _reflected(__truediv__)
    __and__ = _arithmetic("and_")
    __or__ = _arithmetic("or_")
    __xor__ = _arithmetic("xor")
    __lshift__ = _arithmetic("shl")
    __rshift__ = _arithmetic("lshr", signed="ashr")
    __eq__ = _comparison("==")  # type: ignore[assignment]
    __ne__ = _comparison("!=")  # type: ignore[assignment]
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")

    def __neg__(self) -> Value:
        if self.type.kind == "f":
            return self._new(self.builder.fneg(self.ir))
        return self.constant(0) - self

    def __invert__(self) -> Value:
        return self ^ self.constant(True if self.type.kind == "p" else -1)

    def __abs__(self) -> Value:
        """`|a|`; the least integer stays as it is."""
        if self.type.kind == "f":
            return self.call("llvm.fabs")
        return where(self < 0, -self, self) if self.type.kind == "i" else self

    def compare(self, relation: str, other: Number, unordered: bool) -> Value:
        """A comparison, as LLVM spells it; of floats, true for a NaN if it is `unordered`."""
        b, kind = self.builder, self.type.kind
        if kind == "f":
            compare = b.fcmp_unordered if unordered else b.fcmp_ordered
        else:
            compare = b.icmp_signed if kind == "i" else b.icmp_unsigned
        return self._new(compare(relation, self.ir, self.like(other).ir), PRED)

    # --- Tests of floats -------------------------------------------------------------------------

    @property
    def is_nan(self) -> Value:
        """Whether it is no number."""
        return self != self  # noqa: PLR0124 - only a NaN differs from itself

    @property
    def is_finite(self) -> Value:
        """Whether it is neither infinite nor a NaN."""
        return abs(self) < math.inf

    @property
    def is_subnormal(self) -> Value:
        """Whether it is less than the least normal one, and not zero."""
        return self.call("llvm.is.fpclass", ir.IntType(32)(_SUBNORMAL), element=PRED)

    @property
    def has_sign(self) -> Value:
        """Whether the sign bit is set."""
        return self.bits(self.type.signed) < 0

    # --- Types -----------------------------------------------------------------------------------

    def to(self, element: ElementType) -> Value:
        """The value converted, as NumPy's `astype` does.

        Integers are cut or extended by the sign of this type; a float that is rounded goes to
        nearest even. A float converted to an integer must be in its range, else it is undefined.
        """
        b, now = self.builder, self.type
        target = shaped(element, self.lanes)
        if now == element:
            return self
        if now.kind == "f" and element.kind == "f":
            convert = b.fpext if element.bits > now.bits else b.fptrunc
        elif now.kind == "f":
            convert = b.fptosi if element.kind == "i" else b.fptoui
        elif element.kind == "f":
            convert = b.sitofp if now.kind == "i" else b.uitofp
        elif now.bits == element.bits:
            return self._new(self.ir, element)
        elif element.kind == "p":
            return self != 0
        elif element.bits < now.bits:
            convert = b.trunc
        else:
            convert = b.sext if now.kind == "i" else b.zext
        return self._new(convert(self.ir, target), element)

    def bits(self, element: ElementType) -> Value:
        """The same bits seen as another type, as NumPy's `view` does.

        A wider type has fewer lanes, a narrower one more: a `u32` of 32 lanes is a `u16` of 64. One
        lane alone is a single number.
        """
        count = max(self.lanes, 1) * self.type.bits // element.bits
        target = shaped(element, count if count > 1 else 0)
        if target == self.ir.type:
            return self._new(self.ir, element)
        return self._new(self.builder.bitcast(self.ir, target), element)

    # --- LLVM's functions ------------------------------------------------------------------------

    def call(
        self,
        name: str,
        *others: Number | ir.Constant,
        flag: bool | None = None,
        element: ElementType | None = None,
    ) -> Value:
        """An LLVM intrinsic on this type, such as `llvm.sqrt` or `llvm.umin`.

        Args:
            name: Its name without the type suffix.
            *others: Further arguments: of the same type, or LLVM's constants of another.
            flag: A last argument of one bit, where the intrinsic has one, as `llvm.ctlz`.
            element: The element type of the result; None for this one.
        """
        arguments = [self.ir]
        arguments += [o if isinstance(o, ir.Constant) else self.like(o).ir for o in others]
        arguments += [] if flag is None else [ir.Constant(ir.IntType(1), flag)]
        kinds = [argument.type for argument in arguments]
        result = shaped(element or self.type, self.lanes)
        function = intrinsic(self.builder, name, result, kinds, type_suffix(self.ir.type))
        return self._new(self.builder.call(function, arguments), element)


@cache  # an LLVM type keeps its text
def shaped(element: ElementType, lanes: int) -> ir.Type:
    """The LLVM type of a value of an element type."""
    return ir.VectorType(element.ir, lanes) if lanes else element.ir


def constant(number: float, element: ElementType, lanes: int) -> ir.Constant:
    """An LLVM constant that is the same for all lanes; an integer is cut to its width."""
    kind = element.ir
    if element.kind == "f":
        one = ir.Constant(kind, float(number))
    else:
        one = ir.Constant(kind, int(number) & ((1 << element.bits) - 1))
    return Splat(one, lanes) if lanes else one


class Splat(ir.FormattedConstant):  # type: ignore[misc]
    """A constant that is the same in all lanes.

    Attributes:
        one: The constant of one lane.
    """

    def __init__(self, one: ir.Constant, lanes: int) -> None:
        # The constructor of llvmlite would make a constant for each lane.
        self.type = ir.VectorType(one.type, lanes)
        self.constant = f"splat ({one.type} {one.get_reference()})"
        self.one = one


def intrinsic(
    builder: ir.IRBuilder,
    name: str,
    result: ir.Type,
    arguments: Sequence[ir.Type],
    suffix: str = "",
) -> ir.Function:
    """Declare an LLVM intrinsic, once per module.

    Args:
        builder: A builder of the module.
        name: Its name without the type suffix, such as `llvm.fma`.
        result: Its result type, which gives the suffix.
        arguments: The types of its arguments.
        suffix: Another type suffix.
    """
    full = f"{name}.{suffix or type_suffix(result)}"
    known = builder.module.globals.get(full)
    if known is not None:
        return known
    return ir.Function(builder.module, ir.FunctionType(result, arguments), full)


def type_suffix(kind: ir.Type) -> str:
    """How LLVM spells a type in the name of an intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {"half": "f16", "float": "f32", "double": "f64"}[str(kind)]


# --- Functions of values, by NumPy's names --------------------------------------------------------


def where(condition: Value, chosen: Number, other: Number) -> Value:
    """`chosen` in the lanes where a condition holds, else `other`; one of them is a value."""
    model = chosen if isinstance(chosen, Value) else other
    if not isinstance(model, Value):
        raise TypeError("one of the choices must be a value")
    first, second = model.like(chosen), model.like(other)
    return Value(model.builder, model.builder.select(condition.ir, first.ir, second.ir), first.type)


def minimum(a: Value, b: Number) -> Value:
    """The lesser of two integers."""
    return a.call("llvm.smin" if a.type.kind == "i" else "llvm.umin", b)


def maximum(a: Value, b: Number) -> Value:
    """The greater of two integers."""
    return a.call("llvm.smax" if a.type.kind == "i" else "llvm.umax", b)


def clamp(a: Value, least: int, most: int) -> Value:
    """An integer clamped to a range, which may be wider than that of its type."""
    if least > a.type.least:
        a = maximum(a, least)
    return minimum(a, most) if most < a.type.most else a


def fma(a: Value, b: Number, c: Number) -> Value:
    """`a*b + c` of floats with one rounding."""
    return a.call("llvm.fma", b, c)


_SUBNORMAL = 0x90  # the classes of negative and positive subnormals in `llvm.is.fpclass`


def broadcast(value: Value, lanes: int) -> Value:
    """A single number in all lanes."""
    b, kind = value.builder, shaped(value.type, lanes)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), value.ir, ir.IntType(32)(0))
    return shuffled(Value(b, first, value.type), [0] * lanes)


def shuffled(value: Value, lanes: Iterable[int], behind: Value | None = None) -> Value:
    """Some lanes of a vector, in a constant order.

    Args:
        value: The vector.
        lanes: The number of the lane that each lane of the result holds.
        behind: A vector whose lanes count on from the first one's.
    """
    other = ir.Constant(value.ir.type, ir.Undefined) if behind is None else behind.ir
    chosen = value.builder.shuffle_vector(value.ir, other, _lane_numbers(tuple(lanes)))
    return Value(value.builder, chosen, value.type)


@cache  # LLVM's constants keep their text
def _lane_numbers(lanes: tuple[int, ...]) -> ir.Constant:
    int32 = ir.IntType(32)
    return ir.Constant(ir.VectorType(int32, len(lanes)), [int32(lane) for lane in lanes])


def internal_function(
    builder: ir.IRBuilder,
    name: str,
    result: ir.Type,
    arguments: Sequence[ir.Type],
    write: Callable[..., None],
) -> ir.Function:
    """A function that the code of a module shares; its first use defines it.

    Args:
        builder: A builder of the module.
        name: Its name.
        result: The type of its result.
        arguments: The types of its arguments.
        write: Writes its body: `write(builder, *arguments)`.
    """
    known = builder.module.globals.get(name)
    if known is not None:
        return known
    function = ir.Function(builder.module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    write(ir.IRBuilder(function.append_basic_block("entry")), *function.args)
    return function


def stack_array(builder: ir.IRBuilder, kind: ir.Type, count: int) -> ir.Value:
    """The address of an array on the stack, aligned to 64 bytes."""
    array = builder.alloca(ir.ArrayType(kind, count))
    array.align, array.type = 64, ir.PointerType()
    return array


def shared_stack_array(builder: ir.IRBuilder, name: str, kind: ir.Type, count: int) -> ir.Value:
    """The same, once for all instructions of a function that use the name."""
    known = vars(builder.function).setdefault("stack_arrays", {})
    if name not in known:
        with builder.goto_entry_block():
            known[name] = stack_array(builder, kind, count)
    return known[name]


def combine(low: Value, high: Value) -> Value:
    """Two values of one width as an unsigned one of twice the width."""
    bits = low.type.bits
    wide = ElementType("u", 2 * bits)
    return low.bits(low.type.unsigned).to(wide) | high.bits(high.type.unsigned).to(wide) << bits


def over_packed_parts(function: Lowering, part: ElementType) -> Lowering:
    """A function of a type applied to each part of lanes that pack two or four."""

    def run(*sources: Value) -> Value:
        result: Value = function(*(source.bits(part) for source in sources))
        return result.bits(sources[0].type)

    return run


def outlined(name: str, result: ElementType, function: Lowering, *sources: Value) -> Value:
    """A long function, written once in a module; its uses are calls, which compile fast.

    Args:
        name: A name of its own.
        result: The element type of its result, which has as many lanes as the first source.
        function: The function.
        *sources: Its sources.
    """
    builder, kinds = sources[0].builder, [source.ir.type for source in sources]

    def write(inside: ir.IRBuilder, *arguments: ir.Value) -> None:
        inputs = zip(arguments, sources, strict=True)
        inside.ret(function(*(Value(inside, a, source.type) for a, source in inputs)).ir)

    full = ".".join([name, *map(type_suffix, kinds)])
    written = internal_function(builder, full, shaped(result, sources[0].lanes), kinds, write)
    return Value(builder, builder.call(written, [source.ir for source in sources]), result)


Lowering: TypeAlias = Callable[..., Any]
"""Writes an instruction: from its sources' values to the value of its result, or to several."""
