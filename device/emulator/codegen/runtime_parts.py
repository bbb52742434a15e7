"""What the functions of the runtime are written with: types, lanes, calls and stack memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from memlab.device.emulator.isa.values import (
    PRED,
    S32,
    S64,
    ElementType,
    Value,
    broadcast,
    intrinsic,
    shaped,
)
from memlab.device.properties import WARP_SIZE

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
ADDRESS_LANES = shaped(S64, WARP_SIZE)
"""An address for each lane of a warp."""
NARROW_LANES = shaped(S32, WARP_SIZE)
"""The same where 32 bits are enough: relative to another address."""
ALL_LANES = (1 << WARP_SIZE) - 1


def begin(
    module: ir.Module, name: str, result: ir.Type, *arguments: ir.Type, seldom: bool = False
) -> ir.IRBuilder:
    """Begin an internal function of the runtime.

    Args:
        module: The runtime's module.
        name: Its name.
        result: Its result type.
        *arguments: The types of its arguments.
        seldom: Whether it is called in uncommon cases only. It is then not inlined, and keeps the
            caller's registers, so that the common case need not save them.
    """
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    if seldom:
        function.attributes.add("noinline")
        function.calling_convention = "preserve_mostcc"
    return ir.IRBuilder(function.append_basic_block("entry"))


def call(b: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """Call another function of the runtime."""
    return b.call(b.module.globals[name], arguments)


def failed(b: ir.IRBuilder, result: ir.Value) -> ir.Value:
    """Whether a function returned something other than 0."""
    return b.icmp_signed("!=", result, I32(0))


def require(b: ir.IRBuilder, condition: ir.Value, otherwise: ir.Block) -> None:
    """Go on only where a condition holds."""
    passed = b.append_basic_block("passed")
    b.cbranch(condition, passed, otherwise)
    b.position_at_end(passed)


def is_null(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Whether a pointer is null."""
    return b.icmp_unsigned("==", b.ptrtoint(pointer, I64), I64(0))


def stack_room(b: ir.IRBuilder, kind: ir.Type) -> ir.Value:
    """A pointer to memory on the stack, which holds anything."""
    room = b.alloca(kind)
    room.type = POINTER  # llvmlite gives it a typed one, which LLVM no longer has
    return room


def fill_bytes(b: ir.IRBuilder, start: ir.Value, count: ir.Value, value: int = 0) -> None:
    """Set bytes to a value."""
    fill = intrinsic(b, "llvm.memset", ir.VoidType(), [POINTER, I8, I64, I1], "p0.i64")
    b.call(fill, [start, I8(value), count, I1(0)])


# --- Lanes ----------------------------------------------------------------------------------------


def lanes_of(b: ir.IRBuilder, mask: ir.Value) -> Value:
    """The bits of a mask as a predicate of 32 lanes."""
    return Value(b, b.bitcast(mask, shaped(PRED, WARP_SIZE)), PRED)


def bits_of(predicate: Value) -> ir.Value:
    """A predicate of lanes as a mask."""
    return predicate.builder.bitcast(predicate.ir, ir.IntType(predicate.lanes))


def splat(b: ir.IRBuilder, number: ir.Value, lanes: int = WARP_SIZE) -> Value:
    """A signed integer in all lanes."""
    return broadcast(Value(b, number, ElementType("i", number.type.width)), lanes)


def lane_numbers(b: ir.IRBuilder) -> Value:
    """The number of each lane."""
    return Value(b, constant_vector([I64(lane) for lane in range(WARP_SIZE)]), S64)


def load_lanes(b: ir.IRBuilder, pointer: ir.Value) -> Value:
    """An array of 32 signed integers of 64 bits."""
    return Value(b, b.load(pointer, typ=ADDRESS_LANES, align=8), S64)


def reduce(values: Value, operation: str) -> ir.Value:
    """All lanes combined by `add`, `or`, `smin`, `smax`, `umin` or `umax`."""
    b, kind = values.builder, values.ir.type
    name = f"llvm.vector.reduce.{operation}"
    suffix = f"v{kind.count}i{kind.element.width}"
    return b.call(intrinsic(b, name, kind.element, [kind], suffix), [values.ir])


def shuffle(values: Value, places: Callable[[int], int]) -> Value:
    """Lane i gets the value of lane `places(i)`."""
    b = values.builder
    order = [I32(places(lane)) for lane in range(values.lanes)]
    picked = b.shuffle_vector(values.ir, values.ir, constant_vector(order))
    return Value(b, picked, values.type)


def constant_vector(items: Sequence[ir.Constant]) -> ir.Constant:
    """A constant vector of these elements."""
    return ir.Constant(ir.VectorType(items[0].type, len(items)), items)


def choose(b: ir.IRBuilder, condition: Callable[[int], bool]) -> Value:
    """A constant predicate of 32 lanes."""
    lanes = [I1(int(condition(lane))) for lane in range(WARP_SIZE)]
    return Value(b, constant_vector(lanes), PRED)
