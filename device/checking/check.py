"""Checks a launch in the emulator for the mistakes that Compute Sanitizer finds.

`emulator/checks` observes mistakes as instructions, addresses and threads. This module describes
them in sentences, with source lines and the program's own names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Budget, EmulationTimeoutError
from memlab.device.checking.findings import TOOLS, CheckFinding, CheckReport, SourceLocation, Tool
from memlab.device.checking.member_arrays import ArrayMember, with_checked_members
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.emulation.address_names import AddressNames, ProgramArray
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.checks.member_bounds import MemberObservation, find_subscripts
from memlab.device.emulator.checks.memory_order import BLOCK_SCOPE
from memlab.device.emulator.checks.observations import Observation, Site
from memlab.device.emulator.codegen.check_layout import STRONG, WEAK
from memlab.device.emulator.isa.asynchronous.bulk_copies import FAR_BARRIER_TEXT
from memlab.device.emulator.machine.machine import TRAPS
from memlab.device.emulator.machine.memory import KernelFault, describe_wild_address
from memlab.device.emulator.machine.threads import block_coordinates, cluster_places
from memlab.device.emulator.program.polling_loops import find_polling_loops
from memlab.device.emulator.program.program import HEAP, runs_forward
from memlab.device.emulator.ptx import parser
from memlab.device.emulator.ptx.parser import PtxError
from memlab.device.emulator.sampling.block_sample import (
    BlockCoordinates,
    blocks_of_clusters,
    center_block,
    cluster_grid,
    draw_strata,
    whole_clusters,
)
from memlab.device.emulator.sampling.data_dependence import data_decided_writes
from memlab.device.measurement import Coverage, DeviceSummary, Progress, ignore_progress
from memlab.device.structure_arrays import padding_bytes
from memlab.errors import DeviceError, UsageError
from memlab.kernels.launch import Buffer, Launch
from memlab.text import plural

WHOLE_GRID_LANE_INSTRUCTIONS = 150_000_000
"""Launches up to this size are checked whole, in a few seconds; larger ones by a sample."""
_FIRST_LANE_INSTRUCTIONS = 15_000_000
"""Blocks that are executed at first, if the grid is to be sampled: costly ones are few."""

_FAR_ELEMENTS = 1 << 40  # an address this far from every array belongs to none


def check_launch(
    launch: Launch,
    compiled: CompiledKernel,
    device: DeviceSummary,
    seed: int = 0,
    tools: Collection[Tool] = TOOLS,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> CheckReport:
    """Execute a launch on the CPU and report its mistakes; accesses at fault are not carried out.

    Args:
        launch: The launch to check.
        compiled: The launch, compiled.
        device: The device that it was compiled for.
        seed: The seed of the random inputs and of the sample of blocks.
        tools: The tools to check with.
        progress: Called with the current activity and the share of it that is done.
        budget: The limits of time and memory.

    Raises:
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        UsageError: The launch needs more memory than is allowed.
        KernelFault: The kernel stopped itself before anything was found.
        EmulationTimeoutError: The time was up before anything was found or any block was done.
    """
    report = progress or ignore_progress
    report("preparing inputs", None)
    execution = Execution.of(launch, compiled, seed, budget)
    names = AddressNames(launch, execution, compiled.architecture)
    outputs = [output for output in launch.outputs if output.role == "out"]
    checker = Checker(
        execution.program,
        execution.grid,
        execution.memory,
        {space: names.array_ranges(space) for space in _STATE_SPACES},
        [buffer.name for buffer in launch.buffers if buffer.role == "in"],
        [output.name for output in outputs],
        tools,
    )
    budget = budget or Budget()
    done, stop = _run_checked(execution, checker, report, budget)
    report("verifying", None)
    whole = done == launch.blocks
    builder = _FindingBuilder(launch, execution, checker, names, execution.source)
    findings = [builder.finding(observation) for observation in checker.observations()]
    if "memcheck" in tools:
        findings += _member_findings(launch, compiled, builder, findings, budget, report)
    notes: list[str] = []
    if whole and "initcheck" in tools:
        for output in outputs:
            padding = None if output.structure is None else padding_bytes(output.structure)
            missing = checker.never_written(output.name, padding)
            missing = execution.row_major(output, missing)
            if missing.size and builder.is_decided_by_data(output):
                notes.append(builder.left_out_by_data(output, missing))
            elif missing.size:
                findings.append(builder.never_written(output, missing))
    if "memcheck" in tools:
        notes += builder.overruns()
    if whole and stop is None and "memcheck" in tools:
        notes += builder.leaks()
    return CheckReport(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        source_name=launch.source_name,
        device=device,
        grid=launch.grid,
        block=launch.block,
        tools=tuple(tool for tool in TOOLS if tool in tools),
        coverage=Coverage(
            done, launch.blocks, done < launch.blocks, isinstance(stop, EmulationTimeoutError)
        ),
        findings=tuple(sorted(findings, key=_sort_key)),
        verification=execution.verify(whole),
        notes=tuple(notes),
    )


def _member_findings(
    launch: Launch,
    compiled: CompiledKernel,
    builder: _FindingBuilder,
    known: list[CheckFinding],
    budget: Budget,
    report: Progress,
) -> list[CheckFinding]:
    """Find subscripts that leave an array member of a structure, by a second execution.

    It executes a copy of the source (`member_arrays`). Where that does not compile, or cannot be
    executed, nothing is found. Neither is what is `known` to leave the whole array.
    """
    if launch.ptx:  # its source is not compiled
        return []
    source, members = with_checked_members(launch.source, launch.source_name)
    if not members:
        return []
    checked = replace(launch, source=source)
    try:
        copy = compile_launch(checked, compiled.architecture)
        execution = Execution.of(checked, copy, builder.execution.seed, budget)
        if not find_subscripts(execution.program):
            return []
        names = AddressNames(checked, execution)
        extents = {space: names.array_ranges(space) for space in _STATE_SPACES}
        checker = Checker(
            execution.program, execution.grid, execution.memory, extents, (), (), ("memcheck",)
        )
        _run_checked(execution, checker, report, budget)
    except (UsageError, PtxError, DeviceError, KernelFault, EmulationTimeoutError):
        return []
    lines = {(finding.at.line, finding.kind) for finding in known}
    second = replace(builder, execution=execution, checker=checker)
    found = [second.member(each, members[each.member]) for each in checker.member_observations()]
    return [finding for finding in found if (finding.at.line, finding.kind) not in lines]


def _run_checked(
    execution: Execution, checker: Checker, report: Progress, budget: Budget
) -> tuple[int, EmulationTimeoutError | KernelFault | None]:
    """Execute the grid, or a sample of a large one, until something stops it.

    Returns:
        The number of blocks done, and the error that stopped the others.

    Raises:
        EmulationTimeoutError: The time was up before any block was done or any mistake found.
        KernelFault: The kernel stopped itself before any mistake was found.
        UsageError: The record of all accesses needs more memory than is allowed.
    """
    launch, step, done = execution.launch, execution.chunk_blocks, 0
    try:
        blocks: BlockCoordinates = execution.blocks
        first, expected = step, _cost_per_block(execution, checker)
        if expected * launch.blocks > WHOLE_GRID_LANE_INSTRUCTIONS:
            each = launch.cluster_blocks
            first = min(step, max(1, int(_FIRST_LANE_INSTRUCTIONS / expected / each)) * each)
        # The first blocks, which are executed in any case, tell what a block costs.
        counts = execution.run(blocks[:first], observers=[checker])
        done, cost = len(blocks[:first]), counts.lane_instructions
        if cost / done * launch.blocks > WHOLE_GRID_LANE_INSTRUCTIONS:
            blocks = _sample_blocks(execution, done, cost / done)
        elif done < launch.blocks:
            arrays, shadow = execution.memory.data.size, checker.memory_bytes
            purpose = f"{arrays} for its arrays, {shadow} to record the accesses"
            budget.check(arrays + shadow, purpose)
        for start in range(done, len(blocks), step):
            report("checking", start / len(blocks))
            execution.run(blocks[start : start + step], observers=[checker])
            done += len(blocks[start : start + step])
    except (EmulationTimeoutError, KernelFault) as stop:
        if checker.observations() or (done and isinstance(stop, EmulationTimeoutError)):
            return done, stop
        raise
    return done, None


def _cost_per_block(execution: Execution, checker: Checker) -> int:
    """The lane instructions of the middle block, which is executed without checks.

    Returns:
        0 where it was not executed: the grid is checked whole in any case; blocks may wait for
        each other, or write to inputs, which a reset does not restore; or where it faulted.
    """
    launch, program = execution.launch, execution.program
    lanes = launch.blocks * execution.grid.padded_threads
    is_small = runs_forward(program) and lanes * len(program.steps) <= WHOLE_GRID_LANE_INSTRUCTIONS
    if is_small or launch.blocks == launch.cluster_blocks:
        return 0
    inputs = [buffer.name for buffer in launch.buffers if buffer.role == "in"]
    if find_polling_loops(program) or any(map(checker.writes_to, inputs)):
        return 0
    try:
        middle = whole_clusters(np.array([center_block(launch.grid)]), launch.cluster)
        counts = execution.run(middle, cuts=checker.watched_instructions(program))
    except KernelFault:
        return 0
    finally:
        execution.reset()
    return counts.lane_instructions // len(middle)


def _sample_blocks(execution: Execution, first: int, cost_per_block: float) -> NDArray[np.int64]:
    """The coordinates of the first blocks and of a sample of the others, in launch order.

    Clusters come one after the other.
    """
    grid, cluster = execution.launch.grid, execution.launch.cluster
    most = WHOLE_GRID_LANE_INSTRUCTIONS / cost_per_block
    strata = draw_strata(grid, execution.seed, most, cluster=cluster)
    clusters, _ = cluster_places(np.concatenate([stratum.blocks for stratum in strata]), cluster)
    extents = cluster_grid(grid, cluster)
    order = clusters @ np.array([1, extents[0], extents[0] * extents[1]])
    chosen = np.union1d(np.arange(first // execution.launch.cluster_blocks), order)
    return blocks_of_clusters(block_coordinates(chosen, extents), cluster)


_STATE_SPACES = ("global", "shared", "local", "const")


def _element_count(shape: tuple[int, ...]) -> str:
    """The number of elements of an array, by its dimensions: `4 x 8 elements`."""
    return f"{' x '.join(map(str, shape))} {plural(prod(shape), 'element')}"


def _sort_key(finding: CheckFinding) -> tuple[int, int, str, int]:
    other = finding.other.line if finding.other else 0
    return TOOLS.index(finding.tool), finding.at.line, finding.kind, other


# --- Descriptions ------------------------------------------------------------------------------

_ACCESS_NAMES = {
    "load": "read",
    "store": "write",
    "atomic": "atomic access",
    "reduce": "atomic access",
}


@dataclass(frozen=True)
class _FindingBuilder:
    """Turns observations into findings."""

    launch: Launch
    execution: Execution
    checker: Checker
    names: AddressNames
    source: Sequence[str]

    def finding(self, observation: Observation) -> CheckFinding:
        at = self._location(observation.at)
        other = None if observation.other is None else self._location(observation.other)
        describe: Callable[[Observation, SourceLocation | None], str] = {
            "memcheck": self._memcheck,
            "initcheck": self._initcheck,
            "racecheck": self._racecheck,
            "synccheck": self._synccheck,
        }[observation.tool]
        (tool,) = (tool for tool in TOOLS if tool == observation.tool)
        return CheckFinding(
            tool=tool,
            kind=observation.kind,
            message=describe(observation, other),
            space=observation.space,
            element=self._element(observation) if observation.space else "",
            at=at,
            other=other,
            count=observation.count,
        )

    def member(self, observation: MemberObservation, member: ArrayMember) -> CheckFinding:
        """The finding for accesses that leave an array member of a structure."""
        access, size = self._access(observation.at)
        of = f" of {member.structure}" if member.structure else ""
        element = f"{member.name}[{observation.index}] of {_element_count((observation.elements,))}"
        return CheckFinding(
            tool="memcheck",
            kind="out of bounds",
            message=f"{access} of {size} bytes outside the array {member.name}, a member{of}",
            space=observation.space,
            element=element,
            at=self._location(observation.at),
            count=observation.count,
        )

    def never_written(self, output: Buffer, missing: NDArray[np.int64]) -> CheckFinding:
        """The finding for the elements of an output that were not written."""
        more = f" and {missing.size - 1} more" if missing.size > 1 else ""
        element = f"{output.name}[{missing[0]}]{more} of {_element_count((output.elements,))}"
        message = "no thread writes to elements of an output"
        at = SourceLocation(0, "", None, None)
        return CheckFinding(
            "initcheck", "never written", message, "global", element, at, None, missing.size
        )

    def is_decided_by_data(self, output: Buffer) -> bool:
        """Whether data decides which elements of an output are written.

        A filter writes as many elements as it keeps, a scatter where its indices say. Whether the
        others were meant to be written, only the kernel's author knows.
        """
        decided = data_decided_writes(self.execution.program)
        return not decided.isdisjoint(self.checker.writes_to(output.name))

    def left_out_by_data(self, output: Buffer, missing: NDArray[np.int64]) -> str:
        """The note on the elements of an output that data left unwritten."""
        return (
            f"{missing.size:,} of {_element_count((output.elements,))} of {output.name} are not "
            "written, as the data decides; if they keep their values, declare inout:"
        )

    def overruns(self) -> Iterator[str]:
        """The notes on tensor copies that write behind the rows of their tensors."""
        for (step, array), size in self.checker.overruns().items():
            line = self.execution.program.steps[step].instruction.source_line
            yield (
                f"the tensor copy at line {line} also writes {size} {plural(size, 'byte')} of "
                f"{self.names.arrays('global')[array].name} behind the end of each row of its "
                "tensor: it moves pieces of 16 bytes as a whole"
            )

    def leaks(self) -> Iterator[str]:
        """The note on allocations of the kernel that it does not free."""
        count, size = self.checker.leaks()
        if count:
            yield (
                f"{count:,} {plural(count, 'allocation')} with {size:,} bytes in all that the "
                "kernel does not free: the heap keeps them for the next launches"
            )

    # --- One message per tool --------------------------------------------------------------

    def _memcheck(self, observation: Observation, other: SourceLocation | None) -> str:
        if observation.kind == "trap":
            opcode = self.execution.program.steps[observation.at.step].row.opcode
            itself = "the kernel stops itself (trap)" if opcode == "trap" else "an assertion fails"
            cause = TRAPS.get(opcode, itself)
            return f"{cause}; nothing after it was checked"
        if observation.kind == "double free":
            return "an allocation of the heap is freed that was freed before"
        if observation.kind == "invalid free":
            return "what is freed is no allocation of the heap: malloc has not given this address"
        if observation.kind == "rank in descriptor":
            field = self.checker.spoiled_field(observation.at)
            return (
                f"the {field.name} (bits {field.first} to {field.last}) of a wgmma's descriptor "
                "holds the rank of the block, which an address in shared memory has from bit 24 "
                "on in a cluster: mask the address to 18 bits (address & 0x3FFFF) before the shift"
            )
        access, size = self._access(observation.at)
        if observation.kind == "use after free":
            return f"{access} of {size} bytes in an allocation of the heap that was freed"
        if observation.kind == "ended block":
            return (
                f"{access} of {size} bytes in shared memory of another block, which may have "
                "ended: let its threads wait for this access, as by a last cluster.sync()"
            )
        if observation.kind == "barrier in another block":
            return FAR_BARRIER_TEXT
        if observation.kind == "misaligned":
            return (
                f"misaligned {access} of {size} bytes in {observation.space} memory; "
                f"the address must be a multiple of {size}"
            )
        if observation.kind == "not writable" and observation.space == "global":
            return (
                f"{access} of {size} bytes to an array that the launch gives as an input; "
                "if this is intended, declare inout: or out:"
            )
        if observation.kind == "not writable":
            return (
                f"{access} of {size} bytes in {observation.space} memory, which a kernel only reads"
            )
        message = f"{access} of {size} bytes outside {self._memory_description(observation)}"
        array = self._array(observation)
        if array is not None and array.name == HEAP.name and self._is_inside(observation, array):
            return f"{access} of {size} bytes outside the allocations of the heap"
        if observation.space == "shared" and array is not None and not array.size:
            message += ", which has no bytes in this launch: add --shared BYTES"
        return message

    def _initcheck(self, observation: Observation, other: SourceLocation | None) -> str:
        access, size = self._access(observation.at)
        space = observation.space
        writer = {"shared": "its block", "local": "it"}.get(space, "any thread")
        return f"{access} of {size} bytes of {space} memory before {writer} has written there"

    def _racecheck(self, observation: Observation, other: SourceLocation | None) -> str:
        assert observation.other is not None
        if observation.kind == "stale read":
            return (
                "read through the read-only cache (ld.global.nc, from __ldg or const __restrict__) "
                "of what the same launch writes: it may give the old value"
            )
        if observation.kind == "missing proxy fence":
            is_product = self.checker.is_of_product(observation.at)
            return (
                f"{'wgmma' if is_product else 'a bulk copy'} reads what a thread stored without "
                "fence.proxy.async between: it may read what was there before"
            )
        if observation.kind == "missing map fence":
            return (
                "a tensor copy reads a map that a thread wrote without the fences between: "
                "fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy) behind the "
                "write, and .acquire before the copy: it may read what was there before"
            )
        (second, size), (first, other_size) = map(self._access, (observation.at, observation.other))
        orders = [self.checker.memory_order(site) for site in (observation.at, observation.other)]
        are_atomic = STRONG in (levels := [order.level for order in orders]) and WEAK not in levels
        if self._block(observation.at) != self._block(observation.other):
            unordered = "no fence with an atomic orders the blocks"
            if observation.space == "shared":
                unordered = "no barrier of the cluster lies between"
            if are_atomic and any(order.scope == BLOCK_SCOPE for order in orders):
                unordered = "an atomic of block scope is none for other blocks"
        elif self.checker.is_async_copy(observation.other):
            unordered = "the asynchronous copy must be waited for before"
            unordered += ", then a barrier" * (observation.at.thread != observation.other.thread)
        elif self.checker.is_same_warp(observation.at, observation.other):
            unordered = "no barrier or __syncwarp lies between"
        else:
            unordered = "no barrier lies between"
        if are_atomic and size != other_size:
            unordered = f"accesses of {size} and {other_size} bytes are not atomic to each other"
        article = "an" if first.startswith("a") else "a"
        same = observation.at.thread == observation.other.thread
        thread = "a copy of the same thread" if same else "another thread"
        return f"{second} races with {article} {first} by {thread}: {unordered}"

    def _synccheck(self, observation: Observation, other: SourceLocation | None) -> str:
        if observation.kind == "invalid mask":
            is_collective = self.execution.program.steps[observation.at.step].row.kind == "warp"
            if other is None:
                does = "takes part" if is_collective else "waits"
                return f"a thread {does} with a mask that does not name itself"
            if (
                is_collective
                and observation.other is not None
                and observation.other.step != observation.at.step
            ):
                return "threads of the warp that must take part are at another shuffle or vote"
            if is_collective:
                return "threads of the warp that must take part are elsewhere"
            return "the mask names threads that do not come to this barrier"
        if observation.kind == "inactive source lane":
            return (
                "a thread uses a value that it read from a lane that takes no part in the shuffle; "
                "the value is undefined"
            )
        if observation.kind == "grid barrier not reached":
            return "blocks exit without reaching this barrier of the grid, and the others wait on"
        if observation.kind == "endless wait":
            return f"{self.checker.endless_reason}; nothing after it was checked"
        if observation.kind == "cluster barrier not reached":
            return "threads of the cluster exit without arriving at its barrier as often as others"
        if observation.kind == "missing wait":
            return "a register of a wgmma is used before wgmma.wait_group has completed the product"
        if observation.kind == "missing fence":
            return "no wgmma.fence lies between the values of a wgmma's registers and the product"
        operands = self.execution.program.steps[observation.at.step].instruction.operands
        if len(operands) > 1:  # the barrier has a number and a count
            return "the count of this barrier is never reached: too few threads arrive at it"
        if observation.kind == "divergent barrier":
            return (
                "not all threads of the block wait at this barrier: it lies in a divergent branch"
            )
        return "threads of the block exit without reaching this barrier"

    # --- Parts of messages -----------------------------------------------------------------

    def _access(self, site: Site) -> tuple[str, int]:
        """The name of an access, and its bytes per thread."""
        row = self.execution.program.steps[site.step].row
        types = row.to if row.kind == "load" else row.of
        return _ACCESS_NAMES[row.kind], parser.TYPE_BYTES[types[0]] * row.vector

    def _array(self, observation: Observation) -> ProgramArray | None:
        arrays = self.names.arrays(observation.space)
        return arrays[observation.array] if 0 <= observation.array < len(arrays) else None

    def _index(self, observation: Observation, array: ProgramArray) -> int:
        return (observation.address - array.start) // array.element_bytes

    def _is_inside(self, observation: Observation, array: ProgramArray) -> bool:
        return 0 <= observation.address - array.start < array.size

    def _memory_description(self, observation: Observation) -> str:
        array = self._array(observation)
        if array is None or abs(self._index(observation, array)) > _FAR_ELEMENTS:
            return f"{observation.space} memory"
        return f"{array.name} in {observation.space} memory"

    def _element(self, observation: Observation) -> str:
        array = self._array(observation)
        if array is None and observation.space == "global":
            return describe_wild_address(observation.address)
        if array is None:
            return f"{observation.space} address {observation.address:#x}"
        index = self._index(observation, array)
        if abs(index) > _FAR_ELEMENTS:
            return describe_wild_address(observation.address)
        if array.shape == (1,) and index == 0 and observation.space != "global":
            inside = observation.address - array.start
            return next(array.within(observation.space, inside, inside + 1)).name
        element = array.element(observation.space, index)
        if observation.space == "global":
            return f"{element.flat} of {_element_count((prod(array.shape),))}"
        return f"{element.name} of {_element_count(array.shape)}"

    def _block(self, site: Site) -> object:
        return self.checker.place(site)[1]

    def _location(self, site: Site) -> SourceLocation:
        line, block, thread = self.checker.place(site)
        x, y, _ = self.launch.block
        text = self.source[line - 1].strip() if 0 < line <= len(self.source) else ""
        return SourceLocation(line, text, block, (thread % x, thread // x % y, thread // (x * y)))
