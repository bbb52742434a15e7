"""One launch in the emulator: its memory, and the execution of its blocks in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Budget, Deadline, EmulationTimeoutError
from memlab.device.compiler.compile import CompiledKernel
from memlab.device.compiler.ptx_text import waits_for_grid
from memlab.device.emulation import tensor_maps
from memlab.device.emulation.block_parts import (
    PART_LANES,
    ConflictError,
    can_run_in_parts,
    on_all_cores,
    run_parts,
    threads,
)
from memlab.device.emulation.texture_objects import object_bytes
from memlab.device.emulator.codegen.program_code import native_program
from memlab.device.emulator.isa.textures import OBJECT_BYTES, handle
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory, KernelFault, write_tracking_bytes
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.machine.tally import ChunkCounts, Tally, WarpWork
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.models.address_streams import NEIGHBORHOOD_BLOCKS
from memlab.device.emulator.program.program import (
    GRID_WORKSPACE,
    Program,
    address_registers,
    load_program,
    with_constants,
)
from memlab.device.emulator.ptx import parser
from memlab.device.emulator.sampling.affine_values import AffineValues
from memlab.device.emulator.sampling.block_sample import BlockCoordinates, WholeGrid
from memlab.device.emulator.sampling.data_dependence import has_global_atomics
from memlab.device.emulator.sampling.without_data import without_data
from memlab.device.inputs import (
    POISON_BYTE,
    argument_bytes,
    array_bytes,
    make_inputs,
    place_members,
)
from memlab.device.measurement import Verification
from memlab.device.outputs import Outputs
from memlab.device.properties import WARP_SIZE
from memlab.device.structure_arrays import array_type
from memlab.device.texture_arrays import element_places, footprint_bytes
from memlab.device.verification import UNVERIFIED, ActualOutput, verify
from memlab.errors import UsageError
from memlab.kernels.launch import Buffer, Launch, source_lines

Watcher = TypeVar("Watcher", bound=Observer)
T = TypeVar("T")

CHUNK_LANES = 16_384
"""Lanes of a chunk: registers of this length stay in a CPU's L2 cache, and calls are few."""
CHUNK_BYTES = 2**28
"""Bytes of registers, local and shared memory of a chunk. If threads need much of these, a chunk
has fewer lanes."""

_LONG_S = 0.5
"""Blocks that are observed longer than this are observed without their data."""

_CHUNKS_PER_THREAD = 4  # that run before threads wait for each other

_LANE_BYTES = 128  # per lane: special registers, masks and temporary arrays of an instruction
_ADDRESS_BYTES = 24  # per lane and register that addresses memory: the resolved address


