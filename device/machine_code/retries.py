"""Loops in the machine code of one instruction of the PTX, which lanes leave one after the other.

`atom.shared.add.f32` loads the word, adds to it, and stores it by `ATOMS.CAST`, a compare-and-swap
that succeeds for one lane of those whose words lie in one bank. The others try again: 32 lanes that
add to words of one bank took 32 rounds on an H100, and random words as many as the fullest bank has
lanes (docs/results/h100-shared-additions.csv). An addition of a half in global memory is such a
loop, too, of `ATOM.CAS` on the word that has it. The PTX shows nothing of these rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.program.program import (
    ATOMIC_KINDS,
    DecodedInstruction,
    Program,
)
from memlab.device.machine_code.flow_graph import EXIT, FlowGraph
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.projection import Executions

_COMPARE_AND_SWAP = "ATOMS.CAST"
_GLOBAL_ATOMICS = frozenset(("ATOM", "ATOMG"))
_HALVES = frozenset(("f16", "bf16"))
SWAP_WAVEFRONTS = 2.0
"""Wavefronts of a compare-and-swap in shared memory of 4 bytes per lane, whatever its words are; of
8 bytes it takes twice as many (ibid.)."""


@dataclass(frozen=True)
class SharedAdditions:
    """The additions of some blocks in shared memory that are such loops.

    Attributes:
        lines: The line of the PTX of each.
        lanes_at_once: The lanes of each that the banks serve at the same time: 32 of 4 bytes.
        words: By block, its warp and addition, the words of its executions in their order, shape
            (executions, 32); -1 of a lane that does not add. Words are numbered from 0. Empty if
            there are no additions.
        banks: The bank of each word, of its first one if it has several.
    """

    lines: tuple[int, ...] = ()
    lanes_at_once: tuple[int, ...] = ()
    words: tuple[tuple[tuple[NDArray[np.int64], ...], ...], ...] = ()
    banks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Attempts:
    """How often the lanes of a warp try, in the mean over its executions of an atomic.

    Attributes:
        warp: Rounds of the loop by the warp, until the last lane has succeeded.
        lane: Rounds of the loop by a lane.
        groups: Groups of lanes that leave the loop together.
        excessive: Wavefronts of its loads in all rounds that bank conflicts cause.
    """

    warp: float = 1.0
    lane: float = 1.0
    groups: float = 1.0
    excessive: float = 0.0


def is_swap(step: MachineInstruction) -> bool:
    """Whether an instruction is the compare-and-swap of such a loop."""
    return step.opcode.startswith(_COMPARE_AND_SWAP)


def is_global_cas(step: MachineInstruction) -> bool:
    """Whether an instruction is a compare-and-swap in global memory, or at a generic address."""
    return step.name in _GLOBAL_ATOMICS and "CAS" in step.opcode.split(".")


def adds_to_half(step: DecodedInstruction) -> bool:
    """Whether an instruction of the PTX adds to one half, which ptxas makes a loop."""
    row = step.row
    return row.kind in ATOMIC_KINDS and row.of[0] in _HALVES and row.vector == 1


def with_lines_of_halves(graph: FlowGraph, program: Program) -> FlowGraph:
    """Machine code in which loops of additions to halves have the lines of these in the PTX.

    ptxas gives some the line of an instruction before, such as the conversion of the addend.
    """
    halves = sorted({s.instruction.ptx_line for s in program.steps if adds_to_half(s)})
    if not halves:
        return graph
    known = {s.instruction.ptx_line for s in program.steps if s.row.kind in ATOMIC_KINDS}
    found = list(graph.code.instructions)
    for block in {edge.source for edge in graph.edges if edge.source == edge.destination}:
        place = graph.blocks[block]
        lines = {step.ptx_line for step in graph.instructions(block) if is_global_cas(step)}
        for line in lines - known:
            of = next((each for each in halves if each > line), halves[-1])
            for number in range(place.start, place.stop):
                if found[number].ptx_line == line:
                    found[number] = replace(found[number], ptx_line=of)
    return replace(graph, code=replace(graph.code, instructions=tuple(found)))


def cas_lines(graph: FlowGraph, program: Program) -> frozenset[int]:
    """The lines of the PTX whose additions of halves are loops of compare-and-swap."""
    swaps = {step.ptx_line for step in graph.code.instructions if is_global_cas(step)}
    return frozenset(
        step.instruction.ptx_line
        for step in program.steps
        if step.instruction.ptx_line in swaps and adds_to_half(step)
    )


def retried_lines(graph: FlowGraph) -> frozenset[int]:
    """The lines of the PTX whose atomics in shared memory are loops in the machine code."""
    return frozenset(step.ptx_line for step in graph.code.instructions if is_swap(step))


def with_retries(
    executions: Executions, graph: FlowGraph, attempts: Mapping[int, Attempts]
) -> Executions:
    """Executions in which each loop of an atomic has its rounds.

    Args:
        executions: The executions with one round of each loop.
        graph: The machine code.
        attempts: Those of each atomic, by its line of the PTX.
    """
    if not attempts:
        return executions
    found = replace(
        executions, **{name: getattr(executions, name).copy() for name in vars(executions)}
    )
    for block, place in enumerate(graph.blocks):
        of_lines = {
            step.ptx_line
            for step in graph.instructions(block)
            if is_swap(step) or is_global_cas(step)
        }
        ways = {e.destination: n for n, e in enumerate(graph.edges) if e.source == block}
        if block not in ways or not of_lines & attempts.keys():
            continue
        tries = attempts[min(of_lines & attempts.keys())]
        for by_block, by_edge, by_instruction, rounds in (
            (found.block_warps, found.edge_warps, found.warps, tries.warp),
            (found.block_lanes, found.edge_lanes, found.lanes, tries.lane),
        ):
            by_edge[ways[block]] += by_block[block] * (rounds - 1)
            by_block[block] *= rounds
            by_instruction[place.start : place.stop] *= rounds
        for behind in ways.keys() - {block, EXIT}:
            first = graph.blocks[behind].start
            if graph.code.instructions[first].name == "BSYNC":
                found.warps[first] *= tries.groups
    return found
