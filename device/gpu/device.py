"""A real GPU: times are measured on it, and counters come from emulating the same launch.

Hardware counters need a permission that users of rented GPUs do not have; the emulator needs
none. The GPU and the emulator run the result of the same compilation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from memlab.device.budget import Budget
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.compiler.ptx_text import waits_for_grid
from memlab.device.datasheets import loader
from memlab.device.emulation.device import emulate_if_supported, resident_blocks
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu import tensor_maps
from memlab.device.gpu.driver import translated_errors
from memlab.device.gpu.driver_kernel import PYCUDA_ALIGNMENT_BYTES, DriverKernel
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.texture_objects import ObjectOnGpu
from memlab.device.gpu.timing import Samples, TimingSettings, summarize_time
from memlab.device.gpu.worker import Worker
from memlab.device.inputs import (
    alignment_of,
    argument_bytes,
    count_unwritten,
    make_inputs,
    pack_arguments,
    place_members,
)
from memlab.device.measurement import (
    DeviceKind,
    Measurement,
    Progress,
    Time,
    Verification,
    ignore_progress,
)
from memlab.device.outputs import Outputs
from memlab.device.properties import MACHINE_FIGURES, DeviceProperties, device_summary
from memlab.device.structure_arrays import array_type
from memlab.device.verification import ActualOutput, checked_positions, verify
from memlab.kernels.launch import Buffer, Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memlab.device.gpu.worker import WorkerLink

Result = TypeVar("Result")

EVENT_PAIR_SETTINGS = TimingSettings(samples=100, settle_s=0.0)
"""For two events without a launch; the clock has already settled under the load of the launch."""

STDOUT_DESCRIPTOR = 1  # the driver writes to the descriptor directly, not through Python

ARCHITECTURE_FIGURES = (
    "fp32_lanes_per_sm",
    "fp64_lanes_per_sm",
    "l1_cache_bytes_per_sm",
    "l1_bytes_per_clock_per_sm",
    "shared_bytes_per_clock_per_sm",
    "constant_passes_per_clock_per_sm",
    "register_latency_clocks",
    "shared_latency_clocks",
    "constant_latency_clocks",
    "l1_latency_clocks",
    "barrier_latency_clocks",
    "issue_slots_per_clock_per_sm",
    "pipe_lanes_per_clock_per_sm",
    "pipe_latency_clocks",
    "mma_flop_per_clock_per_sm",
    "mma_latency_clocks",
    "l1_lines_per_clock_per_sm",
    "shared_atomic_latency_clocks",
    "shared_atomic_lanes_per_clock_per_sm",
    "shared_atomic_same_address_clocks",
    "warp_start_clocks",
    "barrier_latency_by_warps_clocks",
    "constant_latency_by_footprint_clocks",
    "code_clocks_per_instruction_by_bytes",
)
"""Properties of one multiprocessor, which are the same on every chip of a compute capability."""


class CudaDevice:
    """A GPU in this machine.

    Attributes:
        key: `cuda:0` or another index.
        properties: Properties from the driver, completed from a datasheet.
    """

    kind: DeviceKind = "cuda"

    def __init__(
        self, index: int, settings: TimingSettings | None = None, budget: Budget | None = None
    ) -> None:
        """Query a GPU.

        Args:
            index: The GPU's number, from 0, as CUDA counts.
            settings: When to stop timing a launch, and when to give it up.
            budget: The time and memory that the emulation for the counters may take.

        Raises:
            DeviceError: There is no such GPU, or no way to use one.
        """
        self.index, self.key = index, f"cuda:{index}"
        self.properties = with_datasheet(gpu_query.query_properties(index))
        self._settings, self._budget = settings or TimingSettings(), budget

    def run(
        self,
        launch: Launch,
        seed: int,
        progress: Progress | None = None,
        *,
        keep_outputs: bool = False,
    ) -> Measurement:
        """Compile a launch, run it on the GPU, verify it, time it, and count it by emulation.

        Args:
            launch: The launch.
            seed: Seed of the random inputs and of the samples of blocks and rows.
            progress: Called with the current step and its completed fraction.
            keep_outputs: Whether the measurement has the outputs.

        Raises:
            UsageError: The launch does not compile, or its arrays do not fit.
            DeviceError: The GPU cannot be used.
            MemlabError: The kernel faulted or did not end.
        """
        properties = self.properties
        (progress or ignore_progress)("compiling", None)
        compiled = compile_launch(launch, properties.compute_capability)
        resident = resident_blocks(launch, compiled, properties)
        time, verification, outputs, emulation = measure_launch(
            self.index,
            launch,
            compiled,
            seed,
            self._settings,
            progress,
            meanwhile=lambda: emulate_if_supported(
                launch, compiled, properties, seed, progress, self._budget
            ),
            keep_outputs=keep_outputs,
        )
        device = device_summary(properties, self.kind, self.key)
        return emulation.measurement(
            launch, compiled, device, resident, time, verification, outputs
        )


def with_datasheet(queried: DeviceProperties) -> DeviceProperties:
    """Complete the properties from the driver by a datasheet's, such as lanes and latencies.

    A datasheet with the GPU's name gives all properties that do not depend on the machine.
    Otherwise a datasheet of the same compute capability gives the properties of a multiprocessor.

    Args:
        queried: The properties from the driver, which take precedence.
    """
    sheets = [loader.load_datasheet(name) for name in loader.datasheet_names()]
    for sheet in sheets:
        if sheet.name == queried.name:
            names = {field.name for field in fields(DeviceProperties)} - set(MACHINE_FIGURES)
            return _filled_from_datasheet(queried, sheet, names)
    for sheet in sheets:
        if sheet.compute_capability == queried.compute_capability:
            return _filled_from_datasheet(queried, sheet, ARCHITECTURE_FIGURES)
    return queried


def _filled_from_datasheet(
    queried: DeviceProperties, sheet: DeviceProperties, names: Iterable[str]
) -> DeviceProperties:
    added: dict[str, Any] = {
        name: getattr(sheet, name)
        for name in names
        if name in sheet.sources and name not in queried.sources
    }
    sources = {name: sheet.sources[name] for name in added}
    return replace(queried, sources={**queried.sources, **sources}, **added)


def measure_launch(
    index: int,
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    settings: TimingSettings,
    progress: Progress | None,
    meanwhile: Callable[[], Result],
    keep_outputs: bool = False,
) -> tuple[Time, Verification, Outputs, Result]:
    """Run a launch on a GPU, in a worker; verify it, then time it.

    Args:
        index: The GPU's number.
        launch: The launch.
        compiled: Its code.
        seed: Seed of the inputs and of the rows that are verified.
        settings: When to stop timing, and when to give a launch up.
        progress: Called with the current step.
        meanwhile: Called while the launch is timed, after it has ended once: a kernel that faults
            or never ends on the GPU would do so in the emulator too.
        keep_outputs: Whether to return the outputs.

    Returns:
        The time, the verification, the outputs if they are to be kept, and the result of
        `meanwhile`.

    Raises:
        UsageError: The arrays do not fit.
        DeviceError: The GPU cannot be used.
        MemlabError: The kernel faulted or did not end.
    """
    positions = compared_positions(launch, seed)
    # A reference may be a function that another process cannot import.
    sent = replace(launch, references={})
    task = (index, sent, compiled, seed, positions, settings, keep_outputs)
    with Worker(run_and_time, *task) as worker:
        inputs = make_inputs(launch, seed)
        compared, arrays = worker.take(progress)
        verification = verify(launch, inputs, compared)
        worker.resume()
        meanwhile_result = meanwhile()
        cold, warm, event_pair = worker.result(progress)
    outputs = Outputs(arrays, missing="") if keep_outputs else Outputs()
    return summarize_time(cold, warm, event_pair), verification, outputs, meanwhile_result


def compared_positions(launch: Launch, seed: int) -> dict[str, NDArray[np.int64]]:
    """The elements of each output with a reference that are compared with it, by output."""
    return {
        output.name: checked_positions(launch, output.shape, seed)
        for output in launch.outputs
        if output.name in launch.references
    }


def run_and_time(
    link: WorkerLink,
    index: int,
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    positions: Mapping[str, NDArray[np.int64]],
    settings: TimingSettings,
    keep_outputs: bool,
) -> tuple[Samples, Samples, Samples]:
    """The worker's task: run a launch once and hand over its outputs, then time it.

    The outputs' elements at `positions` are handed over, and how many elements were never written;
    then the whole outputs, if they are to be kept.

    Returns:
        Samples with cold caches, with warm caches, and of two events with nothing between them.
    """
    link.report("preparing inputs")
    with GpuSession(index, link, settings.timeout_s) as session:
        ready = prepare_on_gpu(session, launch, compiled, seed)
        hand_over_outputs(link, session, launch, ready, positions, keep_outputs)
        _discard_stdout()
        link.report("timing, caches cold")
        cold = session.time(
            ready.run_once, settings, flush=True, what=launch.kernel, restore=ready.restore
        )
        link.report("timing, caches warm")
        warm = session.time(
            ready.run_once, settings, flush=False, what=launch.kernel, restore=ready.restore
        )
        event_pair = session.time(lambda: None, EVENT_PAIR_SETTINGS, flush=False)
        return cold, warm, event_pair


def hand_over_outputs(
    link: WorkerLink,
    session: GpuSession,
    launch: Launch,
    ready: LoadedLaunch,
    positions: Mapping[str, NDArray[np.int64]],
    keep_outputs: bool = False,
) -> None:
    """Run a launch once, hand its outputs over, and wait until the caller has looked at them.

    Args:
        link: Takes the outputs' elements at `positions` and the whole outputs, both by name.
        session: The GPU.
        launch: The launch.
        ready: Its code and arrays.
        positions: The elements to compare, by output.
        keep_outputs: Whether the whole outputs are handed over.

    Raises:
        MemlabError: The kernel faulted or did not end.
    """
    link.report(f"running {launch.kernel}")
    with translated_errors(launch.kernel):
        ready.run_once()
    session.synchronize(launch.kernel)
    compared, kept = {}, {}
    for output in launch.outputs:
        chosen = positions.get(output.name)  # None without a reference
        values = None
        if keep_outputs or chosen is not None:
            values = ready.read(session, output)
        compared[output.name] = _compared_elements(output, values, chosen)
        if keep_outputs:
            kept[output.name] = values
    link.hand_over((compared, kept))
    link.wait()


def _discard_stdout() -> None:
    """Discard further output of the process: a kernel that prints does so in every launch."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), STDOUT_DESCRIPTOR)


