"""Which accesses to memory a warp issues one behind the other, without waiting for data between.

A warp goes on behind a load until an instruction needs what was loaded: its control bits name the
dependence counter that the load holds until then. So the loads in front of that instruction come to
the L1 together, and find there what the others among them have asked for, whatever the other warps
do; those behind it come a latency later.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from memlab.device.emulator.program.program import ACCESS_KINDS, Program
from memlab.device.machine_code.flow_graph import FlowGraph
from memlab.device.machine_code.instructions import MachineInstruction

_ACCESSES = frozenset({"LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS"})
_SPACES = ("global", "generic")
_COUNTER = re.compile(r"SB(\d)")


def with_issue_groups(graph: FlowGraph, program: Program) -> Program:
    """Tell in which groups the machine code issues the accesses to global memory of a program.

    Of code that holds an access several times, as ptxas unrolls loops, the block counts that holds
    it most often, in the deepest loop among equals.
    """
    if not graph.code.has_control:
        return program
    by_line = _groups_by_line(graph)
    depth = Counter(block for _, blocks in graph.loops for block in blocks)
    steps, of_line = list(program.steps), defaultdict[int, list[int]](list)
    for index, step in enumerate(steps):
        if step.row.kind in ACCESS_KINDS and step.row.space in _SPACES:
            of_line[step.instruction.ptx_line].append(index)
    for line, indices in of_line.items():
        blocks = by_line.get(line)
        if not blocks:
            continue
        block = max(blocks, key=lambda block: (len(blocks[block]), depth[block]))
        for number, index in enumerate(indices):  # several of an instruction that is expanded
            groups = tuple(blocks[block][number :: len(indices)])
            steps[index] = replace(steps[index], issue_block=block, issue_groups=groups)
    return replace(program, steps=tuple(steps))


def _groups_by_line(graph: FlowGraph) -> Mapping[int, Mapping[int, list[int]]]:
    """The groups of the copies of each access, by line of the PTX and block, in their order."""
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    group = 0
    for block in range(len(graph.blocks)):
        group, pending = group + 1, 0
        for step in graph.instructions(block):
            if _waits_for(step) & pending:
                group, pending = group + 1, 0
            if step.name in _ACCESSES:
                found[step.ptx_line][block].append(group)
                if step.control is not None and step.control.write_barrier is not None:
                    pending |= 1 << step.control.write_barrier
    return found


def _waits_for(step: MachineInstruction) -> int:
    """The dependence counters that an instruction waits for, a bit for each."""
    mask = step.control.wait_mask if step.control is not None else 0
    if step.name == "DEPBAR":
        mask |= sum(1 << int(number) for number in _COUNTER.findall(" ".join(step.operands)))
    return mask
