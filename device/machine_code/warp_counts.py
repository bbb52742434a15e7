"""How often warps execute the blocks, edges and instructions of the machine code.

The threads are known (`projection`). The threads of a warp go together until a branch parts them,
and each part executes what it comes to: `BSYNC` when it waits for the others, and a block before an
`EXIT` that has none. Of branches that the PTX has, too, the emulator counted the parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from memlab.device.machine_code.flow_graph import ENTRY, FlowGraph, always_leaves
from memlab.device.machine_code.ptx_profile import PtxProfile
from memlab.device.machine_code.unrolling import PLACELESS, UnrolledCode
from memlab.device.properties import WARP_SIZE

Floats = NDArray[np.float64]

_SLACK = 1e-6  # against rounding
_EQUAL = 0.01  # by what executions differ that count as equal: those of sampled grids are rounded


@dataclass(frozen=True)
class WarpCounts:
    """Executions by warps.

    Attributes:
        blocks: Of each block.
        edges: Of each edge, the warps of which some thread takes it.
        instructions: Of each instruction.
    """

    blocks: Floats
    edges: Floats
    instructions: Floats


def warp_counts(
    graph: FlowGraph,
    profile: PtxProfile,
    codes: Sequence[UnrolledCode],
    slow: Mapping[int, int],
    block_lanes: Floats,
    edge_lanes: Floats,
) -> WarpCounts:
    """Count the executions by warps.

    Args:
        graph: The flow of the machine code.
        profile: The executions of the PTX.
        codes: Where the machine code holds the bodies of loops.
        slow: Blocks that call functions of ptxas, and the lines of the PTX that need it.
        block_lanes: Executions of each block by threads.
        edge_lanes: Threads that take each edge.
    """
    block_warps = _block_warps(graph, profile, codes, slow, block_lanes, edge_lanes)
    edge_warps = _edge_warps(graph, block_lanes, block_warps, edge_lanes)
    counted = _branching_warps(graph, profile, edge_lanes)
    for number, value in counted.items():
        edge_warps[number] = value
    for block, value in _leaving_warps(graph, counted).items():
        block_warps[block] = min(max(value, float(block_warps[block])), float(block_lanes[block]))
    warps = np.repeat(block_warps, [block.stop - block.start for block in graph.blocks])
    arriving = np.zeros(len(graph.blocks))
    for edge, value in zip(graph.edges, edge_warps.tolist(), strict=True):
        if edge.destination >= 0:
            arriving[edge.destination] += value
    for place, of_block in enumerate(graph.blocks):
        first = of_block.start
        if graph.code.instructions[first].name == "BSYNC":  # each part that arrives
            most = max(arriving[place], block_warps[place])
            warps[first] = min(most, block_lanes[place])
    return WarpCounts(block_warps, edge_warps, warps)


def _block_warps(
    graph: FlowGraph,
    profile: PtxProfile,
    codes: Sequence[UnrolledCode],
    slow: Mapping[int, int],
    block_lanes: Floats,
    edge_lanes: Floats,
) -> Floats:
    """The executions by warps: a block has as many threads a warp as its PTX instructions.

    Those count that are executed at least as often as the block, and of these the ones that are
    executed least: others were moved into it. Where the threads of a warp wait for each other, it
    goes on as it was before they parted.
    """
    heaviest: dict[int, tuple[float, int]] = {}
    for edge, lanes in zip(graph.edges, edge_lanes.tolist(), strict=True):
        heaviest[edge.destination] = max(
            heaviest.get(edge.destination, (0.0, ENTRY)), (lanes, edge.source)
        )
    unrolled = _unrolled_densities(codes, profile)
    slow_densities = _slow_densities(graph, profile, slow)
    joins = _joins(graph)
    density = np.full(len(graph.blocks), 1 / WARP_SIZE)
    for block in range(len(graph.blocks)):
        counts = [
            profile.lines[step.ptx_line]
            for step in graph.instructions(block)
            if step.ptx_line in profile.lines
            and step.is_unconditional
            and step.name not in PLACELESS
        ]
        least = block_lanes[block] * (1 - _EQUAL)
        known = [count for count in counts if not count.guarded and count.lanes > least]
        fewest = min((count.lanes for count in known), default=0.0) * (1 + _EQUAL)
        _, before = heaviest.get(block, (0.0, ENTRY))
        iterations, of_rounds = unrolled.get(block, (0.0, 0.0))
        if block in slow_densities:
            density[block] = slow_densities[block]
        elif fewest and iterations <= fewest <= iterations * (1 + _EQUAL) ** 2:
            density[block] = of_rounds
        elif fewest:
            density[block] = median_low(
                [count.warps / count.lanes for count in known if count.lanes <= fewest]
            )
        elif before >= 0:  # as many threads a warp as most come with
            density[block] = density[before]
        if block in joins:
            parted = joins[block]
            most = float(density[parted] * block_lanes[parted])
            all_arrive = block_lanes[block] >= block_lanes[parted] * (1 - _EQUAL)
            if all_arrive or density[block] * block_lanes[block] > most:
                density[block] = most / block_lanes[block] if block_lanes[block] else 0.0
    warps: Floats = block_lanes * density
    return warps


def _slow_densities(
    graph: FlowGraph, profile: PtxProfile, slow: Mapping[int, int]
) -> dict[int, float]:
    """The warps per thread of calls for slow paths, of the functions and behind them, by block."""
    lanes, warps = defaultdict[int, float](float), defaultdict[int, float](float)
    sources: dict[int, set[int]] = defaultdict(set)
    for edge in graph.edges:
        sources[edge.destination].add(edge.source)
    for call in graph.calls:
        if call.block in slow:
            count = profile.lines[slow[call.block]]
            back = [block for block, before in sources.items() if before == {call.block}]
            for block in (call.block, *back, *graph.reached_from(call.function)):
                lanes[block] += count.slow_lanes
                warps[block] += count.slow_warps
    return {block: warps[block] / lanes[block] for block in lanes if lanes[block]}


def _unrolled_densities(
    codes: Sequence[UnrolledCode], profile: PtxProfile
) -> dict[int, tuple[float, float]]:
    """The warps per thread of code that holds the bodies of loops, where their trips are known.

    Returns:
        By block, how often threads execute the loop of the PTX, and the warps per thread.
    """
    densities = {}
    for code in codes:
        loop = profile.loops[code.loop]
        if code.copies not in loop.unrolled:
            continue
        lanes = loop.unrolled[code.copies].total
        warps = loop.unrolled_warps[code.copies].total
        longer = [other.copies for other in codes if other.loop == code.loop]
        longer = [copies for copies in longer if copies > code.copies and copies in loop.unrolled]
        pair = (min(longer, default=0), code.copies)
        if longer and pair in loop.rest_warps:
            lanes -= min(longer) / code.copies * loop.unrolled[min(longer)].total
            warps = loop.rest_warps[pair]
        elif longer:
            saved = min(longer) / code.copies
            lanes -= saved * loop.unrolled[min(longer)].total
            warps -= saved * loop.unrolled_warps[min(longer)].total
        if lanes > 0:
            density = min(max(warps / lanes, 1 / WARP_SIZE), 1.0)
            densities[code.block] = loop.iterations, density
    return densities


def _edge_warps(
    graph: FlowGraph, block_lanes: Floats, block_warps: Floats, edge_lanes: Floats
) -> Floats:
    """The warps of which some thread takes each edge.

    Where a branch sends full warps one way, the other warps go the other way. Where it sends parts
    of warps, the other parts go the other way.
    """
    outward: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        outward[edge.source].append(number)
    warps = np.zeros(len(graph.edges))
    for block, numbers in outward.items():
        for number in numbers:
            if block == ENTRY:
                warps[number] = block_warps[0]
            elif len(numbers) == 1:
                warps[number] = block_warps[block]
            elif block_lanes[block]:
                others = [other for other in numbers if other != number]
                taken = sum(
                    edge_lanes[other]
                    * _density(graph.edges[other].destination, block, block_lanes, block_warps)
                    for other in others
                )
                full = block_warps[block] / block_lanes[block]
                lanes = sum(edge_lanes[other] for other in others)
                diverged = taken > lanes * full * (1 + _SLACK)
                left = block_warps[block] if diverged else block_warps[block] - taken
                warps[number] = min(max(left, edge_lanes[number] / WARP_SIZE), edge_lanes[number])
    return warps


def _joins(graph: FlowGraph) -> dict[int, int]:
    """Blocks that begin with a `BSYNC`, and those in which the threads were still together."""
    joins = {}
    for number in range(len(graph.blocks)):
        for step in graph.instructions(number):
            behind = None if step.target is None else graph.code.positions.get(step.target)
            if step.name == "BSSY" and behind:  # it names what comes behind the BSYNC
                join = graph.block_at(behind - 1)
                is_first = graph.blocks[join].start == behind - 1
                if is_first and graph.instructions(join)[0].name == "BSYNC":
                    joins[join] = number
    return joins


def _branching_warps(graph: FlowGraph, profile: PtxProfile, edge_lanes: Floats) -> dict[int, float]:
    """The warps that take the edges of branches that are executed as those of the PTX, by edge.

    Both ways of a branch are told apart by the threads that take them.
    """
    outward: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        outward[edge.source].append(number)
    branches: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by line: on, and away
    for block, numbers in outward.items():
        if block != ENTRY and len(numbers) == 2:
            on, away = sorted(numbers, key=lambda n: graph.edges[n].destination != block + 1)
            branches[graph.instructions(block)[-1].ptx_line].append((on, away))
    found: dict[int, float] = {}
    for line, pairs in branches.items():
        count = profile.lines.get(line)
        if count is None or not count.taken_lanes:
            continue
        taken = count.taken_lanes, count.taken_warps
        passed = count.lanes - taken[0], count.warps - taken[1] + count.parted_warps
        sums = [sum(float(edge_lanes[pair[way]]) for pair in pairs) for way in (0, 1)]
        for ways in ((passed, taken), (taken, passed)):
            errors = [abs(total - lanes) for total, (lanes, _) in zip(sums, ways, strict=True)]
            if sum(errors) <= _EQUAL * count.lanes:
                for number, (lanes, warps) in (
                    (pair[way], ways[way]) for pair in pairs for way in (0, 1)
                ):
                    found[number] = float(edge_lanes[number]) * warps / lanes if lanes else 0.0
                break
    return found


def _leaving_warps(graph: FlowGraph, counted: Mapping[int, float]) -> dict[int, float]:
    """The warps of blocks in which threads end, each time that some arrive, by block.

    Threads that leave a loop one after the other meet at a `BSYNC`. Before an `EXIT` there may be
    none.
    """
    inward: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(graph.edges):
        inward[edge.destination].append(number)
    found = {}
    for block in range(len(graph.blocks)):
        steps = graph.instructions(block)
        ends = steps[-1].name == "EXIT" and always_leaves(steps[-1])
        if ends and steps[0].name != "BSYNC" and all(n in counted for n in inward[block]):
            found[block] = sum(counted[number] for number in inward[block])
    return found


def _density(destination: int, source: int, block_lanes: Floats, block_warps: Floats) -> float:
    """The warps per thread behind a branch; where its threads end, those before it."""
    block = destination if destination >= 0 and block_lanes[destination] else source
    return float(block_warps[block] / block_lanes[block])
