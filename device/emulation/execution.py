"""One launch in the emulator: its memory, and its blocks run in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Budget, Deadline, EmulationTimeoutError
from memlab.device.compiler.compile import CompiledKernel
from memlab.device.emulator.machine.access_costs import ExecutionTrace, Patterns, Tally
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory, KernelFault, write_tracking_bytes
from memlab.device.emulator.machine.recording import Recorder
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.models.address_streams import PROBE_BLOCKS
from memlab.device.emulator.program.program import (
    Program,
    address_registers,
    load_program,
    with_constants,
)
from memlab.device.emulator.ptx import parser
from memlab.device.emulator.sampling.affine_values import AffineValues
from memlab.device.emulator.sampling.block_sample import BlockCoordinates
from memlab.device.emulator.sampling.data_dependence import has_global_atomics
from memlab.device.inputs import POISON_BYTE, argument_bytes, element_type, make_inputs
from memlab.device.measurement import Verification
from memlab.device.properties import WARP_SIZE
from memlab.device.verification import UNVERIFIED, ActualOutput, verify
from memlab.errors import UsageError
from memlab.kernels.launch import Buffer, Launch, source_lines

if TYPE_CHECKING:
    from memlab.device.emulator.checks.checker import Checker

CHUNK_LANES = 16_384
"""Lanes at once: registers of this length stay in a CPU's L2 cache, and calls are few."""
CHUNK_BYTES = 2**28
"""Registers, local and shared memory of the lanes at once: of threads that have much of their
own, fewer run together."""

_LANE_BYTES = 128  # of each lane: special registers, masks and what an instruction needs besides
_ADDRESS_BYTES = 24  # of each lane for a register that addresses memory: where that lies


