"""The widths of shared-memory accesses in the machine code.

ptxas merges neighbouring loads of a thread into wider ones, and loads of several iterations of a
loop that it unrolls. `access_merging` predicts this from the PTX; the machine code knows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from memlab.device.access_counts import AccessCounts
from memlab.device.emulator.isa.macros import is_async_copy_store, is_matrix_load, is_matrix_store
from memlab.device.emulator.isa.rows import CLUSTER_VIEW
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.program import ATOMIC_KINDS, DecodedInstruction, Program
from memlab.device.machine_code.disassembly import DisassemblyError
from memlab.device.machine_code.executed_code import ExecutedCode
from memlab.device.machine_code.flow_graph import FlowGraph
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.retries import (
    SWAP_WAVEFRONTS,
    cas_lines,
    is_global_cas,
    is_swap,
    retried_lines,
)
from memlab.device.properties import SHARED_BANK_BYTES

_OTHER_INSTRUCTIONS = (is_async_copy_store, is_matrix_load, is_matrix_store)
_NAMES = {"load": "LDS", "store": "STS"}
_MATRIX_LOAD = "LDSM"
_WIDTH_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_COUNTED = ("requests", "wavefronts", "excessive")


def with_machine_widths(graph: FlowGraph, program: Program) -> Program:
    """Count the shared accesses of a program with the widths that the machine code has.

    A line of the PTX without an access in the machine code was merged into another one. Where the
    machine code has accesses that no line of the PTX explains, the prediction stays. An addition
    whose lanes take turns is marked.
    """
    program = _with_turns(graph, program)
    by_line = _accesses_by_line(graph)
    depth = Counter(block for _, blocks in graph.loops for block in blocks)
    steps = list(program.steps)
    explained = {s.instruction.ptx_line for s in steps if s.row.space in ("shared", "generic")}
    if not explained.issuperset(by_line):
        return program
    for index, step in enumerate(steps):
        if not _is_merged_alone(step):
            continue
        if _loads_matrices(step, by_line):
            steps[index] = replace(step, as_matrix=True, counted_bytes=SHARED_BANK_BYTES)
            continue
        found = [
            (depth[block], _width_bytes(access))
            for block, access in by_line.get(step.instruction.ptx_line, ())
            if access.name == _NAMES[step.row.kind]
        ]
        deepest = max((level for level, _ in found), default=0)
        widths = Counter(width for level, width in found if level == deepest)
        width = widths.most_common(1)[0][0] if widths else 0
        steps[index] = replace(step, counted_bytes=width)
    return replace(program, steps=tuple(steps))


def _loads_matrices(
    step: DecodedInstruction, by_line: Mapping[int, list[tuple[int, MachineInstruction]]]
) -> bool:
    """Whether the machine code loads an instruction's words as rows of matrices.

    So it does for `wmma.load`: an `LDSM` for several of the loads that stand for it, of 8 rows
    each.
    """
    found = {access.name for _, access in by_line.get(step.instruction.ptx_line, ())}
    return step.row.kind == "load" and found == {_MATRIX_LOAD}


def _with_turns(graph: FlowGraph, program: Program) -> Program:
    """Mark the atomics whose lanes with one address are served one after another.

    An H200 counted a wavefront for each of them at `ATOMS.ADD`, and one for all at
    `ATOMS.POPC.INC`, which counts the lanes, and at `ATOMS.CAST`, which succeeds for one
    (docs/results/README.md, "Truth"). Other operations were not measured.
    """
    adding = {
        step.ptx_line for step in graph.code.instructions if step.opcode.startswith("ATOMS.ADD")
    }
    steps = (
        replace(step, lanes_in_turn=True)
        if step.row.kind in ATOMIC_KINDS
        and step.row.space == "shared"
        and step.instruction.ptx_line in adding
        else step
        for step in program.steps
    )
    return replace(program, steps=tuple(steps)) if adding else program


def loads_of_atomics(executed: ExecutedCode, program: Program, tally: Tally) -> AccessCounts:
    """The shared loads of atomics that have no instruction of their own.

    `atom.shared.add.f32` is a loop that loads the word, computes, and stores it by `ATOMS.CAST`,
    which fails where another lane was first, in as many rounds as `retries` tells. An H100 counted
    the bank conflicts at the loads, which are those of the lanes that are left.
    """
    lines, by_line = retried_lines(executed.graph), _accesses_by_line(executed.graph)
    made = sum(
        float(executed.executions.block_warps[block])
        for line in lines
        for block, access in by_line.get(line, ())
        if access.name == "LDS"
    )
    excessive = sum(
        tally.requests[index] * executed.attempts[step.instruction.ptx_line].excessive
        for index, step in enumerate(program.steps)
        if step.instruction.ptx_line in executed.attempts and _is_shared_atomic(step)
    )
    return AccessCounts(
        requests=round(made),
        wavefronts=round(made + excessive),
        excessive_wavefronts=round(excessive),
    )


def with_swaps(executed: ExecutedCode | DisassemblyError, program: Program, tally: Tally) -> Tally:
    """Count the compare-and-swaps of atomics that are loops as their requests.

    Those in global memory access the sectors of their lanes' addresses, as other atomics do. Nsight
    Compute counts a sector for each lane, even if all have one address
    (docs/results/h200-cas-loops.csv).
    """
    if isinstance(executed, DisassemblyError):
        return tally
    shared, of_global = _swaps(executed)
    requests, sectors, wavefronts, excessive = (
        list(column)
        for column in (tally.requests, tally.sectors, tally.wavefronts, tally.excessive)
    )
    halves = cas_lines(executed.graph, program)
    atomics = [
        (index, step.instruction.ptx_line, step)
        for index, step in enumerate(program.steps)
        if step.row.kind in ATOMIC_KINDS and tally.requests[index]
    ]
    asked, active = Counter[int](), Counter[int]()  # a function that is inlined twice has two
    for index, line, _ in atomics:
        asked[line] += tally.requests[index]
        active[line] += tally.lanes[index]
    for index, line, step in atomics:
        share = tally.requests[index] / asked[line]
        if line in shared and _is_shared_atomic(step):
            requests[index] = round(shared[line][0] * share)
            width = max(step.counted_bytes / SHARED_BANK_BYTES, 1.0)
            wavefronts[index] = round(SWAP_WAVEFRONTS * width * requests[index])
            excessive[index] = 0
        elif line in halves and sectors[index]:
            warps, lanes = of_global[line]
            requests[index] = round(warps * share)
            sectors[index] = round(sectors[index] * lanes / active[line])
    return replace(
        tally, requests=requests, sectors=sectors, wavefronts=wavefronts, excessive=excessive
    )


def _swaps(
    executed: ExecutedCode,
) -> tuple[Mapping[int, tuple[float, float]], Mapping[int, tuple[float, float]]]:
    """How often warps and lanes execute the compare-and-swaps of each line of the PTX.

    Returns:
        Those in shared memory, and those in global memory.
    """
    found: tuple[dict[int, tuple[float, float]], ...] = {}, {}
    for place, swap in enumerate(executed.graph.code.instructions):
        if is_swap(swap) or is_global_cas(swap):
            of = found[is_global_cas(swap)]
            warps, lanes = of.get(swap.ptx_line, (0.0, 0.0))
            warps += float(executed.executions.warps[place])
            of[swap.ptx_line] = warps, lanes + float(executed.executions.lanes[place])
    return found[0], found[1]


def _is_shared_atomic(step: DecodedInstruction) -> bool:
    return step.row.kind in ATOMIC_KINDS and step.row.space == "shared"


def count_machine_accesses(executed: ExecutedCode, program: Program, tally: Tally) -> None:
    """Count the shared accesses that the machine code makes.

    One access may serve several iterations of a loop, and a predicate may take a branch's place.

    Args:
        executed: The machine code with its executions.
        program: The program, with the machine code's widths.
        tally: The counts of the program, which are changed.
    """
    by_line, first = _accesses_by_line(executed.graph), dict[int, int]()
    for index, step in enumerate(program.steps):
        found = by_line.get(step.instruction.ptx_line, ())
        if not found or not _is_merged_alone(step) or not tally.warps[index]:
            continue
        made = sum(float(executed.executions.block_warps[block]) for block, _ in found)
        if step.as_matrix:
            _count_as_first(first.setdefault(step.instruction.ptx_line, index), index, tally)
            tally.requests[first[step.instruction.ptx_line]] = round(made)
            continue
        if step.instruction.guard or any(access.predicate for _, access in found):
            # The hardware counts the instruction also where the predicate of all lanes is off.
            tally.requests[index] = max(tally.requests[index], round(made))
            continue
        share = made / tally.warps[index]
        if share < 1:
            for name in _COUNTED:
                column = getattr(tally, name)
                column[index] = round(column[index] * share)


def _count_as_first(first: int, index: int, tally: Tally) -> None:
    """Count an access with the first one of its line, whose instruction makes both."""
    if index != first:
        for name in _COUNTED:
            column = getattr(tally, name)
            column[first] += column[index]
            column[index] = 0


def _is_merged_alone(step: DecodedInstruction) -> bool:
    """Whether an instruction is a shared access of its own line, which ptxas may merge."""
    return (
        step.row.kind in _NAMES
        and step.row.space == "shared"
        and step.row.view != CLUSTER_VIEW
        and step.instruction.opcode.startswith(("ld.", "st."))
        and not any(is_part(step.instruction) for is_part in _OTHER_INSTRUCTIONS)
    )


def _accesses_by_line(graph: FlowGraph) -> Mapping[int, list[tuple[int, MachineInstruction]]]:
    """The shared loads and stores of the machine code with their blocks, by line of the PTX."""
    found: dict[int, list[tuple[int, MachineInstruction]]] = defaultdict(list)
    for block in range(len(graph.blocks)):
        for step in graph.instructions(block):
            if step.name in (*_NAMES.values(), _MATRIX_LOAD):
                found[step.ptx_line].append((block, step))
    return found


def _width_bytes(step: MachineInstruction) -> int:
    """The bytes that a thread loads or stores."""
    modifiers = step.opcode.split(".")[1:]
    return next((_WIDTH_BYTES[name] for name in modifiers if name in _WIDTH_BYTES), 4)
