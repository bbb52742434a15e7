"""Totals of the emulator's counts: for the grid, by source line, by access, and in loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from memlab.device.access_counts import AccessCounts, Direction, Space
from memlab.device.emulator.isa import table as instruction_table
from memlab.device.emulator.isa.asynchronous import warpgroup
from memlab.device.emulator.isa.macros import is_async_copy_store, is_matrix_load
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    address_registers,
)
from memlab.device.emulator.program.program import instructions_in_loops as steps_in_loops
from memlab.device.machine_code.retries import adds_to_half
from memlab.device.measurement import (
    FLOP_COUNTERS,
    AccessCounters,
    Counters,
    LineCounters,
    Region,
)
from memlab.device.properties import LINE_BYTES

WORD_BYTES = 4
"""A word of shared memory."""

_Access: TypeAlias = tuple[Space, Direction]
_Key = TypeVar("_Key")

_DIRECTIONS: dict[str, Direction] = {
    "load": "load",
    "store": "store",
    "atomic": "atomic",
    "reduce": "reduction",
}
_SHARED_PARTS: dict[str, Callable[[DecodedInstruction], bool]] = {
    "shared_matrix_load": lambda step: step.as_matrix or is_matrix_load(step.instruction),
    "shared_async_store": lambda step: is_async_copy_store(step.instruction),
}
_ALWAYS_ATOMIC = (".exch.", ".cas.")  # ptxas has no instruction without a result for these


def total_counters(
    program: Program, tally: Tally, loads_of_atomics: AccessCounts | None = None
) -> Counters:
    """Add up the counts of all instructions, and the shared loads that atomics make."""
    accesses = _accesses(program, tally)
    table = _access_table(tally, ((access, index) for index, access in accesses.items()))
    if loads_of_atomics is not None and loads_of_atomics.requests:
        table["shared", "load"] = table.get(("shared", "load"), AccessCounts()) + loads_of_atomics
    met = sum(
        max(tally.lanes[index] - tally.words[index] * WORD_BYTES // step.counted_bytes, 0)
        for index, step in enumerate(program.steps)
        if accesses.get(index) in (("shared", "atomic"), ("shared", "reduction"))
        and step.row.of[:1] in (("f32",), ("f64",))
        and step.counted_bytes
    )
    flop = dict.fromkeys(FLOP_COUNTERS.values(), 0)
    for index, step in enumerate(program.steps):
        if step.row.flops:
            flop[FLOP_COUNTERS[_pipe(step.row)]] += step.row.flops * tally.lanes[index]
    by_view = {
        f"{view}_{name}": sum(
            column[index]
            for index, step in enumerate(program.steps)
            if step.row.view == view and step.row.space == "global"
        )
        for view in ("texture", "surface", "bulk")
        for name, column in (("requests", tally.requests), ("sectors", tally.sectors))
    }
    parts = {
        f"{part}_{name}": sum(
            column[index]
            for index, step in enumerate(program.steps)
            if index in accesses and accesses[index][0] == "shared" and is_part(step)
        )
        for part, is_part in _SHARED_PARTS.items()
        for name, column in (("instructions", tally.requests), ("wavefronts", tally.wavefronts))
    }
    detailed = Counters(accesses=table)
    atomics = detailed.total("shared", "atomic", "reduction")
    return Counters.from_table(
        {**table, ("shared", "atomic"): atomics},  # ptxas makes no reductions there
        shared_excessive_wavefronts=detailed.total("shared").excessive_wavefronts,
        l1_wavefronts=sum(
            counts.wavefronts for (space, _), counts in table.items() if space != "constant"
        ),
        shared_atomic_float_conflicts=met,
        requested_atomic_bytes=detailed.total("global", "atomic", "reduction").requested_bytes,
        **flop,
        **by_view,
        **parts,
        shared_product_wavefronts=_product_wavefronts(program, tally, range(len(program.steps))),
        distributed_shared_requests=sum(tally.remote_requests),
        distributed_shared_sectors=sum(tally.remote_sectors),
        thread_instructions=sum(tally.lanes),
        warp_instructions=sum(tally.warps),
    )


def _product_wavefronts(program: Program, tally: Tally, indices: Iterable[int]) -> int:
    """Passes in which the tensor cores read shared memory for products of warpgroups."""
    read = sum(
        tally.warps[index] * warpgroup.read_bytes(program.steps[index].instruction.opcode)
        for index in indices
        if warpgroup.is_product(program.steps[index].instruction.opcode)
    )
    return read // (warpgroup.WARPGROUP_WARPS * LINE_BYTES)


def _pipe(row: Row) -> str:
    """The pipe that does an instruction's FLOPs: a key of `FLOP_COUNTERS`."""
    number = row.to[0].removesuffix("x2")
    return row.tensor or {"f64": "fp64", "f16": "fp16_fma", "bf16": "bf16_fma"}.get(number, "fp32")


def integer_operations(program: Program, tally: Tally) -> dict[int, dict[str, int]]:
    """The integer operations of the PTX by source line and pipe: `alu`, `fma` or `xu`."""
    counts: dict[int, Counter[str]] = {}
    for index, step in enumerate(program.steps):
        if (found := instruction_table.integer_operations(step.row)) and tally.lanes[index]:
            pipe, each = found
            by_pipe = counts.setdefault(step.instruction.source_line, Counter())
            by_pipe[pipe] += each * tally.lanes[index]
    return {line: dict(by_pipe) for line, by_pipe in counts.items()}


