"""The instructions that the tools are told of one by one; all others run on as machine code."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from memlab.device.emulator.checks import memory_order
from memlab.device.emulator.checks.barriers import is_warp_barrier, is_warp_collective
from memlab.device.emulator.checks.undefined_values import find_uses_of_shuffles
from memlab.device.emulator.program.program import DecodedInstruction, Program, bytes_moved
from memlab.device.emulator.ptx.parser import Address, Symbol

_TRACKED_SPACES = ("global", "shared", "local", "generic")
"""State spaces whose contents the tools follow."""


def find_watched_instructions(program: Program, tools: Collection[str]) -> frozenset[int]:
    """The positions of the instructions to watch; that behind the last one is the program's end."""
    watched = {
        index for index, step in enumerate(program.steps) if _is_watched(program, step, tools)
    }
    if "synccheck" in tools:
        watched.update(find_uses_of_shuffles(program.steps))
        watched.update(_ends(program))
    return frozenset(watched)


def _is_watched(program: Program, step: DecodedInstruction, tools: Collection[str]) -> bool:
    match step.row.kind:
        case "load" | "store" | "atomic" | "reduce":
            return step.row.space in _TRACKED_SPACES or not _is_inside_a_variable(program, step)
        case "nothing":
            return is_warp_barrier(step) or (
                "racecheck" in tools and memory_order.orders_accesses(step)
            )
        case "warp":
            return "synccheck" in tools and is_warp_collective(step)
        case kind:
            return kind == "arrive"


def _is_inside_a_variable(program: Program, step: DecodedInstruction) -> bool:
    """Whether an access to constant memory or to arguments names a place that is in bounds."""
    address = next(o for o in step.instruction.operands if isinstance(o, Address))
    if not isinstance(address.base, Symbol):
        return False
    name, start = address.base.name, address.base.offset + address.offset
    spaces = (program.const, program.parameters, program.arguments)
    place = next((offsets[name] for offsets in spaces if name in offsets), 0) + start
    sizes = {variable.name: variable.size for variable in program.parameter_variables}
    size = bytes_moved(step.row)
    ends_inside = start + size <= sizes.get(name, program.sizes.get(name, 0))
    return start >= 0 and ends_inside and place % size == 0


def _ends(program: Program) -> Iterator[int]:
    """Where lanes exit, and the branches that lead straight there."""
    exits = {index for index, step in enumerate(program.steps) if step.row.kind == "exit"}
    may_pass = any(program.steps[index].instruction.guard is not None for index in exits)
    exits.add(len(program.steps))
    yield from exits
    for index, step in enumerate(program.steps):
        if step.row.kind == "branch" and (may_pass or step.target in exits):
            yield index
