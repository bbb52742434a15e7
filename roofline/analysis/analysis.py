"""The analysis of a launch from its counts alone, without a time.

The compute-to-global-memory-access ratio is the textbook's: FLOPs over the bytes that threads ask
for in global memory, taken in the loops, where the work is (Kirk and Hwu, "Programming Massively
Parallel Processors", section "Importance of Memory Access Efficiency"). It ignores caches, so its
bound is that of a GPU without caches, and shows how much a program depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from memlab.device.measurement import flop_by_pipe, integer_op_by_pipe
from memlab.device.properties import (
    peak_bandwidth_bytes_per_s,
    peak_flop_per_s,
    peak_integer_op_per_s,
)
from memlab.presentation import Presentable
from memlab.roofline.analysis.listing import listing
from memlab.roofline.placement import bytes_moved, intensities, requested_bytes

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
    from memlab.device.warp_stalls import LineStalls
    from memlab.kernels.launch import Dim3, Launch
    from memlab.roofline.analysis.boundary import BoundaryCost
    from memlab.roofline.analysis.listing import ListedLine

VALUE_BYTES = {"fp64": 8, "fp16_fma": 2, "bf16_fma": 2, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of a pipe's values, by the key of its peak; 4 for pipes that are missing."""


@dataclass(frozen=True)
class AccessRatio:
    """The compute-to-global-memory-access ratio and the bound that it sets on a device.

    Attributes:
        loops: Whether the ratio is taken over the loops alone.
        flop_per_byte: FLOPs over the bytes that threads ask for in global memory, FLOP/B.
        value_bytes: Bytes of one value; lessons call a value an access.
        pipe: The pipe that executes most FLOPs: `fp32`, `fp64`, `fp16_fma`, `tf32` …
        bandwidth_bytes_per_s: Peak bandwidth of the device's memory, B/s; None where unknown.
        peak_flop_per_s: Peak of the pipe, FLOP/s; None where unknown.
        integer_op_per_byte: Integer operations of threads over the bytes that threads ask for, of
            the whole program.
        integer_pipe: The pipe that needs longest for its integer operations, `int_alu`, `int_fma`
            or `int_xu`; empty where none has any, or no rate is known.
        peak_integer_op_per_s: The peak of that pipe, OP/s; None where unknown.
        integer_share: The time that the pipe needs over the time that the device's memory needs for
            the same bytes; None where unknown.
    """

    loops: bool
    flop_per_byte: float
    value_bytes: int
    pipe: str
    bandwidth_bytes_per_s: float | None
    peak_flop_per_s: float | None
    integer_op_per_byte: float = 0.0
    integer_pipe: str = ""
    peak_integer_op_per_s: float | None = None
    integer_share: float | None = None

    @property
    def flop_per_access(self) -> float:
        """FLOPs per value that threads ask for in global memory."""
        return self.flop_per_byte * self.value_bytes

    @property
    def bound_flop_per_s(self) -> float | None:
        """The FLOP/s that the ratio allows without caches: peak, or bandwidth times ratio."""
        if self.bandwidth_bytes_per_s is None:
            return None
        bound = self.flop_per_byte * self.bandwidth_bytes_per_s
        return bound if self.peak_flop_per_s is None else min(bound, self.peak_flop_per_s)

    @property
    def fraction_of_peak(self) -> float | None:
        """`bound_flop_per_s` over the peak, 0 to 1; None where unknown."""
        bound, peak = self.bound_flop_per_s, self.peak_flop_per_s
        return None if bound is None or not peak else bound / peak

    @property
    def needed_flop_per_access(self) -> float | None:
        """FLOPs per value that the device needs to reach its peak without caches."""
        if not self.bandwidth_bytes_per_s or self.peak_flop_per_s is None:
            return None
        return self.peak_flop_per_s * self.value_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, repr=False)