def counters_by_line(
    program: Program,
    tally: Tally,
    source: Sequence[str],
    integers: Mapping[int, Mapping[str, int]] | None = None,
) -> tuple[LineCounters, ...]:
    """The counters of each source line that has instructions, by line number.

    Args:
        program: The program that ran.
        tally: The counts of its instructions.
        source: The lines of its source.
        integers: Integer operations by source line and pipe.
    """
    accesses = _accesses(program, tally)
    lines: dict[int, list[int]] = {}
    for index, step in enumerate(program.steps):
        lines.setdefault(step.instruction.source_line, []).append(index)
    operations = {line: sum(by_pipe.values()) for line, by_pipe in (integers or {}).items()}
    return tuple(
        replace(
            _line_counters(program, tally, accesses, line, indices, source),
            iop=operations.get(line, 0),
        )
        for line, indices in sorted(lines.items())
    )


def counters_by_access(
    program: Program, tally: Tally, arrays: Mapping[int, str]
) -> tuple[AccessCounters, ...]:
    """The counters of each source line's accesses to memory, by array and direction.

    Args:
        program: The program that ran.
        tally: The counts of its instructions.
        arrays: Names of the arrays that instructions access, by the instruction's index, where
            known.

    Returns:
        The accesses that happened, by line, and within a line in the order of their first
        instructions.
    """
    accesses = _accesses(program, tally)
    groups: dict[tuple[int, Space, Direction, str], list[int]] = {}
    for index, (space, direction) in accesses.items():
        if tally.requests[index]:
            line = program.steps[index].instruction.source_line
            groups.setdefault((line, space, direction, arrays.get(index, "")), []).append(index)
    return tuple(
        AccessCounters(
            space, direction, array, _line_counters(program, tally, accesses, line, indices)
        )
        for (line, space, direction, array), indices in sorted(
            groups.items(), key=lambda group: group[0][0]
        )
    )


def main_region(program: Program, tally: Tally) -> Region:
    """Add up the loops, or the whole program where they lack arithmetic or global accesses."""
    accesses = _accesses(program, tally)

    def total(included: Sequence[bool], loops: bool) -> Region:
        indices = [index for index, is_included in enumerate(included) if is_included]
        return Region(
            sum(program.steps[index].row.flops * tally.lanes[index] for index in indices),
            sum(tally.bytes[i] for i in indices if i in accesses and accesses[i][0] == "global"),
            loops,
        )

    loops = total(steps_in_loops(program), True)
    if loops.flop and loops.requested_bytes:
        return loops
    return total([True] * len(program.steps), False)


def _line_counters(
    program: Program,
    tally: Tally,
    accesses: Mapping[int, _Access],
    line: int,
    indices: Sequence[int],
    source: Sequence[str] = (),
) -> LineCounters:
    """Add up some instructions of one source line; its text comes from the source."""
    return LineCounters.from_table(
        _access_table(tally, ((accesses[i][0], i) for i in indices if i in accesses)),
        line=line,
        text=source[line - 1] if 0 < line <= len(source) else "",
        flop=sum(program.steps[index].row.flops * tally.lanes[index] for index in indices),
        thread_instructions=sum(tally.lanes[index] for index in indices),
        warp_instructions=sum(tally.warps[index] for index in indices),
        shared_product_wavefronts=_product_wavefronts(program, tally, indices),
        distributed_shared_requests=sum(tally.remote_requests[index] for index in indices),
        distributed_shared_sectors=sum(tally.remote_sectors[index] for index in indices),
    )


def _access_table(
    tally: Tally, instructions: Iterable[tuple[_Key, int]]
) -> dict[_Key, AccessCounts]:
    """Add up the counts of instructions, given with the key to add them under."""
    table: dict[_Key, AccessCounts] = {}
    for key, index in instructions:
        counts = AccessCounts(
            requests=tally.requests[index],
            sectors=tally.sectors[index],
            wavefronts=tally.wavefronts[index],
            excessive_wavefronts=tally.excessive[index],
            requested_bytes=tally.bytes[index],
            used_bytes=tally.used[index],
        )
        table[key] = table.get(key, AccessCounts()) + counts
    return table


def _accesses(program: Program, tally: Tally) -> dict[int, _Access]:
    """The space and the direction of each instruction that accesses memory, by its index.

    An atomic whose result no instruction reads is a reduction, as in ptxas's machine code.
    """
    read = {register for step in program.steps for register in step.registers_read}
    accesses: dict[int, _Access] = {}
    for index, step in enumerate(program.steps):
        direction, space = _DIRECTIONS.get(step.row.kind), _state_space(step, tally, index)
        if not direction or not space:
            continue
        always_atomic = any(name in step.row.opcode for name in _ALWAYS_ATOMIC)
        if adds_to_half(step):  # in a loop, which needs the result
            direction, always_atomic = "atomic", True
        if direction == "atomic" and not always_atomic and read.isdisjoint(step.registers_written):
            direction = "reduction"
        accesses[index] = space, direction
    return accesses


def _state_space(step: DecodedInstruction, tally: Tally, index: int) -> Space | None:
    """The memory space that an instruction accesses; None where it accesses none.

    For a generic address the counts tell: only global accesses have used bytes, and shared ones
    have no sectors.
    """
    match step.row.space:
        case "generic":
            return "global" if tally.used[index] else "local" if tally.sectors[index] else "shared"
        case "const":
            # An access at a fixed place is an operand of the constant bank in the machine code.
            return "constant" if address_registers(step) else None
        case "global" | "shared" | "local" as space:
            return space
    return None
