"""What the emulator's instructions did, added up: over the grid, by line and access, in loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from memlab.device.emulator.machine.access_costs import Tally
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_read,
    registers_written,
)
from memlab.device.emulator.program.program import instructions_in_loops as steps_in_loops
from memlab.device.emulator.ptx.parser import Address, Register
from memlab.device.measurement import AccessCounters, Counters, LineCounters, Region

_DIRECTIONS = {"load": "load", "store": "store", "atomic": "atomic", "reduce": "reduction"}
_ALWAYS_ATOMIC = (".exch.", ".cas.")  # of these, ptxas has no instruction without a result


def total_counters(program: Program, tally: Tally) -> Counters:
    """Sum what the instructions did, by kind."""
    sums: dict[str, int] = {}

    def add(name: str, value: int) -> None:
        sums[name] = sums.get(name, 0) + value

    directions = _access_directions(program)
    for index, step in enumerate(program.steps):
        row = step.row
        add("thread_instructions", tally.lanes[index])
        add("warp_instructions", tally.warps[index])
        if row.flops:
            pipe = f"tensor_{row.tensor}" if row.tensor else "fp64" if "f64" in row.to else "fp32"
            add(f"flop_{pipe}", row.flops * tally.lanes[index])
        direction, space = directions[index], _state_space(step, tally, index)
        if not direction:
            continue
        if space in ("global", "local", "shared"):
            add("l1_wavefronts", tally.wavefronts[index])
        if space == "global":
            add(f"global_{direction}_requests", tally.requests[index])
            add(f"global_{direction}_sectors", tally.sectors[index])
            if direction in ("load", "store"):
                add(f"requested_{direction}_bytes", tally.bytes[index])
                add(f"global_{direction}_lines", tally.wavefronts[index])
                add(f"global_{direction}_used_bytes", tally.used[index])
            else:
                add("requested_atomic_bytes", tally.bytes[index])
        elif space == "local":
            add(f"local_{direction}_sectors", tally.sectors[index])
        elif space == "constant":
            add("constant_load_requests", tally.requests[index])
            add("constant_load_passes", tally.wavefronts[index])
        elif space == "shared":
            named = "atomic" if direction == "reduction" else direction
            add(f"shared_{named}_instructions", tally.requests[index])
            add(f"shared_{named}_wavefronts", tally.wavefronts[index])
            add("shared_excessive_wavefronts", tally.excessive[index])
    return Counters(**sums)


def counters_by_line(
    program: Program, tally: Tally, source: Sequence[str]
) -> tuple[LineCounters, ...]:
    """The counters of each source line that did anything."""
    lines: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        lines.setdefault(step.instruction.source_line, []).append(index)
    return tuple(
        _line_counters(program, tally, line, indices, source)
        for line, indices in sorted(lines.items())
    )


def counters_by_access(
    program: Program, tally: Tally, arrays: Mapping[int, str]
) -> tuple[AccessCounters, ...]:
    """The counters of each source line's accesses to memory, by array and direction.

    Args:
        program: What ran.
        tally: What its instructions did.
        arrays: Names of the arrays that instructions access, by their index, where known.

    Returns:
        Those that happened, by line, and within one in the order of their first instructions.
    """
    accesses: dict[tuple[int, str, str, str], list[int]] = {}
    directions = _access_directions(program)
    for index, step in enumerate(program.steps):
        space = _state_space(step, tally, index)
        if directions[index] and space and tally.requests[index]:
            line = step.instruction.source_line
            key = line, space, directions[index], arrays.get(index, "")
            accesses.setdefault(key, []).append(index)
    return tuple(
        AccessCounters(space, direction, array, _line_counters(program, tally, line, indices))
        for (line, space, direction, array), indices in sorted(
            accesses.items(), key=lambda each: each[0][0]
        )
    )


def main_region(program: Program, tally: Tally) -> Region:
    """Add up the loops, or the whole program where they lack arithmetic or global accesses."""

    def total(steps: Sequence[bool], of_loops: bool) -> Region:
        flop = moved = 0
        for index, step in enumerate(program.steps):
            if steps[index]:
                flop += step.row.flops * tally.lanes[index]
                moved += tally.bytes[index] if _state_space(step, tally, index) == "global" else 0
        return Region(flop, moved, of_loops)

    loops = total(steps_in_loops(program), True)
    if loops.flop and loops.requested_bytes:
        return loops
    return total([True] * len(program.steps), False)


def _line_counters(
    program: Program,
    tally: Tally,
    line: int,
    indices: Sequence[int],
    source: Sequence[str] = (),
) -> LineCounters:
    """Add up some instructions of one source line, whose text the source gives."""
    sums = {each.name: 0 for each in fields(LineCounters) if each.name not in ("line", "text")}
    for index in indices:
        step = program.steps[index]
        sums["thread_instructions"] += tally.lanes[index]
        sums["warp_instructions"] += tally.warps[index]
        sums["flop"] += step.row.flops * tally.lanes[index]
        space = _state_space(step, tally, index)
        if space == "global":
            sums["global_requests"] += tally.requests[index]
            sums["global_sectors"] += tally.sectors[index]
            sums["global_lines"] += tally.wavefronts[index]
            sums["global_used_bytes"] += tally.used[index]
            sums["requested_bytes"] += tally.bytes[index]
        elif space == "shared":
            sums["shared_instructions"] += tally.requests[index]
            sums["shared_wavefronts"] += tally.wavefronts[index]
            sums["shared_excessive_wavefronts"] += tally.excessive[index]
        elif space == "local":
            sums["local_requests"] += tally.requests[index]
            sums["local_sectors"] += tally.sectors[index]
        elif space == "constant":
            sums["constant_requests"] += tally.requests[index]
            sums["constant_passes"] += tally.wavefronts[index]
    return LineCounters(line, source[line - 1] if 0 < line <= len(source) else "", **sums)


def _access_directions(program: Program) -> list[str]:
    """The direction of each instruction; empty for one that accesses no memory.

    An atomic whose result nobody reads is a reduction, as ptxas makes it one.
    """
    wanted = {register for step in program.steps for register in registers_read(step)}
    found = []
    for step in program.steps:
        direction = _DIRECTIONS.get(step.row.kind, "")
        needed = any(each in step.row.opcode for each in _ALWAYS_ATOMIC)
        if direction == "atomic" and not needed and wanted.isdisjoint(registers_written(step)):
            direction = "reduction"
        found.append(direction)
    return found


def _state_space(step: DecodedInstruction, tally: Tally, index: int) -> str:
    """The memory that an instruction accesses: `global`, `shared`, `local`, `constant`, or none.

    Where the address says it (a generic one), what was counted tells: only global accesses have
    bytes that were used, and shared ones have no sectors.
    """
    space = step.row.space
    if space == "generic":
        return "global" if tally.used[index] else "local" if tally.sectors[index] else "shared"
    if space == "const":
        return "constant" if _address_is_computed(step) else ""
    return space if space in ("global", "shared", "local") else ""


def _address_is_computed(step: DecodedInstruction) -> bool:
    """Whether an access is a load in the machine code too, not an operand of the constant bank."""
    return any(
        isinstance(each, Address) and isinstance(each.base, Register)
        for each in step.instruction.operands
    )
