"""A real GPU: its time is measured there, its traffic counted by emulating the same launch.

Hardware counters need a permission that users of rented GPUs do not have; the emulator needs
none. Both run the code that one call of the compiler made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from memlab.device.budget import Budget
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation.device import emulate_if_supported, resident_blocks
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.driver import translated_errors
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import Samples, TimingSettings, summarize_time
from memlab.device.gpu.worker import Worker
from memlab.device.inputs import count_unwritten, element_type, make_inputs, pack_arguments
from memlab.device.measurement import (
    DeviceKind,
    Measurement,
    Progress,
    Time,
    Verification,
    ignore_progress,
)
from memlab.device.properties import DeviceProperties, device_summary
from memlab.device.verification import ActualOutput, checked_positions, verify
from memlab.kernels.launch import Buffer, Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from memlab.device.gpu.worker import WorkerLink

Result = TypeVar("Result")

EVENT_PAIR_SETTINGS = TimingSettings(samples=100, settle_s=0.0)
"""For two events without a launch; the clock has settled under the launch's own load."""

STDOUT_DESCRIPTOR = 1  # the descriptor, which the driver writes to past Python

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
)
"""What one multiprocessor is like, the same on every chip of a compute capability."""


MACHINE_FIGURES = (
    "kernel_exec_timeout",
    "can_map_host_memory",
    "ecc_enabled",
    "unified_addressing",
    "managed_memory",
    "cooperative_multi_device_launch",
    "pci_domain_id",
    "pci_bus_id",
    "pci_device_id",
    "compute_mode",
    "driver_version",
    "runtime_version",
    "peer_access",
)
"""What depends on where a GPU stands, its system and its settings: a datasheet's is another's."""


class CudaDevice:
    """A GPU in this machine.

    Attributes:
        key: `cuda:0` or another index.
        properties: What the driver knows of it, and what a datasheet adds.
    """

    kind: DeviceKind = "cuda"

    def __init__(
        self, index: int, settings: TimingSettings | None = None, budget: Budget | None = None
    ) -> None:
        """Query a GPU.

        Args:
            index: Its number, from 0, as CUDA counts.
            settings: When to stop timing a launch, and when to give one up.
            budget: The time and memory that emulating it, for its counters, may take.

        Raises:
            DeviceError: There is no such GPU, or no way to use one.
        """
        self.index, self.key = index, f"cuda:{index}"
        self.properties = with_datasheet(gpu_query.query_properties(index))
        self._settings, self._budget = settings or TimingSettings(), budget

    def run(self, launch: Launch, seed: int, progress: Progress | None = None) -> Measurement:
        """Compile a launch, run it on the GPU, verify it, time it, and count it by emulation.

        Args:
            launch: What to run.
            seed: Of the random inputs and of the samples of blocks and rows.
            progress: Told what is being done, and which fraction of it is over.

        Raises:
            UsageError: It does not compile, or the arrays do not fit.
            DeviceError: The GPU cannot be used.
            MemlabError: The kernel faulted or did not end.
        """
        properties = self.properties
        (progress or ignore_progress)("compiling", None)
        compiled = compile_launch(launch, properties.compute_capability)
        resident = resident_blocks(launch, compiled, properties)
        time, verification, emulation = measure_launch(
            self.index,
            launch,
            compiled.cubin,
            seed,
            self._settings,
            progress,
            meanwhile=lambda: emulate_if_supported(
                launch, compiled, properties, seed, progress, self._budget
            ),
        )
        device = device_summary(properties, self.kind, self.key)
        return emulation.measurement(launch, compiled, device, resident, time, verification)


def with_datasheet(queried: DeviceProperties) -> DeviceProperties:
    """Add to what the driver gives what only a datasheet knows, such as lanes and latencies.

    Of the datasheet with the GPU's very name every figure counts that is not the machine's; where
    there is none, of one of the same compute capability what all its multiprocessors have in
    common.

    Args:
        queried: What the driver gives; it stays as it is.
    """
    sheets = [loader.load_datasheet(name) for name in loader.datasheet_names()]
    same = [sheet for sheet in sheets if sheet.name == queried.name]
    alike = [sheet for sheet in sheets if sheet.compute_capability == queried.compute_capability]
    if same:
        chips = {each.name for each in fields(DeviceProperties)} - set(MACHINE_FIGURES)
        return _filled_from_datasheet(queried, same[0], chips)
    return _filled_from_datasheet(queried, alike[0], ARCHITECTURE_FIGURES) if alike else queried


def _filled_from_datasheet(
    queried: DeviceProperties, sheet: DeviceProperties, names: Any
) -> DeviceProperties:
    added = {
        name: getattr(sheet, name)
        for name in names
        if name in sheet.sources and name not in queried.sources
    }
    sources = {name: sheet.sources[name] for name in added}
    return replace(queried, sources={**queried.sources, **sources}, **added)


