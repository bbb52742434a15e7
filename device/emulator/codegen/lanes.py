"""Operations on masks and lanes, for compiled functions.

They write code while a function is compiled (see `compiled`). A number is typed `int`, as in these
functions, and is a `Value` of 64 bits in fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from llvmlite import ir

from memlab.device.emulator.codegen.records import (
    NUMBER,
    Address,
    Number,
    Pointer,
    PointerTo,
    builder,
    number,
    raw_value,
)
from memlab.device.emulator.isa.values import (
    PRED,
    S64,
    U32,
    ElementType,
    Value,
    broadcast,
    intrinsic,
    shaped,
    where,
)
from memlab.device.properties import WARP_SIZE

ALL_LANES = (1 << WARP_SIZE) - 1
"""The mask of a whole warp."""


def _value(bits: int) -> Value:
    return bits if isinstance(bits, Value) else number(bits)


def _number(value: Value) -> int:
    return cast(int, value.to(S64))


def count_bits(bits: int) -> int:
    """How many bits are set."""
    return _number(_value(bits).call("llvm.ctpop"))


def lowest_bit(bits: int) -> int:
    """The place of the lowest set bit; there must be one."""
    return _number(_value(bits).call("llvm.cttz", flag=True))


def highest_bit(bits: int) -> int:
    """The place of the highest set bit; there must be one."""
    return _number(63 - _value(bits).call("llvm.ctlz", flag=True))


def reversed_bits(mask: int) -> int:
    """A mask with its bits in reverse order."""
    b = builder()
    word = Value(b, raw_value(Number(U32), mask), U32)
    return _number(word.call("llvm.bitreverse"))


def lane_value(values: Value, lane: int) -> int:
    """The value of one lane."""
    b = builder()
    return _number(Value(b, b.extract_element(values.ir, raw_value(NUMBER, lane)), values.type))


def lanes_of(mask: int) -> Value:
    """The bits of a mask as a predicate of the lanes of a warp."""
    word = raw_value(NUMBER, mask)
    b = builder()
    narrow = b.trunc(word, ir.IntType(WARP_SIZE))
    return Value(b, b.bitcast(narrow, shaped(PRED, WARP_SIZE)), PRED)


def bits_of(predicate: Value) -> int:
    """A predicate of lanes as a mask."""
    b = builder()
    word = b.bitcast(predicate.ir, ir.IntType(predicate.lanes))
    return _number(Value(b, word, ElementType("u", predicate.lanes)))


def choose(condition: bool, chosen: int, other: int) -> int:
    """One of two numbers, both computed, without a branch."""
    holds = cast(Any, condition)
    return _number(where(holds, _value(chosen), _value(other)))


def splat(value: int, element: ElementType = S64, lanes: int = WARP_SIZE) -> Value:
    """A number in all lanes."""
    return broadcast(_value(value).to(element), lanes)


def per_lane(numbers: Callable[[int], int], element: ElementType = S64) -> Value:
    """A constant of each lane, by its number."""
    items = [ir.Constant(element.ir, numbers(lane)) for lane in range(WARP_SIZE)]
    return Value(builder(), ir.Constant(shaped(element, WARP_SIZE), items), element)


def reduce(values: Value, operation: str) -> int:
    """All lanes combined by `add`, `or`, `smin`, `smax`, `umin` or `umax`."""
    b, kind = builder(), values.ir.type
    name, suffix = f"llvm.vector.reduce.{operation}", f"v{kind.count}i{kind.element.width}"
    total = b.call(intrinsic(b, name, kind.element, [kind], suffix), [values.ir])
    return _number(Value(b, total, values.type))


def shuffle(values: Value, places: Callable[[int], int]) -> Value:
    """Lane i gets the value of lane `places(i)`."""
    order = [places(lane) for lane in range(values.lanes)]
    return Value(builder(), pick(values.ir, order), values.type)


def pick(vector: ir.Value, order: Sequence[int], behind: ir.Value | None = None) -> ir.Value:
    """A vector of the items of another one, or of two of a length, in an order."""
    index = ir.IntType(32)
    places = ir.Constant(ir.VectorType(index, len(order)), [index(place) for place in order])
    return builder().shuffle_vector(vector, vector if behind is None else behind, places)


def fill_bytes(start: Pointer[Any], count: int, value: int = 0) -> None:
    """Set bytes to a value."""
    b, byte, flag = builder(), ir.IntType(8), ir.IntType(1)
    kinds = [ir.PointerType(), byte, S64.ir, flag]
    fill = intrinsic(b, "llvm.memset", ir.VoidType(), kinds, "p0.i64")
    b.call(fill, [start.start, byte(value), raw_value(NUMBER, count), flag(0)])


def call_address(kind: ir.FunctionType, address: Address, *arguments: Any) -> int:
    """Call the function at a host address; its result is an integer."""
    b = builder()
    raw = []
    for argument, wanted in zip(arguments, kind.args, strict=True):
        if isinstance(wanted, ir.PointerType):
            raw.append(raw_value(PointerTo(None), argument))
        else:
            raw.append(_value(argument).to(ElementType("u", wanted.width)).ir)
    pointer = b.inttoptr(raw_value(NUMBER, address), ir.PointerType())
    returned = b.call(_FunctionPointer(pointer, kind), raw)
    return _number(Value(b, returned, ElementType("u", returned.type.width)))


class _FunctionPointer:
    """A pointer with the type of the function that it points to, as `IRBuilder.call` wants it."""

    def __init__(self, value: ir.Value, kind: ir.FunctionType) -> None:
        self._value = value
        self.function_type = self.ftype = kind
        self.type = kind.as_pointer()

    def get_reference(self) -> str:
        return str(self._value.get_reference())
