"""Calls of ptxas's functions for divisions and roots of operands such as zeros.

Which way a function takes depends on the operands, of which only their number is known. Most of
them are zeros.
"""

from __future__ import annotations

from memlab.device.emulator.isa.slow_paths import slow_operands
from memlab.device.machine_code.flow_graph import EXIT, FlowGraph
from memlab.device.machine_code.ptx_profile import PtxProfile

_ZERO_WAYS = {
    "div_rn_noftz_f32_slowpath": "----T",  # zero by another number
    "rcp_rn_f32_slowpath": "-",
    "sqrt_rn_f32_slowpath": "T",
    "div_rn_f64_full": "T---",
    "dblrcp_rn_slowpath": "-T",
    "dsqrt_rn_f64_mediumpath": "TT",
}
"""The conditional branches of a function that a zero takes (T) and does not take, in their order.

An H100 executed these ways (tests/data/h100-slow-paths.csv, machine code of NVRTC 13.5).
"""


def slow_calls(graph: FlowGraph, profile: PtxProfile) -> dict[int, int]:
    """Blocks that call one of the compiler's own functions, and the line that needs it.

    Only those of lines of which it is known how often their operands need it.
    """
    lines = profile.lines
    called = {call.block: graph.instructions(call.block)[-1].ptx_line for call in graph.calls}
    return {
        block: line
        for block, line in called.items()
        if block in graph.rare_blocks and line in lines and slow_operands(lines[line].opcode)
    }


def avoided_blocks(graph: FlowGraph) -> frozenset[int]:
    """The blocks of these functions that a zero does not come to."""
    avoided: set[int] = set()
    for function in {call.function for call in graph.calls}:
        name = graph.code.functions.get(graph.instructions(function)[0].address, "")
        outcomes = next((way for part, way in _ZERO_WAYS.items() if part in name), "")
        way = _way(graph, function, outcomes)
        if way:
            avoided |= graph.reached_from(function) - way
    return frozenset(avoided)


def _way(graph: FlowGraph, block: int, outcomes: str) -> frozenset[int]:
    """The blocks on the way through a function; none if it does not have these branches."""
    following: dict[int, list[int]] = {}
    for edge in graph.edges:
        following.setdefault(edge.source, []).append(edge.destination)
    left, way = list(outcomes), set[int]()
    while block != EXIT:
        after = following.get(block, [])
        if block in way or not 1 <= len(after) <= 2 or (len(after) == 2 and not left):
            return frozenset()
        way.add(block)
        if len(after) == 2:
            taken = left.pop(0) == "T"
            after = [each for each in after if (each != block + 1) == taken]
        block = after[0]
    return frozenset() if left else frozenset(way)
