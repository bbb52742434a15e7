"""The limits of a device, as a roofline draws them: bandwidths of memory, peaks of the pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.properties import (
    clock_hz,
    peak_bandwidth_bytes_per_s,
    peak_flop_per_s,
    provenance,
)
from memlab.roofline.run import Ceiling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab.device.measurement import Provenance
    from memlab.device.peak_records import Peaks
    from memlab.device.properties import DeviceProperties

MEMORY_LEVELS = ("l1", "l2", "dram")
"""The levels that have a bandwidth, from the multiprocessor outwards."""

LABELS = {
    "l1": "L1 / shared",
    "l2": "L2",
    "dram": "DRAM",
    "fp32": "FP32",
    "fp64": "FP64",
    "tf32": "TF32 tensor",
    "fp16": "FP16 tensor",
    "bf16": "BF16 tensor",
}
"""How a person reads a ceiling's key."""

TELLING: tuple[Provenance, ...] = (
    "modelled",
    "emulated",
    "analytic",
    "measured",
    "datasheet",
    "queried",
)
"""Provenances of a factor, from the one that says most about the product to the least."""


def ceilings(properties: DeviceProperties) -> tuple[Ceiling, ...]:
    """List what is known to limit a device: `dram`, `l2`, `l1`, then the arithmetic peaks.

    L1 and shared memory are one array behind one port (CUDA C++ Programming Guide, "Unified
    Data Cache"), so they are one ceiling: its bytes a clock, times multiprocessors, times the
    clock. The L2 is its slices' bytes a clock, times the clock.

    Args:
        properties: The device. A figure that is unknown gives no ceiling; nothing is guessed.

    Returns:
        Bandwidths in B/s and peaks in FLOP/s, each with its provenance.
    """
    clock = clock_hz(properties)
    clock_field = "peak_clock_hz" if properties.peak_clock_hz else "clock_rate_hz"
    memory: dict[str, tuple[float | None, tuple[str, ...]]] = {
        "dram": (
            peak_bandwidth_bytes_per_s(properties),
            ("memory_clock_rate_hz", "global_memory_bus_width_bits")
            if properties.peak_memory_bandwidth_bytes_per_s is None
            else ("peak_memory_bandwidth_bytes_per_s",),
        ),
        "l2": (
            _product(properties.l2_bytes_per_clock, clock),
            ("l2_bytes_per_clock", clock_field),
        ),
        "l1": (
            _product(properties.l1_bytes_per_clock_per_sm, properties.multiprocessor_count, clock),
            ("l1_bytes_per_clock_per_sm", "multiprocessor_count", clock_field),
        ),
    }
    pipes: dict[str, tuple[float | None, tuple[str, ...]]] = {
        precision: (
            peak_flop_per_s(properties, precision),
            (f"{precision}_lanes_per_sm", "multiprocessor_count", clock_field),
        )
        for precision in ("fp32", "fp64")
    }
    pipes |= {
        precision: (peak_flop_per_s(properties, precision), ("tensor_flop_per_s",))
        for precision in properties.tensor_flop_per_s
    }
    return tuple(
        Ceiling(key, LABELS.get(key, key.upper()), value, kind, _provenance(properties, fields))
        for kind, group in (("bandwidth", memory), ("compute", pipes))
        for key, (value, fields) in group.items()
        if value is not None
    )


def ceiling_label(key: str) -> str:
    """Name a ceiling, or what else binds a launch, as a person reads it: `l1` is `L1 / shared`."""
    return LABELS.get(key, key)


def measured_ceilings(peaks: Peaks) -> tuple[Ceiling, ...]:
    """List the limits that micro-benchmarks reached: of each, the best that was seen.

    Args:
        peaks: Of the device whose roofs are drawn.

    Returns:
        Ceilings with the keys of `ceilings`, in B/s and FLOP/s.
    """
    best: dict[str, Ceiling] = {}
    for rate in peaks.rates:
        key = "l1" if rate.limit == "shared" else rate.limit
        if key in LABELS and (key not in best or rate.value > best[key].value):
            kind = "bandwidth" if rate.unit == "B/s" else "compute"
            best[key] = Ceiling(key, LABELS[key], rate.value, kind, "measured")
    return tuple(best[key] for key in LABELS if key in best)


def by_key(ceilings: Iterable[Ceiling]) -> dict[str, Ceiling]:
    """Index ceilings by their key, keeping their order."""
    return {ceiling.key: ceiling for ceiling in ceilings}


def _product(*factors: float | None) -> float | None:
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def _provenance(properties: DeviceProperties, fields: tuple[str, ...]) -> Provenance:
    """Name the provenance of a product: of its factors', the one a reader should know of first."""
    words = {provenance(properties, field) for field in fields}
    return next(word for word in TELLING if word in words)