def _compared_elements(
    output: Buffer, values: NDArray[Any] | None, index: NDArray[np.int64] | None
) -> ActualOutput:
    if values is None or index is None:
        return ActualOutput(np.zeros(0, np.int64), np.zeros(0))
    # An array that the kernel also reads is not poisoned, so unwritten elements are unknown.
    missing = count_unwritten(values) if output.role == "out" else 0
    return ActualOutput(index, values.reshape(-1)[index], missing)


@dataclass(frozen=True)
class LoadedLaunch:
    """A launch whose code and arrays are on the GPU.

    Attributes:
        inputs: Its input arrays on the host, by name.
        memory: Its arrays on the GPU, by name; they are freed with this record, since `run_once`
            holds only their addresses.
        run_once: Queues the launch once.
        restore: Queues copies that restore the arrays that it reads and overwrites; None if there
            are none.
    """

    inputs: Mapping[str, NDArray[Any]]
    memory: Mapping[str, Any]
    run_once: Callable[[], None]
    restore: Callable[[], None] | None = None

    def read(self, session: GpuSession, output: Buffer) -> NDArray[Any]:
        """Wait for all launches and copy an output to the host."""
        into = np.empty(output.shape, array_type(output))
        memory = self.memory[output.name]
        return session.read(memory, into) if output.view is None else memory.read(into)