class Execution:
    """One launch in the emulator, with its memory."""

    def __init__(
        self,
        launch: Launch,
        program: Program,
        seed: int,
        source: list[str],
        budget: Budget | None = None,
    ) -> None:
        """Lay out memory and draw the inputs; from now on the time runs.

        Raises:
            UsageError: The launch has not as many arguments as the program declares, or the arrays
                and a block's lanes need more memory than is allowed.
        """
        declared, given = len(program.parameter_variables), len(launch.arguments)
        if declared != given:
            raise UsageError(f"{launch.kernel} takes {declared} arguments, the launch has {given}")
        budget = budget or Budget()
        self.launch, self.seed, self.source = launch, seed, source
        self.deadline = Deadline(budget.timeout_s)
        self._chunk_bytes = _chunk_bytes(launch, program, budget)
        sizes = {each.name: (each.nbytes, each.element_bytes) for each in launch.buffers}
        sizes |= {each.name: (each.size, 4) for each in program.globals}
        self.memory = GlobalMemory(sizes)
        self.inputs = make_inputs(launch, seed, {b.name: self.array(b) for b in launch.buffers})
        for buffer in launch.outputs:
            if buffer.name in self.inputs:  # the kernel writes over what it reads: keep that
                self.inputs[buffer.name] = self.inputs[buffer.name].copy()
        self.program = with_constants(
            program, {c.name: self.inputs[c.name] for c in launch.constants}
        )
        self.grid = Grid(launch.grid, launch.block, launch.dynamic_shared_bytes, self._parameters())
        self.patterns = Patterns()
        self._cut_short = ""  # by what, since the arrays have been as they were given
        self.reset()

    @classmethod
    def of(
        cls, launch: Launch, compiled: CompiledKernel, seed: int, budget: Budget | None = None
    ) -> Execution:
        """Load a compiled launch and draw its inputs.

        Raises:
            PtxError: It has an instruction that the emulator does not know.
            UsageError: It needs more memory than is allowed.
        """
        source = source_lines(launch.source)
        program = load_program(parser.parse_ptx(compiled.ptx), launch.entry, source)
        return cls(launch, program, seed, source, budget)

    def array(self, buffer: Buffer) -> NDArray[Any]:
        """A buffer's elements, as a view of the emulated memory."""
        raw = self.memory.bytes_of(buffer.name)
        return raw.view(element_type(buffer.dtype)).reshape(buffer.shape)

    def reset(self) -> None:
        """Give the arrays that the kernel writes, and module variables, their initial values."""
        for buffer in self.launch.outputs:
            if buffer.name in self.inputs:
                self.array(buffer)[...] = self.inputs[buffer.name]
            else:
                self.memory.bytes_of(buffer.name)[:] = POISON_BYTE
        given = {each.name for each in self.launch.constants}
        for variable in self.program.globals:
            initial = variable.initial or bytes(variable.size)
            if variable.name in given:
                initial = self.inputs[variable.name].tobytes()
            self.memory.bytes_of(variable.name)[:] = np.frombuffer(initial, np.uint8)
        self.memory.forget_writes()
        self._cut_short = ""

    def verify(self, whole: bool) -> Verification:
        """Compare the outputs of the blocks that ran with the references.

        Outputs that blocks add up together hold what the reference says only when all ran.
        """
        reason = ""
        if self._cut_short:
            reason = f"{self._cut_short} cut blocks short"
        elif not whole and has_global_atomics(self.program):
            reason = "blocks add up results with atomics, and not all of them ran"
        if reason and self.launch.references:
            return replace(UNVERIFIED, worst=reason)
        found = {}
        for output in self.launch.outputs:
            values = self.array(output).reshape(-1)
            index = np.arange(values.size) if whole else self.memory.elements_written(output.name)
            found[output.name] = ActualOutput(index, values if whole else values[index])
        return verify(self.launch, self.inputs, found)

    def check_roles(self) -> None:
        """Refuse a launch whose kernel wrote to an array that it was said only to read.

        Raises:
            UsageError: Names the array.
        """
        for buffer in self.launch.buffers:
            if buffer.role != "in":
                continue
            written = self.memory.elements_written(buffer.name)
            if written.size:
                raise UsageError(
                    f"{self.launch.kernel} writes to {buffer.name}[{written[0]}], and "
                    f"{buffer.name} is an input: declare it inout: or out:"
                )

    def record(self, blocks: BlockCoordinates, recorder: Recorder) -> Tally:
        """Run some blocks while a recorder watches, and count them."""
        counted = Tally.zeros(len(self.program.steps))
        for chunk in self.chunks(blocks):
            counted.add(self.run(chunk, recorder=recorder))
        return counted

    def follow(self, blocks: NDArray[np.int64], moves: AffineValues, deadline: Deadline) -> None:
        """Run what decides in some blocks, following how their values move, until a deadline."""
        for chunk in self.chunks(blocks):
            self.run(chunk, moves=moves, deadline=deadline)

    def run(
        self,
        blocks: NDArray[np.int64],
        *,
        trace: ExecutionTrace | None = None,
        recorder: Recorder | None = None,
        checker: Checker | None = None,
        moves: AffineValues | None = None,
        deadline: Deadline | None = None,
    ) -> Tally:
        """Run some blocks at once, and count them; whoever is given watches.

        Raises:
            KernelFault: The kernel touched memory that is not its own, or stopped itself.
            OutOfTime: The time was up.
        """
        chunk = Chunk(
            self.program,
            self.grid,
            blocks,
            self.memory,
            self.patterns,
            source=self.source,
            deadline=deadline or self.deadline,
            trace=trace,
            recorder=recorder,
            checker=checker,
            moves=moves,
        )
        try:
            return chunk.run()
        except (KernelFault, EmulationTimeoutError) as error:
            timed_out = isinstance(error, EmulationTimeoutError)
            self._cut_short = "the time limit" if timed_out else "a fault"
            raise

    def out_of_time(self, error: EmulationTimeoutError, blocks: int) -> EmulationTimeoutError:
        """The error, with how many blocks were done."""
        return self.deadline.error(
            f"{error.reached} ({blocks} of {self.launch.blocks} blocks done)"
        )

    @property
    def chunk_blocks(self) -> int:
        """How many blocks run at once."""
        lanes = CHUNK_LANES // self.grid.padded_threads
        own = self._chunk_bytes // _block_bytes(self.launch, self.program)
        return max(1, min(lanes, own))

    def chunks(self, blocks: BlockCoordinates, step: int = 0) -> Iterator[NDArray[np.int64]]:
        """Blocks in their order, so many as run at once; as many as can where nothing is said."""
        step = step or self.chunk_blocks
        for start in range(0, len(blocks), step):
            yield blocks[start : start + step]

    def _parameters(self) -> bytes:
        space = bytearray(self.program.parameter_bytes)
        addresses = {each.name: each.address for each in self.memory.allocations}
        for argument, variable in zip(
            self.launch.arguments, self.program.parameter_variables, strict=True
        ):
            value = argument_bytes(argument, addresses)
            start = self.program.parameters[variable.name]
            space[start : start + variable.size] = value.ljust(variable.size, b"\0")
        return bytes(space)


def _block_bytes(launch: Launch, program: Program) -> int:
    """What a block's lanes have of their own, bytes."""
    lanes = -(-launch.threads_per_block // WARP_SIZE) * WARP_SIZE
    registers = sum(parser.TYPE_BYTES[each] for each in program.registers.values())
    addresses = len(address_registers(program)) * _ADDRESS_BYTES
    own = registers + addresses + program.local_bytes + program.argument_bytes + _LANE_BYTES
    return lanes * own + program.static_shared_bytes + launch.dynamic_shared_bytes


def _chunk_bytes(launch: Launch, program: Program, budget: Budget) -> int:
    """How much memory the blocks that run at once may have of their own.

    Raises:
        UsageError: Not even the probe's few blocks fit beside the arrays.
    """
    arrays = sum(each.nbytes for each in launch.buffers) + sum(
        each.size for each in program.globals
    )
    kept = sum(each.nbytes for each in launch.outputs if each.role == "inout")
    kept += sum(math.prod(each.shape) * 8 for each in launch.constants)
    unit = write_tracking_bytes(each.element_bytes for each in launch.buffers)
    needed = arrays + arrays // unit + kept  # a byte for each unit says whether it was written
    least = PROBE_BLOCKS * _block_bytes(launch, program)
    what = f"{needed} for its arrays, {least} for the threads of {PROBE_BLOCKS} blocks"
    budget.check(needed + least, what)
    return max(min(CHUNK_BYTES, budget.allowed_bytes() - needed), 1)
