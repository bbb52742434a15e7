"""The common part of the measurements: a session, the compiled kernels and timing settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.gpu.driver import REPORT_STEP
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import Samples, TimingSettings
from memlab.device.properties import DeviceProperties
from memlab.errors import MemlabError
from memlab.kernels.launch import NO_CLUSTER
from memlab.kernels.peaks import memory_loops as kernels

if TYPE_CHECKING:
    from memlab.device.gpu.worker import WorkerLink
    from memlab.kernels.launch import Dim3

MEASUREMENT_SETTINGS = TimingSettings(
    minimum_samples=15, minimum_s=0.2, cap_s=1.5, settle_s=0.2, settle_cap_s=1.0
)
SETTLED_SETTINGS = TimingSettings(samples=1, settle_s=0.1, settle_cap_s=0.5)
QUICK_SETTINGS = TimingSettings(samples=5, settle_s=0.0, settle_cap_s=0.0)
SINGLE_SAMPLE_SETTINGS = TimingSettings(samples=1, settle_s=0.0, settle_cap_s=0.0)

SINK_DTYPE = np.dtype(np.uint32)
CLOCK_RESULT_BYTES, CHASE_RESULT_BYTES = 16, 24
"""Sizes of the results in `common.cuh`, bytes: cycles and nanoseconds, and for a chase of pointers
also its end."""


@dataclass
class BenchmarkSession:
    """A GPU session with the common state of the measurements.

    Attributes:
        session: The GPU.
        link: The connection to the caller.
        properties: The GPU's properties.
        steps: The number of measurements.
        done: The number of measurements that have been started.
        generator: Draws the random inputs.
        cubins: Machine code by file and whether it is for one compute capability only.
    """

    session: GpuSession
    link: WorkerLink
    properties: DeviceProperties
    steps: int = 1
    done: int = 0
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    cubins: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    def step(self, what: str) -> None:
        """Report the next measurement."""
        self.link.report(f"measuring {what}", self.done / self.steps)
        self.done += 1

    def load(
        self, file: str, entry: str, specific: bool = False, cluster: Dim3 = NO_CLUSTER
    ) -> Any:
        """Compile a file, once, and return one of its kernels, for launches in clusters or not."""
        if (file, specific) not in self.cubins:
            major, minor = self.properties.compute_capability
            options = (f"-arch=sm_{major}{minor}a",) if specific else ()
            unit = TranslationUnit(
                kernels.benchmark_source(file), file, (major, minor), options=options
            )
            self.cubins[file, specific] = compile_unit(unit).cubin
        cubin = self.cubins[file, specific]
        if cluster == NO_CLUSTER:
            return self.session.load(cubin, entry)
        return self.session.load(cubin, entry, cluster=cluster)

    def time(
        self, launch: Callable[[], None], what: str, settings: TimingSettings = MEASUREMENT_SETTINGS
    ) -> Samples:
        """Time the launches that `launch` queues, with caches as they are."""
        return self.session.time(launch, settings, flush=False, what=what)


def require_correct(correct: bool, label: str) -> None:
    """Refuse a micro-benchmark whose output is wrong.

    Raises:
        MemlabError: The output is wrong.
    """
    if not correct:
        raise MemlabError(
            f"the micro-benchmark '{label}' gave a wrong result, so its time means nothing: "
            + REPORT_STEP
        )
