"""Records of a GPU's measured peaks: rates, latencies, and both by footprint.

Theoretical rates for comparison are computed from the device's properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import DeviceSummary
from memlab.device.properties import (
    CUDA_CORE_KINDS,
    clock_hz,
    peak_bandwidth_bytes_per_s,
    peak_flop_per_s,
)
from memlab.kernels.peaks.records import RateUnit
from memlab.presentation import Presentable

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties

TCGEN05_MAJORS = (10, 11)
"""Major compute capabilities whose tensor cores reach their peak only with `tcgen05.mma`, which no
micro-benchmark uses (PTX ISA, "TensorCore 5th Generation Family Instructions")."""

RATE_UNCERTAINTY = 0.005
"""The fraction by which a valid rate may exceed its limit. Events resolve 0.5 µs and the GPU's
timer 1 µs of launches of milliseconds, which is below 0.1%; but the SM clock changes in steps of 15
MHz during the launches, and half a step between the median time and the median clock is 0.4% at
1.8 GHz."""


@dataclass(frozen=True)
class Rate:
    """The rate of a micro-benchmark.

    Attributes:
        key: The micro-benchmark, for example `dram_read`.
        label: Its name in tables and pictures.
        limit: The measured ceiling: `dram`, `l2`, `l1`, `shared`, `constant`, `fp32` …;
            `l2_shared` is not a separate ceiling: there one read of the L2 serves several.
        unit: `B/s` or `FLOP/s`.
        value: Work of a launch divided by its median time, in that unit.
        lower_quartile: Work divided by the third quartile of the times: a quarter is slower.
        upper_quartile: Work divided by the first quartile of the times: a quarter is faster.
        samples: The number of timed launches.
        clock_hz: The SM clock during the launches, Hz: the multiprocessor's cycles divided by the
            GPU's timer if the kernel reads both, or else the clock from NVML; None if unknown.
        bytes_per_clock_per_sm: The rate per multiprocessor at that clock, B/clock, of units that
            every multiprocessor has; None for others.
        theoretical: The limit from the device's datasheet at the clock it assumes, in `unit`; None
            if unknown.
        theoretical_at_clock: The same limit at `clock_hz`.
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
        """The fraction of the datasheet's limit; above 1 if the clock exceeds the assumed one."""
        return self.value / self.theoretical if self.theoretical else None

    @property
    def fraction_at_clock(self) -> float | None:
        """The fraction of the limit at the clock of the launches."""
        return self.value / self.theoretical_at_clock if self.theoretical_at_clock else None

    @property
    def invalid(self) -> bool:
        """Whether the rate exceeds the limit at its clock, so that it must be wrong."""
        share = self.fraction_at_clock
        return share is not None and share > 1 + RATE_UNCERTAINTY


@dataclass(frozen=True)
class Latency:
    """The latency from an instruction to one that depends on its result.

    Attributes:
        key: `register`, `shared`, `constant`, `l1`, `l2`, `l2_near`, `l2_far` or `dram`.
        label: Its name in tables and pictures.
        cycles: Clocks of the multiprocessor.
        clock_hz: The clock during the measurement, Hz.
    """

    key: str
    label: str
    cycles: float
    clock_hz: float

    @property
    def seconds(self) -> float:
        """The latency, seconds."""
        return self.cycles / self.clock_hz


@dataclass(frozen=True)
class Footprint:
    """Latency and bandwidth of a footprint.

    Attributes:
        footprint_bytes: The amount of memory that is read repeatedly.
        latency_cycles: Latency of dependent loads of one thread, clocks.
        bandwidth_bytes_per_s: Bandwidth of all multiprocessors, each reading the whole footprint;
            None if it is too small to keep them busy.
    """

    footprint_bytes: int
    latency_cycles: float
    bandwidth_bytes_per_s: float | None


@dataclass(frozen=True, repr=False)
class Peaks(Presentable):
    """All measurements of one GPU.

    Attributes:
        device: The GPU.
        driver_version: The CUDA version of its driver.
        memory_clock_hz: The memory clock from the driver, Hz.
        rates: Rates, from memory to arithmetic.
        latencies: Latencies, from the multiprocessor outwards.
        footprints: Latency and bandwidth by footprint, in ascending order.
        created_at: Time of the measurement, ISO 8601 in UTC, to the second.
        memlab_version: The version of memlab that measured.
        duration_s: The duration of the measurement, seconds.
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
    """Compute the theoretical limit of a rate.

    Args:
        limit: As in `Rate`.
        properties: The device's properties.
        clock: The SM clock, Hz; None for the clock that the datasheet assumes. DRAM has a separate
            clock.

    Returns:
        B/s or FLOP/s; None if a property is unknown or not published, as for the L2 and for
        constant memory.
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
    return None
