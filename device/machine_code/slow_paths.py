"""Calls of ptxas's functions for divisions and roots of operands such as zeros."""

from __future__ import annotations

from memlab.device.emulator.isa.slow_paths import slow_operands
from memlab.device.machine_code.flow_graph import FlowGraph
from memlab.device.machine_code.ptx_profile import PtxProfile


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