class Execution:
    """A launch prepared for the emulator, with its memory.

    Attributes:
        launch: The launch.
        seed: The seed of the random inputs and of the sample of blocks.
        source: The lines of the source.
        deadline: The time limit; it runs from the construction.
        memory: The global memory, with the launch's arrays and the module's variables.
        inputs: The initial values of input arrays, by name.
        program: The program, with the launch's `__constant__` variables filled in.
        grid: The grid, the block, dynamic shared memory and the kernel's arguments.
        work: What the warps of the blocks that ran have executed, but for those observed.
        runs_in_lockstep: Whether the blocks of a chunk run at once, since they may affect each
            other (`block_parts`).
    """

    def __init__(
        self,
        launch: Launch,
        program: Program,
        seed: int,
        source: list[str],
        budget: Budget | None = None,
    ) -> None:
        """Lay out memory, draw the inputs and start the time limit.

        Raises:
            UsageError: The number of arguments differs from the program's, or the arrays and the
                lanes of a few blocks need more memory than is allowed.
        """
        declared, passed = len(program.parameter_variables), len(launch.arguments)
        if declared != passed:
            raise UsageError(f"{launch.kernel} takes {declared} arguments, the launch has {passed}")
        budget = budget or Budget()
        self.launch, self.seed, self.source = launch, seed, source
        self.program = program
        self.deadline = Deadline(budget.timeout_s)
        self._chunk_bytes = _chunk_bytes(launch, program, budget)
        sizes = {
            buffer.name: (footprint_bytes(buffer), buffer.element_bytes)
            for buffer in launch.buffers
        }
        sizes |= {variable.name: (variable.size, 4) for variable in program.globals}
        self.memory = GlobalMemory(sizes)
        self._places = {b.name: element_places(b) for b in launch.buffers if b.view is not None}
        plain = {b.name: self._in_place(b) for b in launch.buffers if b.view is None}
        drawn = {item.name for item in launch.inputs}
        poisoned = [self.memory.bytes_of(b.name) for b in launch.outputs if b.name not in drawn]
        self.inputs = make_inputs(launch, seed, plain, poisoned)
        addresses, objects = self._addresses()
        place_members(launch, self.inputs, addresses, tensor_maps.encode)
        for buffer in launch.buffers:
            if buffer.view is not None and buffer.name in drawn:
                self._store(buffer, self.inputs[buffer.name])
        for buffer in launch.outputs:
            if buffer.name in self.inputs:  # the kernel overwrites its input
                held = self.inputs[buffer.name]
                self.inputs[buffer.name] = _copy_with_padding(held)
        self.program = with_constants(
            program, {c.name: self.inputs[c.name] for c in launch.constants}
        )
        self.grid = Grid(
            launch.grid,
            launch.block,
            launch.dynamic_shared_bytes,
            self._parameters(addresses, objects),
            addresses.get(GRID_WORKSPACE.name, 0),
            launch.cluster,
        )
        self.work = WarpWork(self.grid)
        self._workspace = Workspace()
        self.runs_in_lockstep = not can_run_in_parts(self.program)
        self._done: list[NDArray[np.int64]] = []  # chunks that ran in parts since the last reset
        self._chunks: dict[Workspace, Chunk] = {}  # those that ran last, by their workspace
        self._cut_short = ""  # why blocks were cut short since the last reset
        self._leaves_data_out = False  # where blocks are observed
        self._least_at_once = 1  # blocks of a chunk that memory does not limit
        for buffer in launch.outputs:
            self._set_initial(buffer)
        self._initialize_variables()

    @classmethod
    def of(
        cls,
        launch: Launch,
        compiled: CompiledKernel,
        seed: int,
        budget: Budget | None = None,
        adapt: Callable[[Program], Program] | None = None,
    ) -> Execution:
        """Load a compiled launch and draw its inputs.

        Args:
            launch: The launch.
            compiled: The launch, compiled.
            seed: The seed of the inputs and of the sample of blocks.
            budget: The limits of time and memory; None for the defaults.
            adapt: Changes how the program's accesses are counted; None for as they are.

        Raises:
            PtxError: The program has an instruction that the emulator does not know.
            UsageError: As the constructor.
        """
        if not compiled.ptx:
            raise parser.PtxError(
                f"{launch.kernel} comes as machine code alone, which only a GPU executes: name "
                "one, as in --device 0, or a file with PTX"
            )
        source = source_lines(launch.source)
        program = _load_program(
            compiled.ptx,
            launch.entry,
            tuple(source),
            launch.cluster_blocks > 1,
            compiled.architecture,
        )
        program = adapt(program) if adapt else program
        return cls(launch, program, seed, source, budget)

    def array(self, buffer: Buffer) -> NDArray[Any]:
        """A buffer's elements in the emulated memory: a view, or a copy where it is a surface."""
        if buffer.view is None:
            return self._in_place(buffer)
        return self._numbers(buffer)[self._places[buffer.name]]

    def elements_written(self, buffer: Buffer) -> NDArray[np.int64]:
        """Row-major positions of the elements of a buffer that were stored to."""
        return self.row_major(buffer, self.memory.elements_written(buffer.name))

    def row_major(self, buffer: Buffer, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row-major positions of elements by their places in memory; padding is left out."""
        if buffer.view is None:
            return places
        chosen = np.zeros(self._numbers(buffer).size, np.bool_)
        chosen[places] = True
        return np.flatnonzero(chosen[self._places[buffer.name].reshape(-1)])

    def _in_place(self, buffer: Buffer) -> NDArray[Any]:
        return self._numbers(buffer).reshape(buffer.shape)

    def _numbers(self, buffer: Buffer) -> NDArray[Any]:
        return self.memory.bytes_of(buffer.name).view(array_type(buffer))

    def _store(self, buffer: Buffer, values: NDArray[Any]) -> None:
        """Set a buffer's elements in the emulated memory."""
        if buffer.view is None:
            self.memory.bytes_of(buffer.name)[:] = array_bytes(values)  # with pointers in padding
        else:
            self._numbers(buffer)[self._places[buffer.name]] = values

    def reset(self) -> None:
        """Restore the initial values of output arrays and module variables.

        Of arrays only the pieces that were stored to: a few blocks write little of a large one.
        """
        for buffer in self.launch.outputs:
            if buffer.view is not None:
                self._set_initial(buffer)
                continue
            held, initial = self.memory.bytes_of(buffer.name), self.inputs.get(buffer.name)
            for piece in self.memory.written_pieces(buffer.name):
                held[piece] = POISON_BYTE if initial is None else array_bytes(initial)[piece]
        self._initialize_variables()
        self.memory.forget_writes()
        if self.memory.heap is not None:
            self.memory.heap.clear()
        self._done.clear()
        self._cut_short = ""

    def _set_initial(self, buffer: Buffer) -> None:
        """Set the initial values of an output array."""
        if buffer.name in self.inputs:
            self._store(buffer, self.inputs[buffer.name])
        else:
            self.memory.bytes_of(buffer.name)[:] = POISON_BYTE

    def _initialize_variables(self) -> None:
        """Set the initial values of module variables."""
        launch_constants = {constant.name for constant in self.launch.constants}
        for variable in self.program.globals:
            initial = variable.initial or bytes(variable.size)
            if variable.name in launch_constants:
                initial = self.inputs[variable.name].tobytes()
            self.memory.bytes_of(variable.name)[:] = np.frombuffer(initial, np.uint8)

    def verify(self, whole: bool) -> Verification:
        """Compare the outputs of the executed blocks with the references.

        Sums that blocks add to with global atomics can only be verified if all blocks were
        executed.

        Args:
            whole: Whether all blocks were executed.
        """
        return self.verification(whole)()

    def verification(self, whole: bool) -> Callable[[], Verification]:
        """What verifies the outputs of the executed blocks, as `verify`.

        It has a copy of them, and so may run beside other uses of the execution.
        """
        reason = self._unusable_reason(whole)
        if reason and self.launch.references:
            return lambda: replace(UNVERIFIED, worst=reason)
        outputs = {}
        for output in self.launch.outputs:
            if output.name not in self.launch.references:
                continue
            values = self.array(output).reshape(-1)
            index = np.arange(values.size) if whole else self.elements_written(output)
            outputs[output.name] = ActualOutput(index, values.copy() if whole else values[index])
        return partial(verify, self.launch, self.inputs, outputs)

    def outputs(self, whole: bool) -> Outputs:
        """Copy the outputs; of a sample of the blocks, elements that they did not write are masked.

        Args:
            whole: Whether all blocks were executed.
        """
        if reason := self._unusable_reason(whole):
            return Outputs(missing=f"the outputs are incomplete: {reason}")
        arrays = {output.name: self.array(output).copy() for output in self.launch.outputs}
        if not whole:
            for output in self.launch.outputs:
                values = arrays[output.name]
                mask = np.ones(values.size, np.bool_)
                mask[self.elements_written(output)] = False
                arrays[output.name] = np.ma.MaskedArray(values, mask.reshape(values.shape))
        return Outputs(arrays, missing="")

    def _unusable_reason(self, whole: bool) -> str:
        """Why the outputs of the executed blocks are not those of the grid; empty if they are."""
        if self._cut_short:
            return f"{self._cut_short} cut blocks short"
        if not whole and has_global_atomics(self.program):
            return "blocks add up results with atomics, and not all of them ran"
        return ""

    def check_roles(self) -> None:
        """Refuse a launch whose kernel wrote to an array that is declared an input.

        Raises:
            UsageError: The kernel did; the message names the element.
        """
        for buffer in self.launch.buffers:
            if buffer.role != "in":
                continue
            written = self.elements_written(buffer)
            if written.size:
                raise UsageError(
                    f"{self.launch.kernel} writes to {buffer.name}[{written[0]}], and "
                    f"{buffer.name} is an input: declare it inout: or out:"
                )

    def record(self, blocks: BlockCoordinates, *observers: Observer) -> Tally:
        """Execute blocks, chunk by chunk, under observers, and return their counters."""
        tally = Tally.of(self.program)
        for chunk in self.chunks(blocks):
            tally.add(self.run(chunk, observers=observers).tally())
        return tally

    def record_chunks(
        self,
        chunks: Sequence[NDArray[np.int64]],
        make: Callable[[], Watcher],
        take: Callable[[Watcher], T],
        program: Program | None = None,
    ) -> list[T]:
        """Execute chunks of blocks under observers, and return what was recorded of each.

        They are executed on all cores, unless blocks may affect each other.

        Args:
            chunks: The coordinates of the blocks of each, shape (blocks, 3).
            make: Makes an observer, which watches one chunk after the other.
            take: What an observer has recorded of the last chunk.
            program: What to execute; None for the launch's program.

        Raises:
            KernelFault, EmulationTimeoutError: As `run`.
        """
        if not self.runs_in_lockstep and self.chunk_blocks == self._lane_blocks:
            recorded = self._record_on_all_cores(chunks, make, take, program)
            arrays = self.memory.arrays
            if not (arrays["loaded"] & arrays["stored"]).any():
                return recorded
            self.runs_in_lockstep = True
            self.reset()
        observer, recorded = make(), []
        for blocks in chunks:
            self.run(blocks, observers=[observer], program=program)
            recorded.append(take(observer))
        return recorded

    def _record_on_all_cores(
        self,
        chunks: Sequence[NDArray[np.int64]],
        make: Callable[[], Watcher],
        take: Callable[[Watcher], T],
        program: Program | None,
    ) -> list[T]:
        # It is compiled once, before threads use it.
        native_program(program or self.program, (), self.source)
        left = iter(enumerate(chunks))  # what no thread has taken yet

        def run(workspace: Workspace, stop: Deadline) -> list[tuple[int, T]]:
            observer, recorded = make(), []
            for number, blocks in left:
                self._chunk(blocks, workspace, None, stop, [observer], program).execute()
                recorded.append((number, take(observer)))
            return recorded

        numbered = on_all_cores(run, len(chunks), self.deadline)
        return [recorded for _, recorded in sorted(numbered, key=lambda pair: pair[0])]

    def observe(self, blocks: NDArray[np.int64], *observers: Observer) -> ChunkCounts:
        """Execute blocks as one chunk under observers of what they access, and not compute.

        Where that takes long, data that decides nothing is left out; the observers begin again.

        Raises:
            KernelFault, EmulationTimeoutError: As `run`.
        """
        rest = without_data(self.program)
        if rest is not None and not self._leaves_data_out:
            limit = Deadline(min(self.deadline.left(), _LONG_S))
            try:
                return self.run(blocks, observers=observers, deadline=limit)
            except EmulationTimeoutError:
                self.reset()
                self._leaves_data_out = True
        left_out = rest if self._leaves_data_out else None
        return self.run(blocks, observers=observers, program=left_out)

    def follow(self, blocks: NDArray[np.int64], values: AffineValues, deadline: Deadline) -> None:
        """Execute the instructions that decide control flow and addresses, as affine values."""
        for chunk in self.chunks(blocks):
            self.run(chunk, observers=[values], deadline=deadline, program=values.program)

    def run(
        self,
        blocks: NDArray[np.int64],
        *,
        observers: Sequence[Observer] = (),
        deadline: Deadline | None = None,
        program: Program | None = None,
        cuts: Collection[int] = (),
    ) -> ChunkCounts:
        """Execute blocks as one chunk, and return their counts.

        Args:
            blocks: The coordinates of the blocks, shape (blocks, 3).
            observers: The observers of the chunk; at most one is an `ExecutionPolicy`.
            deadline: The time limit; None for the launch's own.
            program: What to execute; None for the launch's program.
            cuts: Instructions that the machine code has apart from others, as if they were
                watched: no other code is compiled where observers watch the same ones later.

        Raises:
            KernelFault: The kernel accessed memory out of bounds, or stopped itself (`trap`).
            EmulationTimeoutError: The time was up.
        """
        is_special = bool(observers) or program is not None or bool(cuts)
        if not is_special:
            return self.run_chunks([blocks], deadline)[0]
        limit = deadline or self.deadline
        return self._run_in_lockstep(blocks, observers, limit, program, cuts)

    def run_chunks(
        self, chunks: Sequence[NDArray[np.int64]], deadline: Deadline | None = None
    ) -> list[ChunkCounts]:
        """Execute chunks of blocks, as `run` does one by one, and return the counts of each."""
        limit = deadline or self.deadline
        if self.runs_in_lockstep or sum(map(len, chunks)) <= self._part_blocks:
            return [self._run_in_lockstep(blocks, (), limit, None) for blocks in chunks]
        try:
            counted = self._run_in_parts(chunks, limit)
        except ConflictError:
            self.runs_in_lockstep = True
            self._chunks.clear()
            done = self._done.copy()
            self.reset()
            counted = self.run_chunks([*done, *chunks], deadline)[len(done) :]
        else:
            self._done += chunks
        return counted

    def _run_in_lockstep(
        self,
        blocks: NDArray[np.int64],
        observers: Sequence[Observer],
        deadline: Deadline,
        program: Program | None,
        cuts: Collection[int] = (),
    ) -> ChunkCounts:
        """Execute blocks at once."""
        if not self.runs_in_lockstep:
            self._done.append(blocks)
        if observers or program is not None or cuts:
            chunk = self._chunk(blocks, self._workspace, None, deadline, observers, program, cuts)
        else:
            chunk = self._take_chunk(blocks, self._workspace, None, deadline)
        try:
            chunk.execute()
            return chunk.take_counts()
        except (KernelFault, EmulationTimeoutError) as error:
            timed_out = isinstance(error, EmulationTimeoutError)
            self._cut_short = "the time limit" if timed_out else "a fault"
            raise

    def _run_in_parts(
        self, chunks: Sequence[NDArray[np.int64]], deadline: Deadline
    ) -> list[ChunkCounts]:
        """Execute the blocks of chunks a few at a time, on all cores.

        Raises:
            ConflictError: The results may differ from those of the blocks run at once.
            EmulationTimeoutError: The time was up.
        """
        native_program(self.program, (), self.source)  # it is compiled once, before threads use it
        part_blocks = self._part_blocks
        first = self.memory.new_writers(sum(-(-len(blocks) // part_blocks) for blocks in chunks))
        try:
            counted = run_parts(chunks, part_blocks, self._take_chunk, first, deadline)
        except EmulationTimeoutError:
            self._cut_short = "the time limit"
            raise
        arrays = self.memory.arrays
        if (arrays["loaded"] & arrays["stored"]).any():
            raise ConflictError
        return [
            ChunkCounts.sum([counts for chunk, counts in counted if chunk == number])
            for number in range(len(chunks))
        ]

    def _take_chunk(
        self,
        blocks: NDArray[np.int64],
        workspace: Workspace,
        writers: tuple[int, int] | None,
        deadline: Deadline,
    ) -> Chunk:
        """The chunk that has used a workspace last, with other blocks, or a new one."""
        chunk = self._chunks.get(workspace)
        if chunk is None or not chunk.restart(blocks, writers, deadline):
            chunk = self._chunk(blocks, workspace, writers, deadline, work=self.work)
            self._chunks[workspace] = chunk
        return chunk

    def _chunk(
        self,
        blocks: NDArray[np.int64],
        workspace: Workspace,
        writers: tuple[int, int] | None,
        deadline: Deadline,
        observers: Sequence[Observer] = (),
        program: Program | None = None,
        cuts: Collection[int] = (),
        work: WarpWork | None = None,
    ) -> Chunk:
        return Chunk(
            program or self.program,
            self.grid,
            blocks,
            self.memory,
            workspace,
            writers=writers,
            observers=observers,
            cuts=cuts,
            source=self.source,
            deadline=deadline,
            work=work,
        )

    def out_of_time(self, error: EmulationTimeoutError, blocks: int) -> EmulationTimeoutError:
        """The error of a run that timed out, extended by the number of finished blocks."""
        return self.deadline.error(
            f"{error.reached} ({blocks} of {self.launch.blocks} blocks done)"
        )

    @property
    def blocks(self) -> WholeGrid:
        """All blocks, in the order in which they are executed: cluster by cluster."""
        return WholeGrid(self.launch.grid, self.launch.cluster)

    @property
    def chunks_at_once(self) -> int:
        """The number of chunks that keep all cores busy; 1 where memory limits a chunk."""
        if self.runs_in_lockstep or not self._part_blocks < self.chunk_blocks == self._lane_blocks:
            return 1
        return threads() * _CHUNKS_PER_THREAD

    @property
    def chunks_to_begin_with(self) -> int:
        """The number of chunks that have a part for each thread."""
        parts = self.chunk_blocks // self._part_blocks
        return 1 if self.chunks_at_once == 1 else -(-threads() // parts)

    @property
    def chunk_blocks(self) -> int:
        """The number of blocks in a chunk: whole clusters; all, if they wait for each other."""
        if self.program.waits_for_grid:
            return self.launch.blocks
        by_memory = self._chunk_bytes // _block_bytes(self.launch, self.program)
        return self._whole_clusters(min(self._lane_blocks, by_memory))

    def run_at_once(self, blocks: int) -> None:
        """Run at least so many blocks at once, if they run in lockstep and memory allows it."""
        self._least_at_once = blocks

    @property
    def _lane_blocks(self) -> int:
        """The number of blocks in a chunk that memory does not limit."""
        by_lanes = CHUNK_LANES // self.grid.padded_threads
        return self._whole_clusters(max(by_lanes, self._least_at_once))

    @property
    def _part_blocks(self) -> int:
        """The number of blocks in a part of a chunk."""
        return self._whole_clusters(PART_LANES // self.grid.padded_threads)

    def _whole_clusters(self, blocks: int) -> int:
        """The blocks of as many whole clusters as so many blocks hold, at least of one."""
        each = self.launch.cluster_blocks
        return max(blocks // each, 1) * each

    def chunks(self, blocks: BlockCoordinates, step: int = 0) -> Iterator[NDArray[np.int64]]:
        """Cut blocks into chunks of `step` blocks, in order; 0 for the largest chunks."""
        step = step or self.chunk_blocks
        for start in range(0, len(blocks), step):
            yield blocks[start : start + step]

    @property
    def _objects_start(self) -> int:
        """Where texture and surface objects lie in the parameter space, bytes."""
        return -(-self.program.parameter_bytes // OBJECT_BYTES) * OBJECT_BYTES

    def _addresses(self) -> tuple[dict[str, int], bytes]:
        """What stands for each array in arguments: its address or object; and the objects."""
        addresses = {array.name: array.address for array in self.memory.allocations}
        objects = b""
        for buffer in self.launch.buffers:
            if buffer.view is not None:
                packed = object_bytes(buffer, addresses[buffer.name])
                addresses[buffer.name] = handle(self._objects_start + len(objects))
                objects += packed
        return addresses, objects

    def _parameters(self, addresses: Mapping[str, int], objects: bytes) -> bytes:
        """The kernel's arguments, laid out as in the parameter space, then the objects."""
        space = bytearray(self.program.parameter_bytes)
        for argument, variable in zip(
            self.launch.arguments, self.program.parameter_variables, strict=True
        ):
            value = argument_bytes(argument, addresses, tensor_maps.encode)
            start = self.program.parameters[variable.name]
            space[start : start + variable.size] = value.ljust(variable.size, b"\0")
        return bytes(space).ljust(self._objects_start, b"\0") + objects if objects else bytes(space)


def _copy_with_padding(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of an array with the padding of its structures, in which pointers lie."""
    copied: NDArray[Any] = array_bytes(array).copy().view(array.dtype).reshape(array.shape)
    return copied


@lru_cache(maxsize=32)
def _load_program(
    ptx: str,
    entry: str,
    source: tuple[str, ...],
    in_cluster: bool,
    compute_capability: tuple[int, int],
) -> Program:
    """The program of a kernel, for one launch after another."""
    own_lines = source == tuple(source_lines(ptx))
    cooperative = waits_for_grid(ptx, entry)
    module = parser.parse_ptx(ptx, own_lines)
    return load_program(module, entry, source, cooperative, in_cluster, compute_capability)


def _block_bytes(launch: Launch, program: Program) -> int:
    """The memory that the emulator needs per block, besides the launch's arrays, in bytes."""
    lanes = -(-launch.threads_per_block // WARP_SIZE) * WARP_SIZE
    shared = program.static_shared_bytes + launch.dynamic_shared_bytes
    return lanes * _bytes_per_lane(program) + shared


@lru_cache(maxsize=32)
def _bytes_per_lane(program: Program) -> int:
    registers = sum(parser.TYPE_BYTES[ptx_type] for ptx_type in program.registers.values())
    addressing = set().union(*map(address_registers, program.steps))
    addresses = len(addressing) * _ADDRESS_BYTES
    return registers + addresses + program.local_bytes + program.argument_bytes + _LANE_BYTES


def _chunk_bytes(launch: Launch, program: Program, budget: Budget) -> int:
    """The memory that the blocks of a chunk may take, in bytes.

    Raises:
        UsageError: The arrays and the few blocks that are recorded need more than is allowed.
    """
    arrays = sum(map(footprint_bytes, launch.buffers))
    # Where their elements lie, and their values in row-major order.
    arrays += sum(b.elements * 8 + b.nbytes for b in launch.buffers if b.view is not None)
    arrays += sum(variable.size for variable in program.globals)
    copies = sum(output.nbytes for output in launch.outputs if output.role == "inout")
    copies += sum(math.prod(constant.shape) * 8 for constant in launch.constants)
    unit = write_tracking_bytes(buffer.element_bytes for buffer in launch.buffers)
    needed = arrays + arrays // unit + copies  # a byte per unit marks it as written
    recorded = NEIGHBORHOOD_BLOCKS * launch.cluster_blocks
    blocks = launch.blocks if program.waits_for_grid else recorded
    least = blocks * _block_bytes(launch, program)
    purpose = f"{needed} for its arrays, {least} for the threads of {blocks} blocks"
    allowed = budget.check(needed + least, purpose)
    return max(min(CHUNK_BYTES, allowed - needed), 1)
