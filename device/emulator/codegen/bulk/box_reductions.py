"""The machine code that combines the elements of boxes: `cp.reduce.async.bulk.tensor`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, cast

from llvmlite import ir

from memlab.device.emulator.codegen.bulk.box_code import (
    Rows,
    Tensor,
    begin_rows,
    map_of,
    next_row,
    swizzle_mask,
    swizzled,
    written_bytes,
)
from memlab.device.emulator.codegen.compiled import Compiled, compiled, set_bits
from memlab.device.emulator.codegen.lane_code import GLOBAL, find_array, warp_base
from memlab.device.emulator.codegen.layout import SPACES, Addresses, Context, Site
from memlab.device.emulator.codegen.records import Pointer, Word, field_pointer, pointer_to, room
from memlab.device.emulator.isa import table
from memlab.device.emulator.isa.asynchronous import tensor_copies as tensors
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.values import Value, element_type

_SHARED = SPACES.index("shared")


def reduce_box(b: ir.IRBuilder, row: Row, *arguments: ir.Value) -> None:
    """Combine the boxes of lanes with tensors, which `write_box` has checked.

    The arguments are the context, the record, the site, the lanes, the warp, and what `write_box`
    gets of each lane.
    """
    b.call(_reduction(tensors.operation_of(row)).declared(b.module), arguments)


@cache
def _reduction(operation: str) -> Compiled[Any]:
    """The function of an operation, such as `add`."""
    kinds = tuple(
        (number, element_type(name).bits // 8, combine)
        for number, name in enumerate(tensors.TYPES)
        if (combine := _combination(operation, name)) is not None
    )

    @compiled(name=f"reduce_box_{operation}")
    def reduce(
        context: Context,
        record: Addresses,
        site: Site,
        mask: Word,
        warp: int,
        sources: Pointer[int],
        maps: Pointer[int],
        firsts: Pointer[int],
        ends: Pointer[int],
        others: Pointer[int],
    ) -> None:
        held = field_pointer(record, "address", int)
        memory = warp_base(context, context.segments[GLOBAL], warp)
        block = warp_base(context, context.segments[_SHARED], warp)
        rows = room(Rows)[0]
        for lane in set_bits(mask):
            tensor = pointer_to(map_of(context, warp, maps[lane]), Tensor)[0]
            pieces, kind = swizzle_mask(tensor), tensor.layout >> tensors.LAYOUT_TYPE & 15
            place, first, end = held[lane] + site.offset, firsts[lane], ends[lane]
            limit = context.arrays[max(find_array(context, place), 0)].end
            goes_on = begin_rows(rows, tensor, place, first, end, others[lane])
            while goes_on:
                start, target = sources[lane] + rows.offset, memory + rows.address
                for number, width, combine in kinds:
                    if kind == number:
                        for index in range(written_bytes(rows, limit) // width):
                            moved = index * width
                            combine(target + moved, block + swizzled(pieces, start + moved))
                goes_on = next_row(rows, tensor)

    return cast(Compiled[Any], reduce)


def _combination(operation: str, name: str) -> Callable[[Any, Any], None] | None:
    """Combines an element at a host address with one at another; None where PTX has no such."""
    if name not in tensors.REDUCTIONS[operation]:
        return None
    named = f"b{name[1:]}" if operation in ("and", "or", "xor") else name
    row = table.TABLE[f"bulk.reduce.global.{operation}.{named}"]
    function, element = row.function, element_type(row.opcode.rpartition(".")[2])
    assert function is not None
    kind = Annotated[Value, element]

    def combine(to: Any, of: Any) -> None:
        target = pointer_to(to, kind)
        target[0] = function(_as(target[0], element), _as(pointer_to(of, kind)[0], element))

    return combine


def _as(value: Value, element: Any) -> Value:
    """A number as the element's type: compiled functions see integers as 64 bits."""
    return value if value.type == element else value.to(element)