class Analysis(Presentable):
    """One launch, counted and not timed.

    Attributes:
        kernel: The kernel's name: `tiled`, or `saxpy.cu:saxpy` for a user kernel.
        parameters: The kernel's parameters by name, defaults filled in.
        source: The CUDA C++ text.
        source_name: The source's file name.
        device: The device that the kernel was compiled for and whose caches were modelled.
        grid: Blocks in x, y and z.
        block: Threads per block in x, y and z.
        resources: Registers and memory of the compiled kernel.
        flop: FLOPs of the algorithm; for a user kernel, the FLOPs executed.
        compulsory_bytes: Bytes of the inputs, each read once, and of the outputs, each written
            once.
        coverage: The part of the grid that was executed.
        counters: Whole-grid totals.
        lines: The counters of each source line that has instructions.
        ratio: The compute-to-global-memory-access ratio; None without global accesses.
        boundary: The cost of blocks that extend beyond the edge; None where no block does.
        verification: The comparison of the outputs of the executed blocks with the reference.
        has_known_sizes: Whether memlab knows which parameters are sizes. Only then, for kernels
            of the catalog, does a missing `boundary` mean that no block extends beyond the edge.
        accesses: The counters by source line and access to memory.
        stalls: As of `Measurement`: the clocks of a warp per instruction, by state; modelled.
        machine_lines: The machine code of each source line: its instructions by pipe, and why
            warps wait there. Empty without machine code.
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
    stalls: Mapping[str, float] = field(default_factory=dict)
    machine_lines: tuple[LineStalls, ...] = ()

    @property
    def bytes_moved(self) -> dict[str, int]:
        """Bytes moved at each level, as in `placement.bytes_moved`."""
        return bytes_moved(self)

    @property
    def intensity_flop_per_byte(self) -> dict[str, float | None]:
        """Arithmetic intensity at each level, FLOP/B."""
        return intensities(self)

    @property
    def listing(self) -> tuple[ListedLine, ...]:
        """The source lines with their counters."""
        return listing(self.source, self.lines, self.accesses, self.machine_lines)


def access_ratio(
    flop: int, region: Region, counters: Counters, properties: DeviceProperties
) -> AccessRatio | None:
    """Compute the ratio and its bound on a device.

    The FLOPs are those that the region executed, and at most those of the algorithm: work on
    padding at the edge of a matrix does not count.

    Args:
        flop: FLOPs of the algorithm.
        region: The region where the ratio is taken.
        counters: Whole-grid totals.
        properties: The device.

    Returns:
        The ratio; None where the region has no global accesses.
    """
    if not region.requested_bytes:
        return None
    executed = flop_by_pipe(counters)
    pipe = max(executed, key=lambda key: executed[key])
    integers, requested = integer_op_by_pipe(counters), requested_bytes(counters)
    peaks = {key: peak_integer_op_per_s(properties, key) for key in integers}
    seconds = {key: integers[key] / peak for key, peak in peaks.items() if peak}
    slowest = max(seconds, key=lambda key: seconds[key], default="")
    bandwidth = peak_bandwidth_bytes_per_s(properties)
    return AccessRatio(
        loops=region.loops,
        flop_per_byte=min(flop, region.flop) / region.requested_bytes,
        value_bytes=VALUE_BYTES.get(pipe, 4),
        pipe=pipe,
        bandwidth_bytes_per_s=bandwidth,
        peak_flop_per_s=peak_flop_per_s(properties, pipe),
        integer_op_per_byte=sum(integers.values()) / requested if requested else 0.0,
        integer_pipe=slowest,
        peak_integer_op_per_s=peaks.get(slowest),
        integer_share=seconds[slowest] * bandwidth / requested
        if slowest and bandwidth and requested
        else None,
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
    stalls: Mapping[str, float] | None = None,
    machine_lines: tuple[LineStalls, ...] = (),
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
        stalls: The clocks of a warp per instruction, by state.
        machine_lines: The machine code of each source line.
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
        stalls=stalls or {},
        machine_lines=machine_lines,
    )
