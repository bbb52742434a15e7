"""The machine code of a launch with its executions, and the counters that it gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from memlab.device.compiler.compile import CompiledKernel
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.program import Program
from memlab.device.machine_code.disassembly import DisassemblyError, disassemble
from memlab.device.machine_code.flow_graph import FlowGraph, flow_graph
from memlab.device.machine_code.listing import ListedInstruction
from memlab.device.machine_code.pipes import integer_pipe_of, pipe_of
from memlab.device.machine_code.projection import Executions, project
from memlab.device.machine_code.ptx_profile import profile_of_tally
from memlab.device.machine_code.retries import Attempts, with_retries
from memlab.device.machine_code.runtime_calls import RUNTIME, runtime_calls
from memlab.device.measurement import InstructionCounters

_LABEL = re.compile(r"`\([^)]*\)")  # of a branch's target
_LEAST_KNOWN_LINES = 0.5  # of a kernel's instructions; code compiled with -G has none
_MOST_BLOCKS = 5_000  # of the flow graph: some seconds of the linear program


@dataclass(frozen=True)
class ExecutedCode:
    """The machine code of a launch, and how often it was executed.

    Attributes:
        graph: The machine code and its flow.
        executions: The executions of its blocks, edges and instructions.
        attempts: Those of atomics that are loops, by their line of the PTX.
    """

    graph: FlowGraph
    executions: Executions
    attempts: Mapping[int, Attempts] = field(default_factory=dict)


def read_flow_graph(compiled: CompiledKernel, entry: str) -> FlowGraph:
    """Read the machine code of a compiled kernel.

    Raises:
        DisassemblyError: There is no machine code or no nvdisasm, or the code has no lines of the
            PTX, or is too long.
    """
    if not compiled.cubin:
        raise DisassemblyError(compiled.log)
    code = disassemble(compiled.cubin, entry, compiled.architecture)
    own = [step for step in code.instructions if step.address < min(code.functions, default=2**32)]
    if sum(1 for step in own if step.ptx_line) < _LEAST_KNOWN_LINES * len(own):
        raise DisassemblyError("the machine code does not say which PTX it comes from")
    graph = flow_graph(code)
    if len(graph.blocks) > _MOST_BLOCKS:
        message = f"the machine code has {len(graph.blocks)} basic blocks, more than {_MOST_BLOCKS}"
        raise DisassemblyError(message)
    return graph


def executed_code(
    graph: FlowGraph, program: Program, tally: Tally, attempts: Mapping[int, Attempts]
) -> ExecutedCode:
    """Project executions of a program on its machine code.

    Args:
        graph: The machine code.
        program: The PTX program.
        tally: Its executions.
        attempts: Those of atomics that are loops, by their line of the PTX.

    Raises:
        DisassemblyError: The machine code cannot be brought into agreement with the PTX.
    """
    profile = profile_of_tally(program, tally)
    executions = project(graph, profile)
    if executions is None:
        raise DisassemblyError("the flow of the machine code does not follow that of the PTX")
    return ExecutedCode(graph, with_retries(executions, graph, attempts), attempts)


def instruction_counters(
    executed: ExecutedCode | DisassemblyError, program: Program, tally: Tally
) -> InstructionCounters:
    """Count the instructions of the machine code; of the PTX, where there is no machine code."""
    counters = InstructionCounters(
        counted="PTX",
        warp_instructions=sum(tally.warps),
        thread_instructions=sum(tally.lanes),
        ptx_warp_instructions=sum(tally.warps),
        ptx_thread_instructions=sum(tally.lanes),
    )
    if isinstance(executed, DisassemblyError):
        return replace(counters, reason=str(executed))
    warps = executed.executions.warps
    by_pipe: Counter[str] = Counter()
    local: Counter[str] = Counter()
    for step, count in zip(executed.graph.code.instructions, warps.tolist(), strict=True):
        by_pipe[pipe_of(step)] += count
        if step.name in ("LDL", "STL"):
            local[step.name] += count
    calls = runtime_calls(program, tally).values()
    by_pipe[RUNTIME] = round(sum(call.warp_instructions for call in calls))
    threads = executed.executions.lanes.sum() + sum(call.thread_instructions for call in calls)
    spills = not any(step.row.space in ("local", "generic") for step in program.steps)
    return replace(
        counters,
        counted="machine code",
        warp_instructions=round(float(warps.sum())) + by_pipe[RUNTIME],
        thread_instructions=round(float(threads)),
        by_pipe={pipe: round(count) for pipe, count in by_pipe.most_common() if round(count)},
        spill_loads=round(local["LDL"]) if spills else 0,
        spill_stores=round(local["STL"]) if spills else 0,
    )


def integer_operations(executed: ExecutedCode, program: Program) -> dict[int, dict[str, int]]:
    """Count the integer instructions, summed over threads.

    Threads whose predicate is off are counted, too.

    Returns:
        The counts by source line, 0 where it is unknown, and pipe: `alu`, `fma` or `xu`.
    """
    counts: dict[int, Counter[str]] = {}
    source_lines = _source_lines(program)
    code, lanes = executed.graph.code.instructions, executed.executions.lanes.tolist()
    for step, count in zip(code, lanes, strict=True):
        pipe = integer_pipe_of(step)
        if pipe is not None and count:
            counts.setdefault(source_lines.get(step.ptx_line, 0), Counter())[pipe] += count
    return {
        line: {pipe: round(count) for pipe, count in by_pipe.items()}
        for line, by_pipe in counts.items()
    }


def _source_lines(program: Program) -> dict[int, int]:
    """The source line of each line of the PTX."""
    return {step.instruction.ptx_line: step.instruction.source_line for step in program.steps}


def listed_instructions(executed: ExecutedCode, program: Program) -> tuple[ListedInstruction, ...]:
    """List the instructions of the machine code with their counts and lines."""
    source_lines = _source_lines(program)
    graph, executions = executed.graph, executed.executions
    return tuple(
        ListedInstruction(
            address=step.address,
            text=_LABEL.sub(f"0x{step.target or 0:04x}", step.text),
            pipe=pipe_of(step),
            stall=step.control.stall if step.control else None,
            waits=tuple(n for n in range(6) if step.control and step.control.wait_mask >> n & 1),
            block=graph.block_at(position),
            target=step.target,
            warps=round(float(executions.warps[position])),
            threads=round(float(executions.lanes[position])),
            ptx_line=step.ptx_line,
            source_line=source_lines.get(step.ptx_line, 0),
        )
        for position, step in enumerate(graph.code.instructions)
    )
