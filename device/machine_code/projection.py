"""Projects the executions of PTX instructions on the basic blocks of the machine code.

The emulator knows how often each PTX instruction was executed. ptxas unrolls, peels and hoists, and
merges and removes instructions, so that the counts of a PTX line do not carry over to the
instructions that come from it. But these facts hold for the machine code as a whole:

- As many threads leave a block as enter it.
- The copies of an instruction that ptxas neither duplicates nor removes, over all blocks, are
  executed as often as the PTX instruction: accesses to memory, barriers and floating-point
  arithmetic. Of other instructions the copies are executed at most as often, as a rule.
- A loop is executed at most as often, each time it is entered, as the trip count of the PTX's loop
  allows. Of loops unrolled by different factors, the most unrolled one takes all that it can.

They make a linear program over the edges. Each deviation from the second rule costs what it is
relative to the PTX's count; among equals the fewest instructions are taken. The costs below only
rank the rules: they were chosen by how often a rule fails, not by a kernel's counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.asynchronous.warpgroup import is_product
from memlab.device.machine_code.flow_graph import ENTRY, FlowGraph
from memlab.device.machine_code.linear_program import LinearProgram
from memlab.device.machine_code.ptx_profile import SEVERAL, PtxCount, PtxProfile
from memlab.device.machine_code.slow_paths import avoided_blocks, slow_calls
from memlab.device.machine_code.unrolling import (
    ACCESSES,
    ADDITIONS,
    MERGED,
    PLACELESS,
    TENSOR,
    WARPGROUP,
    UnrolledCode,
    counted_trips,
    impossible_entries,
    is_arithmetic,
    last_trips,
    loop_limits,
    round_limits,
    tensor_expansion,
    unrolled_code,
    unrolled_shares,
)
from memlab.device.machine_code.warp_counts import warp_counts

Floats = NDArray[np.float64]

_CLUSTER_BARRIER = ("UCGABAR_ARV", "UCGABAR_WAIT")
"""The barrier of a cluster. The machine code of a kernel that declares no cluster asks whether the
launch has one, and otherwise waits for the block alone; the PTX does not show this branch."""

_ASYNC_COPY = "LDGSTS"
"""One for each `cp.async`, which the emulator executes as several instructions."""

# What a deviation of the size of the PTX's count costs: to fall short, and to exceed.
_ACCESS_COSTS = 5.0, 5.0
_ARITHMETIC_COSTS = 0.5, 1.0  # it may be moved to where its result is needed
_MERGED_COSTS = 0.1, 1.0
_COUNTER_COSTS = 0.1, 1.0  # the last trips need not move it on
_OTHER_COSTS = 0.01, 0.1
_COSTS = (_ACCESS_COSTS, _ARITHMETIC_COSTS, _MERGED_COSTS, _OTHER_COSTS)
_UNLIKELY_COST = 5.0  # of all threads taking a way for rare cases, such as a division's slow path
_INSTRUCTION_COST = 0.005  # of as many instructions as the PTX has
_UNROLLED_BONUS = 0.3  # of all iterations in the most unrolled code
_LEAST_SHARE = 0.03  # deviations count relative to at least this share of the threads
_UNEVEN_COST = 0.02  # of as many rounds, beyond those of even trips, as there are threads
_IMPOSSIBLE_COST = 1000.0  # of all threads making a round that no trips are left for
_LAST_TRIP_COST = 1.0  # of a peeled trip that is not the last one of each entry
_SLACK = 1e-6  # against rounding


@dataclass(frozen=True)
class Executions:
    """How often the parts of machine code are executed.

    Attributes:
        block_lanes: Executions of each block by threads, shape (blocks,).
        block_warps: Executions of each block by warps, shape (blocks,).
        edge_lanes: Threads that take each edge, shape (edges,).
        edge_warps: Warps of which some thread takes each edge, shape (edges,).
        lanes: Executions of each instruction by threads, with those whose predicate is off, shape
            (instructions,).
        warps: Executions of each instruction by warps, shape (instructions,).
    """

    block_lanes: Floats
    block_warps: Floats
    edge_lanes: Floats
    edge_warps: Floats
    lanes: Floats
    warps: Floats


@dataclass(frozen=True)
class _Anchor:
    """The copies of an instruction, which together should be executed as often as in the PTX."""

    copies: tuple[tuple[int, float], ...]  # by block
    lanes: float


def project(
    graph: FlowGraph, profile: PtxProfile, *, is_one_warp: bool = False
) -> Executions | None:
    """Project the executions of PTX instructions on the blocks and edges.

    Args:
        graph: The flow of the machine code.
        profile: The executions of the PTX, of the whole grid or of any part of it.
        is_one_warp: Whether it is of one warp. Where the PTX does not decide between ways, a warp
            takes one of them, and those of a grid are taken to take all.

    Returns:
        The executions; None if the machine code cannot be brought into agreement with the PTX.
    """
    blocks = len(graph.blocks)
    sizes = [block.stop - block.start for block in graph.blocks]
    codes, slow = unrolled_code(graph, profile), slow_calls(graph, profile)
    if not profile.threads:
        edge_lanes = np.zeros(len(graph.edges))
    else:
        found = _edge_lanes(graph, profile, codes, slow, is_one_warp)
        if found is None:
            return None
        edge_lanes = found
    block_lanes = np.zeros(blocks)
    for edge, value in zip(graph.edges, edge_lanes, strict=True):
        if edge.destination >= 0:
            block_lanes[edge.destination] += value
    for call in graph.calls:
        block_lanes[call.function] += block_lanes[call.block]
    warps = warp_counts(graph, profile, codes, slow, block_lanes, edge_lanes)
    lanes = np.repeat(block_lanes, sizes)
    return Executions(block_lanes, warps.blocks, edge_lanes, warps.edges, lanes, warps.instructions)


def _edge_lanes(
    graph: FlowGraph,
    profile: PtxProfile,
    codes: Sequence[UnrolledCode],
    slow: Mapping[int, int],
    is_one_warp: bool,
) -> Floats | None:
    """The threads on each edge: the solution of the linear program, in shares of all threads."""
    threads = profile.threads
    program = LinearProgram()
    for _ in graph.edges:
        program.add_variable()
    inward: dict[int, list[int]] = defaultdict(list)
    outward: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        inward[edge.destination].append(number)
        outward[edge.source].append(number)
    entering = {block: list(inward[block]) for block in range(len(graph.blocks))}
    for call in graph.calls:
        entering[call.function] += inward[call.block]

    for number in outward[ENTRY]:
        program.require_equal({number: 1.0}, 1.0)
    per_instruction = _INSTRUCTION_COST * threads / max(sum(c.lanes for c in profile.counts), 1)
    unlikely = (graph.rare_blocks - slow.keys()) | avoided_blocks(graph)
    for block, numbers in entering.items():
        size = graph.blocks[block].stop - graph.blocks[block].start
        flow: dict[int, float] = defaultdict(float)
        for number in numbers:
            flow[number] += 1.0
            rare = _UNLIKELY_COST if block in unlikely else 0.0
            program.add_cost(number, per_instruction * size + rare)
        for number in outward[block]:
            flow[number] -= 1.0
        program.require_equal(flow, 0.0)
    for number in impossible_entries(graph):
        program.add_cost(number, _UNLIKELY_COST)
    for line in set(slow.values()):
        calls = [block for block, its_line in slow.items() if its_line == line]
        row = dict.fromkeys((number for block in calls for number in inward[block]), 1.0)
        lanes = profile.lines[line].slow_lanes / threads
        cost = 1 / max(lanes, _LEAST_SHARE)
        program.prefer_equal(row, lanes, *(cost * each for each in _ACCESS_COSTS))
    for limit in loop_limits(codes, profile):
        row = dict.fromkeys(inward[limit.header], 1.0)
        program.require_at_most(row, limit.most / threads * (1 + _SLACK))
        per_entry = limit.most_per_entry * (1 + _SLACK)
        program.require_at_most(
            {n: 1.0 - per_entry * (graph.edges[n].source in limit.entering) for n in row}, 0.0
        )
        usual = limit.usual_per_entry * (1 + _SLACK)
        program.prefer_at_most(
            {n: 1.0 - usual * (graph.edges[n].source in limit.entering) for n in row},
            0.0,
            _UNEVEN_COST,
        )
    for loop, block in last_trips(graph, profile, codes).items():
        row = dict.fromkeys(entering[block], 1.0)
        entries = profile.loops[loop].entries / threads
        cost = _LAST_TRIP_COST / max(entries, _LEAST_SHARE)
        program.prefer_equal(row, entries, cost, cost)
    for rounds in round_limits(codes, profile):
        row = defaultdict(float)
        for block, number_of_rounds in rounds.rounds.items():
            for number in entering[block]:
                row[number] += number_of_rounds
        program.prefer_at_most(row, rounds.most / threads * (1 + _SLACK), _IMPOSSIBLE_COST)
    for block, saved in unrolled_shares(graph, profile).items():
        for number in entering[block]:
            program.add_cost(number, -_UNROLLED_BONUS * saved * threads)
    for anchor, (short_cost, excess_cost) in _anchors(graph, profile).items():
        row = defaultdict(float)
        for block, copies in anchor.copies:
            for number in entering[block]:
                row[number] += copies
        program.prefer_equal(row, anchor.lanes / threads, short_cost, excess_cost)
    solution = program.solve(central=not is_one_warp)
    return None if solution is None else solution[: len(graph.edges)] * threads


def _anchors(graph: FlowGraph, profile: PtxProfile) -> dict[_Anchor, tuple[float, float]]:
    """What the PTX's counts say of the blocks, and what it costs to fall short and to exceed."""
    lines = profile.lines
    lanes = {line: whole.lanes / profile.threads for line, whole in lines.items()}
    found: dict[int, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    trips: dict[int, dict[int, float]] = defaultdict(dict)
    most: list[float] = []
    products: Counter[int] = Counter()
    for block in range(len(graph.blocks)):
        known = []
        for line, times in counted_trips(graph, [block], lines).items():
            trips[line][block] = times
        for step in graph.instructions(block):
            line = step.ptx_line
            if step.name in WARPGROUP:
                products[block] += 1
            elif line in lines and step.is_unconditional and step.name not in PLACELESS:
                known.append(lanes[line])
                found[line][step.opcode][block] += 1
        most.append(max(known, default=0.0))
    anchors: dict[_Anchor, tuple[float, float]] = {}
    for line, by_opcode in found.items():
        if lines[line].guarded:
            continue
        additions = [by for opcode, by in by_opcode.items() if opcode.startswith(ADDITIONS)]
        if line in trips and all(trips[line].keys() >= by.keys() for by in additions):
            (short_cost, excess_cost), copies = _COUNTER_COSTS, trips[line]
        else:
            (short_cost, excess_cost), copies = _counted_copies(lines[line], by_opcode)
        # What exceeds its count by far was moved; no block is executed more than its busiest line.
        own = max(lanes[line], _LEAST_SHARE)
        busiest = max(own, *(most[block] for block in copies))
        # Lines that say the same are one constraint: it keeps the linear program small.
        key = _Anchor(tuple(sorted(copies.items())), lanes[line] * profile.threads)
        short, excess = anchors.get(key, (0.0, 0.0))
        anchors[key] = short + short_cost / own, excess + excess_cost / busiest
    if products:  # ptxas gives them the lines of others around them
        whole = sum(count.lanes for count in profile.counts if is_product(count.opcode))
        places = tuple((block, float(number)) for block, number in sorted(products.items()))
        cost = 1 / max(whole / profile.threads, _LEAST_SHARE)
        anchors[_Anchor(places, whole)] = (cost * _COSTS[0][0], cost * _COSTS[0][1])
    return anchors


def _counted_copies(
    count: PtxCount, by_opcode: Mapping[str, Mapping[int, int]]
) -> tuple[tuple[float, float], dict[int, float]]:
    """How the machine code of a PTX line counts its executions.

    Returns:
        What it costs to fall short and to exceed, and the executions of the line for each
        execution of a block. They are counted by the rarest instruction: a line may take several
        instructions, some of them more than once.
    """
    opcode = min(by_opcode, key=lambda opcode: _rank(count, opcode, by_opcode[opcode]))
    rank, _, _ = _rank(count, opcode, by_opcode[opcode])
    copies = {block: float(number) for block, number in by_opcode[opcode].items()}
    costs = _COSTS[rank]
    per_execution = min(copies.values()) if costs is _OTHER_COSTS else 1.0
    if opcode.startswith(TENSOR):
        per_execution = tensor_expansion(count.opcode, opcode) or min(copies.values())
    return costs, {block: number / per_execution for block, number in copies.items()}


def _rank(count: PtxCount, opcode: str, copies: Mapping[int, int]) -> tuple[int, int, str]:
    """The order in which the instructions of a line are preferred to count it."""
    name, times = opcode.partition(".")[0], sum(copies.values())
    if count.opcode == SEVERAL and name != _ASYNC_COPY:
        return 3, times, opcode
    if name in _CLUSTER_BARRIER:
        return 0, 0, opcode
    if name in ACCESSES or (name in TENSOR and tensor_expansion(count.opcode, opcode)):
        return 0, times, opcode
    if is_arithmetic(name, count.opcode):
        return 1, times, opcode
    return (2 if name in MERGED else 3), times, opcode
