"""What `memlab peaks` finds out about a GPU: rates, latencies, and both by footprint.

All of it is measured; what it is compared with is computed from the device's properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import DeviceSummary
from memlab.device.properties import (
    CUDA_CORE_KINDS,
    FLOP_PER_FMA,
    clock_hz,
    peak_bandwidth_bytes_per_s,
    peak_flop_per_s,
)
from memlab.kernels.peaks.records import RateUnit
from memlab.presentation import Presentable

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties

HALF_RESULTS_PER_CLOCK_PER_SM = {
    (7, 0): 128,
    (7, 2): 128,
    (7, 5): 128,
    (8, 0): 256,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 256,
}
"""16-bit floating-point multiply-adds in pairs, by compute capability (CUDA C++ Programming
Guide, "Throughput of Native Arithmetic Instructions")."""


TCGEN05_MAJORS = (10, 11)
"""Compute capabilities, by major, whose tensor cores reach their peak with `tcgen05.mma` alone,
which nothing here measures (PTX ISA, "TensorCore 5th Generation Family Instructions")."""

RATE_UNCERTAINTY = 0.005
"""Share by which a rate may seem to lie above its limit. Events resolve 0.5 µs and the GPU's timer
1 µs of launches of milliseconds, which is below 0.1%; but the SM clock moves in steps of 15 MHz
while they run, and of a step that lies between the median time and the median clock half is 0.4%
at 1.8 GHz."""


@dataclass(frozen=True)
class Rate:
    """How fast something is done.

    Attributes:
        key: The micro-benchmark, e.g. `dram_read`.
        label: As a person reads it.
        limit: What it shows the limit of: `dram`, `l2`, `l1`, `shared`, `constant`, `fp32` …;
            `l2_shared` is no limit of its own: there one read of the L2 serves several.
        unit: `B/s` or `FLOP/s`.
        value: Work of a launch over its median time, in that unit.
        lower_quartile: The same of the third quartile of the times: a quarter is slower.
        upper_quartile: Of the first: a quarter is faster.
        samples: Launches timed.
        clock_hz: The SM clock meanwhile: the multiprocessor's cycles over the GPU's timer where
            the kernel reads both, else NVML's word; None where neither is known.
        bytes_per_clock_per_sm: For what every multiprocessor has of its own, at that clock.
        theoretical: What the device's datasheet allows at the clock it assumes; None if unknown.
        theoretical_at_clock: The same at the clock observed.
    """

    key: str
    label: str
    limit: str
    unit: RateUnit
    value: float
    lower_quartile: float
    upper_quartile: float
    samples: int
    clock_hz: float | None = None
    bytes_per_clock_per_sm: float | None = None
    theoretical: float | None = None
    theoretical_at_clock: float | None = None

    @property
    def fraction(self) -> float | None:
        """Of the datasheet's limit; a clock above the one it assumes may reach more than 1."""
        return self.value / self.theoretical if self.theoretical else None

    @property
    def fraction_at_clock(self) -> float | None:
        """Of what the clock that ran allows."""
        return self.value / self.theoretical_at_clock if self.theoretical_at_clock else None

    @property
    def invalid(self) -> bool:
        """Whether it is more than the clock that ran allows, and DRAM's pins: then it is wrong."""
        share = self.fraction_at_clock
        return share is not None and share > 1 + RATE_UNCERTAINTY


@dataclass(frozen=True)
class Latency:
    """From an instruction to one that needs its result.

    Attributes:
        key: `register`, `shared`, `constant`, `l1`, `l2`, `l2_near`, `l2_far`, `dram`.
        label: As a person reads it.
        cycles: Clocks of the multiprocessor.
        clock_hz: Its clock meanwhile.
    """

    key: str
    label: str
    cycles: float
    clock_hz: float

    @property
    def seconds(self) -> float:
        """The same as time."""
        return self.cycles / self.clock_hz


@dataclass(frozen=True)
class Footprint:
    """What memory of one size gives.

    Attributes:
        footprint_bytes: How much is read again and again.
        latency_cycles: Of a load that waits for the one before, by one thread.
        bandwidth_bytes_per_s: Of all multiprocessors, each reading the whole footprint; None
            where it is too small to keep them busy.
    """

    footprint_bytes: int
    latency_cycles: float
    bandwidth_bytes_per_s: float | None


@dataclass(frozen=True, repr=False)
class Peaks(Presentable):
    """All that was measured of one GPU.

    Attributes:
        device: Which.
        driver_version: The CUDA version of its driver.
        memory_clock_hz: As the driver gives it.
        rates: From memory to arithmetic.
        latencies: From the multiprocessor outwards.
        footprints: In rising order.
        created_at: ISO 8601 in UTC, to the second.
        memlab_version: The version that measured.
        duration_s: How long it took.
    """

    device: DeviceSummary
    driver_version: str | None
    memory_clock_hz: float | None
    rates: tuple[Rate, ...]
    latencies: tuple[Latency, ...]
    footprints: tuple[Footprint, ...]
    created_at: str = ""
    memlab_version: str = ""
    duration_s: float | None = None


def theoretical_rate(
    limit: str, properties: DeviceProperties, clock: float | None = None
) -> float | None:
    """Compute what a device could do at most.

    Args:
        limit: As in `Rate`.
        properties: The device.
        clock: The SM clock, Hz; None for the one that its datasheet assumes. DRAM has its own.

    Returns:
        B/s or FLOP/s; None where a figure is unknown or nobody states one, as for the L2 and
        for constant memory.
    """
    if limit == "dram":
        return peak_bandwidth_bytes_per_s(properties)
    assumed = clock_hz(properties)
    if limit in properties.tensor_flop_per_s:
        peak, assumed = peak_flop_per_s(properties, limit), properties.tensor_clock_hz
    elif limit in CUDA_CORE_KINDS:
        peak = peak_flop_per_s(properties, limit)
    else:
        per_clock = _per_clock_per_sm(limit, properties)
        count = properties.multiprocessor_count
        if per_clock is None or count is None or assumed is None:
            return None
        peak = per_clock * count * assumed
    if clock is None or peak is None:
        return peak
    return peak * clock / assumed if assumed else None


def _per_clock_per_sm(limit: str, properties: DeviceProperties) -> float | None:
    if limit == "l1":
        return properties.l1_bytes_per_clock_per_sm
    if limit == "shared":
        return properties.shared_bytes_per_clock_per_sm
    if limit == "fp16_fma":
        results = HALF_RESULTS_PER_CLOCK_PER_SM.get(properties.compute_capability)
        return None if results is None else float(FLOP_PER_FMA * results)
    return None
