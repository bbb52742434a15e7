"""Checks a launch for what Compute Sanitizer finds, in the emulator.

`emulator/checks` sees mistakes as instructions, addresses and threads. Here they get words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Budget, EmulationTimeoutError
from memlab.device.checking.findings import TOOLS, CheckFinding, CheckReport, SourceLocation, Tool
from memlab.device.compiler.compile import CompiledKernel
from memlab.device.emulation.address_names import AddressNames, ProgramArray
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.checks.observations import Observation, Site
from memlab.device.emulator.machine.memory import KernelFault, describe_wild_address
from memlab.device.emulator.ptx import parser
from memlab.device.emulator.sampling.block_sample import (
    BlockCoordinates,
    WholeGrid,
    block_coordinates,
    draw_strata,
)
from memlab.device.measurement import Coverage, DeviceSummary, Progress, ignore_progress
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import Buffer, Launch
from memlab.text import plural

WHOLE_GRID_LANE_INSTRUCTIONS = 150_000_000
"""Launches up to this size are checked whole, in some seconds; of larger ones, a sample is."""

_FAR_ELEMENTS = 1 << 40  # an address so far from every array belongs to none


def check_launch(
    launch: Launch,
    compiled: CompiledKernel,
    device: DeviceSummary,
    seed: int = 0,
    tools: Collection[Tool] = TOOLS,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> CheckReport:
    """Execute a launch on the CPU and look for mistakes in it; accesses at fault are left out.

    Args:
        launch: What to check.
        compiled: The launch, compiled.
        device: What it was compiled for.
        seed: Of the random inputs and of the sample of blocks.
        tools: What to look for.
        progress: Told what is being done, and which fraction of it is over.
        budget: How long it may take, and how much memory.

    Raises:
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        UsageError: It needs more memory than is allowed.
        KernelFault: The kernel stopped itself, and nothing was found before.
        OutOfTime: The time was up before anything was found or any block done.
    """
    report = progress or ignore_progress
    report("preparing inputs", None)
    execution = Execution.of(launch, compiled, seed, budget)
    names = AddressNames(launch, execution, compiled.architecture)
    outputs = [each for each in launch.outputs if each.role == "out"]
    checker = Checker(
        execution.program,
        execution.grid,
        execution.memory,
        {each: names.array_ranges(each) for each in _STATE_SPACES},
        [each.name for each in launch.buffers if each.role == "in"],
        [each.name for each in outputs],
        tools,
    )
    done, stop = _run_checked(execution, checker, report, budget or Budget())
    report("verifying", None)
    whole = done == launch.blocks
    words = _FindingBuilder(launch, execution, checker, names)
    findings = [words.finding(each) for each in checker.observations()]
    if whole and "initcheck" in tools:
        for output in outputs:
            findings += words.never_written(output)
    return CheckReport(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        source_name=launch.source_name,
        device=device,
        grid=launch.grid,
        block=launch.block,
        tools=tuple(each for each in TOOLS if each in tools),
        coverage=Coverage(
            done, launch.blocks, done < launch.blocks, isinstance(stop, EmulationTimeoutError)
        ),
        findings=tuple(sorted(findings, key=_sort_key)),
        verification=execution.verify(whole),
    )


def _run_checked(
    execution: Execution, checker: Checker, report: Progress, budget: Budget
) -> tuple[int, EmulationTimeoutError | KernelFault | None]:
    """Run the grid, or where that is dear a sample of its blocks, until something stops it.

    Returns:
        How many blocks are done, and what stopped the others.

    Raises:
        OutOfTime: The time was up before any block was done or any mistake found.
        KernelFault: The kernel stopped itself before any mistake was found.
        UsageError: Remembering all accesses needs more memory than is allowed.
    """
    launch, step, done = execution.launch, execution.chunk_blocks, 0
    try:
        # What a block costs is known when some have run: the first, which run in any case.
        blocks: BlockCoordinates = WholeGrid(launch.grid)
        tally = execution.run(blocks[:step], observers=[checker])
        done, cost = len(blocks[:step]), sum(tally.warps) * WARP_SIZE
        if cost / done * launch.blocks > WHOLE_GRID_LANE_INSTRUCTIONS:
            blocks = _sample_blocks(execution, done, cost / done)
        elif done < launch.blocks:
            arrays, notes = execution.memory.data.size, checker.memory_bytes
            budget.check(
                arrays + notes, f"{arrays} for its arrays, {notes} to know who touched what"
            )
        for start in range(done, len(blocks), step):
            report("checking", start / len(blocks))
            execution.run(blocks[start : start + step], observers=[checker])
            done += len(blocks[start : start + step])
    except (EmulationTimeoutError, KernelFault) as stop:
        if checker.observations() or (done and isinstance(stop, EmulationTimeoutError)):
            return done, stop
        raise
    return done, None


def _sample_blocks(execution: Execution, first: int, cost_per_block: float) -> NDArray[np.int64]:
    """The first blocks and a sample of the others, in launch order, as coordinates."""
    grid = execution.launch.grid
    most = WHOLE_GRID_LANE_INSTRUCTIONS / cost_per_block
    drawn = np.concatenate([each.blocks for each in draw_strata(grid, execution.seed, most)])
    order = drawn[:, 0] + grid[0] * (drawn[:, 1] + grid[1] * drawn[:, 2])
    return block_coordinates(np.union1d(np.arange(first), order), grid)


_STATE_SPACES = ("global", "shared", "local", "const")


def _element_count(shape: tuple[int, ...]) -> str:
    """How many elements an array has, by its dimensions: `4 x 8 elements`."""
    return f"{' x '.join(map(str, shape))} {plural(prod(shape), 'element')}"


def _sort_key(finding: CheckFinding) -> tuple[int, int, str, int]:
    other = finding.other.line if finding.other else 0
    return TOOLS.index(finding.tool), finding.at.line, finding.kind, other


# --- Words -------------------------------------------------------------------------------------

_ACCESS_NAMES = {
    "load": "read",
    "store": "write",
    "atomic": "atomic access",
    "reduce": "atomic access",
}


@dataclass(frozen=True)
class _FindingBuilder:
    """Turns what was observed into findings."""

    launch: Launch
    execution: Execution
    checker: Checker
    names: AddressNames

    def finding(self, seen: Observation) -> CheckFinding:
        at = self._place(seen.at)
        other = None if seen.other is None else self._place(seen.other)
        describe: Callable[[Observation, SourceLocation | None], str] = {
            "memcheck": self._memcheck,
            "initcheck": self._initcheck,
            "racecheck": self._racecheck,
            "synccheck": self._synccheck,
        }[seen.tool]
        (tool,) = (each for each in TOOLS if each == seen.tool)
        return CheckFinding(
            tool=tool,
            kind=seen.kind,
            message=describe(seen, other),
            space=seen.space,
            element=self._element(seen) if seen.space else "",
            at=at,
            other=other,
            count=seen.count,
        )

    def never_written(self, output: Buffer) -> list[CheckFinding]:
        """A finding for an output with elements that nothing was stored to."""
        missing = self.checker.never_written(output.name)
        if not missing.size:
            return []
        more = f" and {missing.size - 1} more" if missing.size > 1 else ""
        element = f"{output.name}[{missing[0]}]{more} of {_element_count((output.elements,))}"
        message = "no thread writes to elements of an output"
        at = SourceLocation(0, "", None, None)
        return [
            CheckFinding(
                "initcheck", "never written", message, "global", element, at, None, missing.size
            )
        ]

    # --- One sentence a tool ---------------------------------------------------------------

    def _memcheck(self, seen: Observation, other: SourceLocation | None) -> str:
        if seen.kind == "trap":
            trap = self.execution.program.steps[seen.at.step].row.opcode == "trap"
            what = "the kernel stops itself (trap)" if trap else "an assertion fails"
            return f"{what}; nothing behind it was checked"
        access, size = self._access(seen.at)
        if seen.kind == "misaligned":
            return (
                f"misaligned {access} of {size} bytes in {seen.space} memory; "
                f"the address must be a multiple of {size}"
            )
        if seen.kind == "not writable" and seen.space == "global":
            return (
                f"{access} of {size} bytes to an array that the launch gives as an input; "
                "where it is meant, declare inout: or out:"
            )
        if seen.kind == "not writable":
            return f"{access} of {size} bytes in {seen.space} memory, which a kernel only reads"
        said = f"{access} of {size} bytes outside {self._memory_description(seen)}"
        array = self._array(seen)
        if seen.space == "shared" and array is not None and not array.size:
            said += ", which the launch gives no bytes: add --shared BYTES"
        return said

    def _initcheck(self, seen: Observation, other: SourceLocation | None) -> str:
        access, size = self._access(seen.at)
        whose = {"shared": "its block", "local": "it"}.get(seen.space, "any thread")
        return f"{access} of {size} bytes of {seen.space} memory before {whose} has written there"

    def _racecheck(self, seen: Observation, other: SourceLocation | None) -> str:
        assert seen.other is not None
        second, first = self._access(seen.at)[0], self._access(seen.other)[0]
        if self._block(seen.at) != self._block(seen.other):
            nothing = "no fence and atomic orders the blocks"
        elif self.checker.is_same_warp(seen.at, seen.other):
            nothing = "no barrier or __syncwarp lies between"
        else:
            nothing = "no barrier lies between"
        article = "an" if first.startswith("a") else "a"
        return f"{second} races with {article} {first} by another thread: {nothing}"

    def _synccheck(self, seen: Observation, other: SourceLocation | None) -> str:
        if seen.kind == "invalid mask":
            together = self.execution.program.steps[seen.at.step].row.kind == "warp"
            if other is None:
                does = "takes part" if together else "waits"
                return f"a thread {does} with a mask that does not name itself"
            if together and seen.other is not None and seen.other.step != seen.at.step:
                return "threads of the warp that must take part are at another shuffle or vote"
            if together:
                return "threads of the warp that must take part are elsewhere"
            return "the mask names threads that do not come to this barrier"
        if seen.kind == "inactive source lane":
            return (
                "a thread uses what it read from a lane that takes no part in the shuffle; "
                "such a value is undefined"
            )
        if seen.kind == "divergent barrier":
            return (
                "not all threads of the block wait at this barrier: it lies in a divergent branch"
            )
        return "threads of the block exit without reaching this barrier"

    # --- Parts of sentences ----------------------------------------------------------------

    def _access(self, spot: Site) -> tuple[str, int]:
        """What kind of access an instruction is, and how many bytes a thread it moves."""
        row = self.execution.program.steps[spot.step].row
        types = row.to if row.kind == "load" else row.of
        return _ACCESS_NAMES[row.kind], parser.TYPE_BYTES[types[0]] * row.vector

    def _array(self, seen: Observation) -> ProgramArray | None:
        arrays = self.names.arrays(seen.space)
        return arrays[seen.array] if 0 <= seen.array < len(arrays) else None

    def _index(self, seen: Observation, array: ProgramArray) -> int:
        return (seen.address - array.start) // array.element_bytes

    def _memory_description(self, seen: Observation) -> str:
        array = self._array(seen)
        if array is None or abs(self._index(seen, array)) > _FAR_ELEMENTS:
            return f"{seen.space} memory"
        return f"{array.name} in {seen.space} memory"

    def _element(self, seen: Observation) -> str:
        array = self._array(seen)
        if array is None and seen.space == "global":
            return describe_wild_address(seen.address)
        if array is None:
            return f"{seen.space} address {seen.address:#x}"
        index = self._index(seen, array)
        if abs(index) > _FAR_ELEMENTS:
            return describe_wild_address(seen.address)
        if array.shape == (1,) and index == 0 and seen.space != "global":
            inside = seen.address - array.start
            return next(array.within(seen.space, inside, inside + 1)).name
        element = array.element(seen.space, index)
        if seen.space == "global":
            return f"{element.flat} of {_element_count((prod(array.shape),))}"
        return f"{element.name} of {_element_count(array.shape)}"

    def _block(self, spot: Site) -> object:
        return self.checker.place(spot)[1]

    def _place(self, spot: Site) -> SourceLocation:
        line, block, thread = self.checker.place(spot)
        x, y, _ = self.launch.block
        source = self.execution.source
        text = source[line - 1].strip() if 0 < line <= len(source) else ""
        return SourceLocation(line, text, block, (thread % x, thread // x % y, thread // (x * y)))
