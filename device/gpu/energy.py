"""The energy of a launch: a GPU's counter before and after many launches in a row."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.gpu.driver import pycuda_device, translated_errors
from memlab.device.gpu.nvml import energy_reader
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.worker import call_in_worker
from memlab.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab.device.compiler.compile import CompiledKernel
    from memlab.device.gpu.worker import WorkerLink
    from memlab.device.measurement import Progress
    from memlab.kernels.launch import Launch

MEASURED_S = 2.0
"""How long launches are repeated, seconds: the counter of a GPU moves every 20 to 100 ms."""
BATCH_S = 0.1
"""How long launches are queued before they are waited for, seconds."""


def measure_energy(
    index: int,
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    timeout_s: float,
    progress: Progress | None,
) -> float:
    """Measure the energy that one launch takes, with warm caches, the idle power included.

    Args:
        index: The GPU's number.
        launch: The launch; it is known to end.
        compiled: Its code.
        seed: Seed of the inputs.
        timeout_s: The limit of one launch, seconds.
        progress: Called with the current step.

    Returns:
        Joules per launch.

    Raises:
        DeviceError: NVML is not there, or this GPU does not tell its energy.
        MemlabError: The kernel faulted.
    """
    sent = replace(launch, references={})
    joules: float = call_in_worker(
        repeat_launch, index, sent, compiled, seed, timeout_s, progress=progress
    )
    return joules


def repeat_launch(
    link: WorkerLink,
    index: int,
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    timeout_s: float,
) -> float:
    """The worker's task: repeat a launch for `MEASURED_S`; return joules per launch."""
    from memlab.device.gpu.device import prepare_on_gpu

    with GpuSession(index, link, timeout_s) as session, ExitStack() as stack:
        ready = prepare_on_gpu(session, launch, compiled, seed)
        read_joules = energy_reader(pycuda_device(index).pci_bus_id(), stack)
        with translated_errors(launch.kernel):
            ready.run_once()
            session.synchronize(launch.kernel)

            def measure(what: Callable[[], None]) -> float:
                link.report("measuring energy")
                return energy_per_launch(
                    what, lambda: session.synchronize(launch.kernel), read_joules, time.monotonic
                )

            restore = ready.restore
            if restore is None:
                return measure(ready.run_once)

            def restore_and_launch() -> None:
                restore()
                ready.run_once()

            # Data that a launch overwrites may decide what the next one does.
            return max(0.0, measure(restore_and_launch) - measure(restore))


def energy_per_launch(
    launch: Callable[[], None],
    wait: Callable[[], None],
    read_joules: Callable[[], float | None],
    clock: Callable[[], float],
) -> float:
    """Repeat a launch and share the energy among its repetitions.

    Args:
        launch: Queues the launch once.
        wait: Waits for all launches.
        read_joules: Reads the energy that the GPU has taken, joules.
        clock: Reads a time, seconds.

    Raises:
        DeviceError: The GPU does not tell its energy.
    """
    began = clock()
    launch()
    wait()
    batch = max(1, int(BATCH_S / max(clock() - began, 1e-6)))
    first, began, count = read_joules(), clock(), 0
    while clock() - began < MEASURED_S:
        for _ in range(batch):
            launch()
        wait()
        count += batch
    last = read_joules()
    if first is None or last is None:
        raise DeviceError(
            "this GPU does not tell its energy (NVML has it from Volta on): use --objective time"
        )
    return (last - first) / count