def measure_launch(
    index: int,
    launch: Launch,
    cubin: bytes,
    seed: int,
    settings: TimingSettings,
    progress: Progress | None,
    meanwhile: Callable[[], Result],
) -> tuple[Time, Verification, Result]:
    """Run a launch on a GPU, in a worker; verify it, then time it.

    Args:
        index: The GPU's number.
        launch: What to run.
        cubin: Its machine code.
        seed: Of the inputs and of the rows that are verified.
        settings: When to stop timing, and when to give a launch up.
        progress: Told what is being done.
        meanwhile: Called while the launch is timed. A kernel that faults or never ends on the
            GPU does so in an emulator too: here it has ended once.

    Returns:
        The time, the verification, and what `meanwhile` returned.

    Raises:
        UsageError: The arrays do not fit.
        DeviceError: The GPU cannot be used.
        MemlabError: The kernel faulted or did not end.
    """
    positions = {
        each.name: checked_positions(launch, each.shape, seed)
        for each in launch.outputs
        if each.name in launch.references
    }
    # A reference may be any function, also one that no other process can import.
    sent = replace(launch, references={})
    with Worker(run_and_time, index, sent, cubin, seed, positions, settings) as worker:
        inputs = make_inputs(launch, seed)
        found = worker.take(progress)
        verification = verify(launch, inputs, found)
        worker.resume()
        other = meanwhile()
        cold, warm, event_pair = worker.result(progress)
    return summarize_time(cold, warm, event_pair), verification, other


def run_and_time(
    link: WorkerLink,
    index: int,
    launch: Launch,
    cubin: bytes,
    seed: int,
    positions: Mapping[str, NDArray[np.int64]],
    settings: TimingSettings,
) -> tuple[Samples, Samples, Samples]:
    """What the worker does: run a launch once and hand over its outputs, then time it.

    Handed over are the outputs' elements at `positions` and how many were never written.

    Returns:
        Samples with cold and with warm caches, and of two events with nothing between them.
    """
    link.report("preparing inputs")
    with GpuSession(index, link, settings.timeout_s) as session:
        ready = prepare_on_gpu(session, launch, cubin, seed)
        link.report(f"running {launch.kernel}")
        with translated_errors(launch.kernel):
            ready.run_once()
        session.synchronize(launch.kernel)
        link.hand_over(
            {each.name: _read_output(ready, session, each, positions) for each in launch.outputs}
        )
        link.wait()
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


def _discard_stdout() -> None:
    """Drop what the process prints from now on: a kernel that prints does at every launch."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), STDOUT_DESCRIPTOR)


def _read_output(
    ready: PreparedLaunch,
    session: GpuSession,
    output: Buffer,
    positions: Mapping[str, NDArray[np.int64]],
) -> ActualOutput:
    if output.name not in positions:  # it has no reference
        return ActualOutput(np.zeros(0, np.int64), np.zeros(0))
    values, index = ready.read(session, output), positions[output.name]
    # What the kernel also reads is not poisoned: there one cannot know.
    missing = count_unwritten(values) if output.role == "out" else 0
    return ActualOutput(index, values.reshape(-1)[index], missing)


@dataclass(frozen=True)
class PreparedLaunch:
    """A launch whose code and arrays are on the GPU.

    Attributes:
        inputs: Its input arrays by name, as on the host.
        memory: Its arrays on the GPU by name; they are freed with this record, and `once` knows
            their addresses alone.
        once: Queues it once.
        restore: Queues copies that put back what it reads and overwrites; None where nothing is.
    """

    inputs: Mapping[str, NDArray[Any]]
    memory: Mapping[str, Any]
    run_once: Callable[[], None]
    restore: Callable[[], None] | None = None

    def read(self, session: GpuSession, output: Buffer) -> NDArray[Any]:
        """Wait for what was launched and copy an output to the host."""
        into = np.empty(output.shape, element_type(output.dtype))
        return session.read(self.memory[output.name], into)


def prepare_on_gpu(
    session: GpuSession, launch: Launch, cubin: bytes, seed: int, poison: bool = True
) -> PreparedLaunch:
    """Load a launch's code, draw its inputs, copy them to the GPU, and poison its outputs.

    Args:
        session: The GPU.
        launch: What will run.
        cubin: Its machine code.
        seed: Of the inputs.
        poison: Whether to poison the outputs at all; a sanitizer takes that for writing them.

    Raises:
        UsageError: The arrays do not fit.
        DeviceError: The driver cannot load the code.
    """
    inputs = make_inputs(launch, seed)
    constants = {each.name: inputs[each.name] for each in launch.constants}
    function = session.load(cubin, launch.entry, constants)
    memory = {
        each.name: session.array(each.nbytes if each.role == "out" else inputs[each.name], poison)
        for each in launch.buffers
    }
    addresses = {name: int(allocation) for name, allocation in memory.items()}
    arguments = _argument_words(pack_arguments(launch.arguments, addresses))
    overwritten = [each for each in launch.buffers if each.role == "inout"]
    kept = {each.name: session.array(inputs[each.name]) for each in overwritten}

    def once() -> None:
        session.launch(function, launch.grid, launch.block, arguments, launch.dynamic_shared_bytes)

    def restore() -> None:
        for each in overwritten:
            session.copy(kept[each.name], memory[each.name], each.nbytes)

    return PreparedLaunch(inputs, memory, once, restore if overwritten else None)


def _argument_words(arguments: bytes) -> list[Any]:
    """Arguments as numbers that PyCUDA puts together to the same bytes again.

    It passes numbers alone, and knows no alignment of structures: words lie where they must.
    """
    whole = len(arguments) // 8 * 8
    words = np.frombuffer(arguments[:whole], np.uint64)
    return [*words, *np.frombuffer(arguments[whole:], np.uint8)]
