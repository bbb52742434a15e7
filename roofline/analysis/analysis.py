"""What the counts of a launch say before any time is known.

The compute-to-global-memory-access ratio is the lessons': FLOPs over the bytes that threads ask
of global memory, in the loops, where the work is (Kirk and Hwu, "Programming Massively Parallel
Processors", section "Importance of Memory Access Efficiency"). No cache is in it, so the bound that
it sets holds for a GPU without caches, and says how far a program depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memlab.device.measurement import flop_by_pipe
from memlab.device.properties import peak_bandwidth_bytes_per_s, peak_flop_per_s
from memlab.presentation import Presentable
from memlab.roofline.analysis.listing import listing
from memlab.roofline.placement import bytes_moved, intensities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.measurement import (
        AccessCounters,
        Counters,
        Coverage,
        DeviceSummary,
        LineCounters,
        Region,
        Resources,
        Verification,
    )
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.launch import Dim3, Launch
    from memlab.roofline.analysis.boundary import BoundaryCost
    from memlab.roofline.analysis.listing import ListedLine

VALUE_BYTES = {"fp64": 8, "fp16": 2, "bf16": 2}
"""Bytes of the values that a pipe computes with; 4 for the others."""


@dataclass(frozen=True)
class AccessRatio:
    """The compute-to-global-memory-access ratio and the bound that it sets on a device.

    Attributes:
        loops: Whether it is taken over the loops alone.
        flop_per_byte: FLOPs over the bytes that threads ask of global memory.
        value_bytes: Bytes of one value, which lessons call an access.
        pipe: What computes: `fp32`, `fp64`, `tf32` …
        bandwidth_bytes_per_s: Peak of the device's memory; None where unknown.
        peak_flop_per_s: Peak of the pipe; None where unknown.
    """

    loops: bool
    flop_per_byte: float
    value_bytes: int
    pipe: str
    bandwidth_bytes_per_s: float | None
    peak_flop_per_s: float | None

    @property
    def flop_per_access(self) -> float:
        """FLOPs for each value that is asked of global memory."""
        return self.flop_per_byte * self.value_bytes

    @property
    def bound_flop_per_s(self) -> float | None:
        """The most that the ratio allows without caches: peak, or bandwidth times ratio."""
        if self.bandwidth_bytes_per_s is None:
            return None
        bound = self.flop_per_byte * self.bandwidth_bytes_per_s
        return bound if self.peak_flop_per_s is None else min(bound, self.peak_flop_per_s)

    @property
    def fraction_of_peak(self) -> float | None:
        """That bound over the peak."""
        bound, peak = self.bound_flop_per_s, self.peak_flop_per_s
        return None if bound is None or not peak else bound / peak

    @property
    def needed_flop_per_access(self) -> float | None:
        """FLOPs an access that the device needs to reach its peak without caches."""
        if not self.bandwidth_bytes_per_s or self.peak_flop_per_s is None:
            return None
        return self.peak_flop_per_s * self.value_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, repr=False)
class Analysis(Presentable):
    """One launch, counted and not timed.

    Attributes:
        kernel: Its name in the catalog.
        parameters: What was chosen, with defaults filled in.
        source: The CUDA C++ text.
        source_name: Its file name.
        device: For which device it was compiled and its caches modelled.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        resources: What the compiled kernel needs.
        flop: FLOPs of the algorithm.
        compulsory_bytes: Each input read once and each output written once.
        coverage: How much of the grid was executed.
        counters: Whole-grid totals.
        lines: The same by source line.
        ratio: The compute-to-global-memory-access ratio; None without global accesses.
        boundary: What blocks that reach over the edge cost; None where none does.
        verification: The output of the blocks that ran, against the reference.
        knows_sizes: Whether memlab knows which parameters are sizes, so that a missing `boundary`
            says something: of the catalog's kernels alone.
        accesses: The counters by source line and access to memory.
    """

    kernel: str
    parameters: Mapping[str, int | str]
    source: str
    source_name: str
    device: DeviceSummary
    grid: Dim3
    block: Dim3
    resources: Resources
    flop: int
    compulsory_bytes: int
    coverage: Coverage
    counters: Counters
    lines: tuple[LineCounters, ...]
    ratio: AccessRatio | None
    boundary: BoundaryCost | None
    verification: Verification
    has_known_sizes: bool = True
    accesses: tuple[AccessCounters, ...] = ()

    @property
    def bytes_moved(self) -> dict[str, int]:
        """Bytes at each level, as `placement.bytes_moved` defines them."""
        return bytes_moved(self)

    @property
    def intensity_flop_per_byte(self) -> dict[str, float | None]:
        """FLOP/B at each level."""
        return intensities(self)

    @property
    def listing(self) -> tuple[ListedLine, ...]:
        """The source with what each line did."""
        return listing(self.source, self.lines, self.accesses)


def access_ratio(
    flop: int, region: Region, counters: Counters, properties: DeviceProperties
) -> AccessRatio | None:
    """Compute the ratio and what it means on a device.

    The FLOPs are those that the region executed, and no more than the algorithm has: work on
    padding at the edge of a matrix is no merit.

    Args:
        flop: FLOPs of the algorithm.
        region: What was executed where the ratio is taken.
        counters: Whole-grid totals.
        properties: The device.

    Returns:
        The ratio; None where nothing is asked of global memory.
    """
    if not region.requested_bytes:
        return None
    executed = flop_by_pipe(counters)
    pipe = max(executed, key=lambda key: executed[key])
    return AccessRatio(
        loops=region.loops,
        flop_per_byte=min(flop, region.flop) / region.requested_bytes,
        value_bytes=VALUE_BYTES.get(pipe, 4),
        pipe=pipe,
        bandwidth_bytes_per_s=peak_bandwidth_bytes_per_s(properties),
        peak_flop_per_s=peak_flop_per_s(properties, pipe),
    )


class CountedLaunch(Protocol):
    """The results of counting a launch, such as the emulator gives them."""

    @property
    def coverage(self) -> Coverage:
        """How much of the grid was executed."""
        ...

    @property
    def counters(self) -> Counters:
        """Whole-grid totals."""
        ...

    @property
    def lines(self) -> tuple[LineCounters, ...]:
        """The same by source line."""
        ...

    @property
    def accesses(self) -> tuple[AccessCounters, ...]:
        """The same by source line and access to memory."""
        ...

    @property
    def region(self) -> Region:
        """The work of the loops."""
        ...

    @property
    def verification(self) -> Verification:
        """The output of the blocks that ran, against the reference."""
        ...

    def flop(self, launch: Launch) -> int:
        """FLOPs of the algorithm, or those executed where it does not declare them."""
        ...


def analysis_of(
    launch: Launch,
    counted: CountedLaunch,
    resources: Resources,
    device: DeviceSummary,
    properties: DeviceProperties,
    *,
    boundary: BoundaryCost | None = None,
    has_known_sizes: bool = True,
) -> Analysis:
    """Derive the analysis of a launch from its counters.

    Args:
        launch: The launch.
        counted: Its counters, from the emulator.
        resources: The registers and the memory that the compiler gave it.
        device: The device that it was compiled for, as results name it.
        properties: That device's figures.
        boundary: The cost of blocks that reach over the edge; None where none does.
        has_known_sizes: Whether it is a catalog kernel, whose sizes memlab knows.
    """
    flop = counted.flop(launch)
    return Analysis(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        source=launch.source,
        source_name=launch.source_name,
        device=device,
        grid=launch.grid,
        block=launch.block,
        resources=resources,
        flop=flop,
        compulsory_bytes=launch.compulsory_bytes,
        coverage=counted.coverage,
        counters=counted.counters,
        lines=counted.lines,
        accesses=counted.accesses,
        ratio=access_ratio(flop, counted.region, counted.counters, properties),
        boundary=boundary,
        verification=counted.verification,
        has_known_sizes=has_known_sizes,
    )
