"""From raw samples to the figures of a datasheet: medians, quantiles, differences and fits."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.datasheets.plausibility import check_figure
from memlab.device.gpu.calibration.records import Failure
from memlab.device.properties import (
    WARP_SIZE,
    clock_hz,
    peak_bandwidth_bytes_per_s,
)
from memlab.errors import UsageError
from memlab.kernels.peaks.calibration import INSTRUCTION_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memlab.device.gpu.calibration.records import FigureValue, RawSample
    from memlab.device.properties import DeviceProperties

WORD_BYTES = 4
QUANTILES = {"p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
POWER_OF_TWO_TOLERANCE = 0.05
"""A port that is measured to move almost a power of two of bytes per clock moves that power: the
rest is the start and the end of the loop. So with the lanes of a pipe: loops of full pipes issue
three or four other instructions to each 256, and the time model executes such instructions too."""
COLD_CODE_BYTES = 2**15
"""The largest code whose first execution counts, that of usual kernels. Behind some 64 KiB, code
comes several times slower (an H200 executes 6.8 bytes a clock up to there, then 1.05)."""
TYPICAL_BLOCK_THREADS = 256
TYPICAL_BLOCK_WARPS = TYPICAL_BLOCK_THREADS // WARP_SIZE
SAME_RATE = 0.95
"""The share of the rate of single sectors from which on wider accesses count as equally many: on an
H200 two sectors reach 99.9 to 100% of it, four reach 83 to 87%."""
LEAST_BLOCKS = 16_384
"""Grids from this size on show the rate at which blocks start."""
LIGHT_LOAD, HEAVY_LOAD = 0.2, 0.7
"""Shares of DRAM's peak bandwidth: below the first, loads wait for no others; beyond the second,
the queues of the multiprocessors fill too."""
SIGNIFICANT_DIGITS = 5


class Samples:
    """Raw samples by series and key."""

    def __init__(self, samples: Iterable[RawSample]) -> None:
        self._by_key: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in samples:
            self._by_key[sample.series][sample.key].append(sample.value)

    def values(self, series: str, key: str = "") -> list[float]:
        """All values of a series and key, in the order of measurement."""
        return list(self._by_key[series][key])

    def medians(self, series: str) -> dict[str, float]:
        """The median of each key of a series."""
        return {key: statistics.median(taken) for key, taken in self._by_key[series].items()}

    def means(self, series: str) -> dict[str, float]:
        """The mean of each key of a series, without the slowest hundredth: interruptions."""
        return {key: _trimmed_mean(taken) for key, taken in self._by_key[series].items()}

    def median(self, series: str, key: str = "") -> float | None:
        """The median of one key of a series; None if it was not measured."""
        taken = self._by_key[series][key]
        return statistics.median(taken) if taken else None


Figures = dict[str, "FigureValue | None"]


def figures_from_samples(
    samples: Sequence[RawSample], properties: DeviceProperties
) -> tuple[dict[str, FigureValue], tuple[Failure, ...]]:
    """Compute the figures that the samples suffice for.

    Args:
        samples: The raw samples.
        properties: The device: its clocks, counts and bandwidth.

    Returns:
        Figures by the fields of `DeviceProperties`, and those that were measured but are not
        plausible.
    """
    taken = Samples(samples)
    clock = _median_clock(taken) or clock_hz(properties) or 1.0
    found: Figures = {}
    for part in (_pipes, _latencies, _bandwidths, _queues, _atomics, _launches, _groups, _code):
        found.update(part(taken, properties, clock))
    figures, failures = dict[str, "FigureValue"](), list[Failure]()
    for field, value in found.items():
        if value is None or value == {}:
            continue
        rounded = _rounded(value)
        try:
            check_figure(field, rounded, "the calibration")
        except UsageError as error:
            failures.append(Failure(field, str(error)))
        else:
            figures[field] = rounded
    return figures, tuple(failures)


def _pipes(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    lanes = taken.medians("pipe_lanes_per_clock")
    for pipe, series in (("lsu", "shared_lanes_per_clock"), ("ldg", "l1_lanes_per_clock")):
        loads = taken.median(series)
        if loads is not None:
            lanes[pipe] = loads
    lanes = {pipe: _near_power_of_two(rate) for pipe, rate in lanes.items()}
    issued = taken.median("issued_per_clock")
    barriers = _whole_clocks(taken.medians("barrier_clocks"))
    found: Figures = {
        "issue_slots_per_clock_per_sm": None if issued is None else _near_power_of_two(issued),
        "pipe_lanes_per_clock_per_sm": lanes,
        "pipe_latency_clocks": _whole_clocks(taken.medians("pipe_latency_clocks")),
        "mma_flop_per_clock_per_sm": taken.medians("mma_flop_per_clock"),
        "mma_latency_clocks": _whole_clocks(taken.medians("mma_latency_clocks")),
        "l1_lines_per_clock_per_sm": taken.median("l1_lines_per_clock"),
        "barrier_latency_by_warps_clocks": barriers,
        "barrier_latency_clocks": barriers.get(str(TYPICAL_BLOCK_WARPS)),
    }
    for kind, pipe in (("fp32", "fma"), ("fp64", "fp64")):
        name = f"{kind}_lanes_per_sm"
        if getattr(properties, name) is None and pipe in lanes:
            found[name] = _near_power_of_two_int(lanes[pipe])
    return found


def _latencies(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    chase = taken.medians("chase_clocks")
    found: Figures = {
        "register_latency_clocks": _whole_clocks(chase).get("register"),
        "shared_latency_clocks": chase.get("shared"),
        "constant_latency_clocks": chase.get("constant"),
        "l1_latency_clocks": chase.get("l1"),
        "l2_latency_clocks": chase.get("l2_near"),
        "l2_far_latency_clocks": chase.get("l2_far"),
        "dram_latency_clocks": chase.get("dram"),
    }
    reach = taken.medians("constant_reach_clocks")
    if reach and "constant" in chase:
        # The arithmetic of the address, which is the same for all footprints.
        extra = min(reach.values()) - chase["constant"]
        found["constant_latency_by_footprint_clocks"] = {
            footprint: clocks - extra for footprint, clocks in reach.items()
        }
    hits = taken.medians("l1_hit_clocks")  # means would include the misses that fill the L1
    l1 = chase.get("l1", properties.l1_latency_clocks)
    if not hits or l1 is None:
        return found
    reading = hits["1"] - l1  # what reading the clock takes around one load
    for series, field in (
        ("dram_miss_clocks", "dram_latency_by_sectors_clocks"),
        ("l2_hit_clocks", "l2_latency_by_sectors_clocks"),
    ):
        found[field] = {key: mean - reading for key, mean in taken.means(series).items()}
    hit = np.array(taken.values("l2_hit_clocks", "1")) - reading
    if hit.size and "l2_near" in chase:
        between = (chase["l2_near"] + chase.get("l2_far", math.inf)) / 2
        halves = (hit[hit < between], hit[hit >= between])
        squares = sum(float(np.sum((half - half.mean()) ** 2)) for half in halves if half.size)
        found["l2_latency_deviation_clocks"] = math.sqrt(squares / hit.size)
    single = np.array(taken.values("dram_miss_clocks", "1")) - reading
    if single.size:
        found["dram_latency_quantiles_clocks"] = {
            name: float(np.quantile(single, share)) for name, share in QUANTILES.items()
        }
        found["dram_latency_deviation_clocks"] = float(np.std(_without_slowest(single)))
    return found


def _bandwidths(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    rates, clocks = taken.medians("bandwidth_bytes_per_s"), taken.medians("clock_hz")
    peak, count = peak_bandwidth_bytes_per_s(properties), properties.multiprocessor_count or 1

    def per_clock(key: str) -> float | None:
        return rates[key] / clocks.get(key, clock) if key in rates else None

    def port(key: str) -> float | None:
        value = per_clock(key)
        return None if value is None else _near_power_of_two(value / count)

    def fraction(rate: float | None) -> float | None:
        return None if rate is None or peak is None else rate / peak

    l2 = taken.medians("l2_ports_read_bytes_per_s")
    writes = taken.medians("l2_ports_write_bytes_per_s")
    copies = taken.medians("l2_ports_copy_bytes_per_s")
    places = taken.medians("random_places_per_s")
    at = clocks.get("ports", clock)
    every = str(count)
    divergent = per_clock("constant_divergent")
    access = _dram_access_bytes(places)
    return {
        "l1_bytes_per_clock_per_sm": port("l1_read"),
        "shared_bytes_per_clock_per_sm": port("shared_read"),
        "constant_passes_per_clock_per_sm": divergent and divergent / count / WORD_BYTES,
        "l2_bytes_per_clock": per_clock("l2_read"),
        "l2_write_bytes_per_clock": writes.get(every) and writes[every] / at,
        "l2_copy_bytes_per_clock": copies.get(every) and copies[every] / at,
        "l2_port_bytes_per_clock_per_sm": l2.get("1") and l2["1"] / at,
        "l2_port_write_bytes_per_clock_per_sm": writes.get("1") and writes["1"] / at,
        "l2_bytes_per_clock_by_sms": {key: rate / at for key, rate in l2.items()},
        "dram_bytes_per_s_by_sms": taken.medians("dram_ports_read_bytes_per_s"),
        "dram_achievable_fraction": fraction(rates.get("dram_read")),
        "dram_write_fraction": fraction(rates.get("dram_write")),
        "dram_copy_fraction": fraction(rates.get("dram_copy")),
        "dram_access_bytes": access,
        "dram_random_fraction": fraction(places["1"] * access if access else None),
    }


def _dram_access_bytes(places: Mapping[str, float]) -> int | None:
    """The widest random access that DRAM serves as often as single sectors, bytes."""
    if "1" not in places:
        return None
    same = [int(sectors) for sectors, rate in places.items() if rate >= SAME_RATE * places["1"]]
    return 32 * max(same)


def _queues(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    """What loads wait for others: of reads as in an M/D/1 queue, and besides for writes."""
    clocks, rates = taken.medians("loaded_latency_clocks"), taken.medians("loaded_bytes_per_s")
    peak = peak_bandwidth_bytes_per_s(properties)
    if not clocks or peak is None:
        return {}
    loads = {key: rate / peak for key, rate in rates.items()}
    alone = [clocks[key] for key, load in loads.items() if _reads(key) and load < LIGHT_LOAD]
    if not alone:
        return {}
    idle = statistics.median(alone)
    heavy = {key: load for key, load in loads.items() if LIGHT_LOAD <= load <= HEAVY_LOAD}
    # The mean wait of a queue with random arrivals and a constant service of one clock.
    waits = {key: load / (2 * (1 - load)) for key, load in heavy.items()}
    services = [(clocks[key] - idle) / wait for key, wait in waits.items() if _reads(key)]
    if not services:
        return {}
    service = statistics.median(services)
    turnarounds = [
        (clocks[key] - idle - service * waits[key]) / load
        for key, load in heavy.items()
        if not _reads(key)
    ]
    return {
        "dram_queue_clocks": service,
        "dram_turnaround_clocks": statistics.median(turnarounds) if turnarounds else None,
    }


def _reads(key: str) -> bool:
    """Whether the warps of a sample under load only read."""
    return key.startswith("0:")


def _groups(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    sizes = Counter(taken.medians("first_of_group").values())
    counts = Counter(sizes.values())
    return {"gpcs_by_sms": {str(size): float(counts[size]) for size in sorted(counts)}}


def _atomics(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    at = taken.medians("clock_hz").get("atomics", clock)

    def inverse(value: float | None) -> float | None:
        return None if value is None else 1 / value

    def per_clock(series: str) -> float | None:
        rate = taken.median(series)
        return None if rate is None else rate / at

    return {
        "global_atomic_latency_clocks": taken.median("global_atomic_chain_clocks"),
        "global_atomic_same_address_s": inverse(taken.median("same_address_per_s")),
        "global_atomic_same_address_float_s": inverse(taken.median("same_address_floats_per_s")),
        "global_atomic_same_address_warp_s": inverse(taken.median("same_address_warps_per_s")),
        "global_atomics_per_clock": per_clock("spread_lanes_per_s"),
        "global_atomics_coalesced_per_clock": per_clock("coalesced_lanes_per_s"),
        "shared_atomic_latency_clocks": taken.median("shared_atomic_chain_clocks"),
        "shared_atomic_lanes_per_clock_per_sm": taken.median("shared_spread_lanes_per_clock"),
        "shared_atomic_same_address_clocks": inverse(taken.median("shared_same_lanes_per_clock")),
    }


def _launches(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    at = taken.medians("clock_hz").get("launches", clock)
    grids: dict[str, dict[int, float]] = defaultdict(dict)
    for key, seconds in taken.medians("empty_grid_s").items():
        threads, _, blocks = key.partition(":")
        grids[threads][int(blocks)] = seconds
    starts = {}
    for threads, times in grids.items():
        large = {blocks: seconds for blocks, seconds in times.items() if blocks >= LEAST_BLOCKS}
        if len(large) > 1:
            starts[threads] = line_through(large)[1] * at
    typical = str(TYPICAL_BLOCK_THREADS)
    pair, single = taken.median("event_pair_s"), grids[typical].get(1)
    return {
        "block_start_clocks_by_threads": starts,
        "blocks_per_clock": 1 / starts[typical] if typical in starts else None,
        "shortest_kernel_s": None if pair is None or single is None else single - pair,
        "block_turnaround_clocks": _median_of_all(taken, "turnaround_clocks"),
        "warp_start_clocks": taken.median("warp_start_clocks"),
    }


def _code(taken: Samples, properties: DeviceProperties, clock: float) -> Figures:
    cold = {
        int(size): clocks
        for size, clocks in taken.medians("cold_code_clocks").items()
        if int(size) <= COLD_CODE_BYTES
    }
    found: Figures = {
        "code_clocks_per_instruction_by_bytes": {
            size: clocks * INSTRUCTION_BYTES / int(size)
            for size, clocks in taken.medians("warm_code_clocks").items()
        }
    }
    if len(cold) > 1:
        _, per_byte = line_through(cold)
        found["cold_code_bytes_per_clock"] = 1 / per_byte if per_byte > 0 else None
    return found


def line_through(points: Mapping[int, float]) -> tuple[float, float]:
    """Fit a line by least squares.

    Args:
        points: y by x; at least two.

    Returns:
        Its value at 0, and its slope.
    """
    slope, start = np.polyfit(np.array(list(points)), np.array(list(points.values())), 1)
    return float(start), float(slope)


def _median_of_all(taken: Samples, series: str) -> float | None:
    medians = taken.medians(series)
    return statistics.median(medians.values()) if medians else None


def _median_clock(taken: Samples) -> float | None:
    return _median_of_all(taken, "clock_hz")


def _without_slowest(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    kept: np.ndarray[tuple[int], np.dtype[np.float64]] = np.sort(values)[
        : max(1, int(len(values) * 0.99))
    ]
    return kept


def _trimmed_mean(values: Sequence[float]) -> float:
    return float(_without_slowest(np.array(values, np.float64)).mean())


def _near_power_of_two(value: float) -> float:
    nearest = 2.0 ** round(np.log2(value)) if value > 0 else value
    return nearest if abs(value - nearest) <= POWER_OF_TWO_TOLERANCE * nearest else value


def _whole_clocks(latencies: Mapping[str, float]) -> dict[str, float]:
    """Latencies of instructions, which are whole clocks: the rest is the loop's branch."""
    return {key: float(round(clocks)) for key, clocks in latencies.items()}


def _near_power_of_two_int(value: float) -> int:
    return max(1, round(_near_power_of_two(value)))


def _rounded(value: FigureValue) -> FigureValue:
    if isinstance(value, int):
        return value
    round_one: Callable[[float], float] = lambda number: float(  # noqa: E731
        f"{number:.{SIGNIFICANT_DIGITS}g}"
    )
    if isinstance(value, float):
        return round_one(value)
    return {key: round_one(number) for key, number in value.items()}