def prepare_on_gpu(
    session: GpuSession, launch: Launch, compiled: CompiledKernel, seed: int, poison: bool = True
) -> LoadedLaunch:
    """Load a launch's code, make its inputs, copy them to the GPU, and poison its outputs.

    Args:
        session: The GPU.
        launch: The launch.
        compiled: Its code.
        seed: Seed of the inputs.
        poison: Whether to poison the outputs; a sanitizer would regard them as written.

    Raises:
        UsageError: The arrays do not fit.
        DeviceError: The driver cannot load the code.
    """
    inputs = make_inputs(launch, seed)
    memory = {
        buffer.name: _allocate(session, buffer, inputs.get(buffer.name), poison)
        for buffer in launch.buffers
    }
    addresses = {name: int(allocation) for name, allocation in memory.items()}
    place_members(launch, inputs, addresses, tensor_maps.encode)
    constants = {buffer.name: inputs[buffer.name] for buffer in launch.constants}
    cooperative = waits_for_grid(compiled.ptx, launch.entry)
    function = session.load(
        compiled.loadable,
        launch.entry,
        constants,
        cooperative,
        launch.cluster,
        wide_alignment=any(
            alignment_of(argument) > PYCUDA_ALIGNMENT_BYTES for argument in launch.arguments
        ),
    )
    arguments: Sequence[Any]
    if isinstance(function, DriverKernel):
        arguments = [
            argument_bytes(argument, addresses, tensor_maps.encode) for argument in launch.arguments
        ]
    else:
        arguments = _argument_words(pack_arguments(launch.arguments, addresses, tensor_maps.encode))
    for buffer in launch.buffers:
        if buffer.members:  # which hold addresses that were not known before
            session.copy(session.array(inputs[buffer.name]), memory[buffer.name], buffer.nbytes)
    overwritten = [buffer for buffer in launch.buffers if buffer.role == "inout"]
    copies = {buffer.name: session.array(inputs[buffer.name]) for buffer in overwritten}

    def run_once() -> None:
        session.launch(function, launch.grid, launch.block, arguments, launch.dynamic_shared_bytes)

    def restore() -> None:
        for buffer in overwritten:
            if buffer.view is None:
                session.copy(copies[buffer.name], memory[buffer.name], buffer.nbytes)
            else:
                memory[buffer.name].copy_from(copies[buffer.name])

    return LoadedLaunch(inputs, memory, run_once, restore if overwritten else None)


def _allocate(
    session: GpuSession, buffer: Buffer, content: NDArray[Any] | None, poison: bool
) -> Any:
    """Memory for an array, or the object that shows it; `content` is None for outputs."""
    if buffer.view is not None:
        return ObjectOnGpu(session, buffer, content, poison)
    return session.array(buffer.nbytes if content is None else content, poison)


def _argument_words(arguments: bytes) -> list[Any]:
    """Split the bytes of the arguments into numbers that PyCUDA packs to the same bytes.

    PyCUDA passes only numbers and does not align structures; words of 8 bytes keep the alignment.
    """
    whole = len(arguments) // 8 * 8
    words = np.frombuffer(arguments[:whole], np.uint64)
    return [*words, *np.frombuffer(arguments[whole:], np.uint8)]
