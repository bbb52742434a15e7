"""The limits of a device that a roofline draws: memory bandwidths and arithmetic peaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memlab.device.properties import (
    CUDA_CORE_KINDS,
    INTEGER_KINDS,
    bandwidth_figures,
    clock_figure,
    peak_bandwidth_bytes_per_s,
    peak_figures,
    peak_flop_per_s,
    peak_integer_op_per_s,
    provenance,
)
from memlab.roofline.run import Ceiling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab.device.gpu.peaks.records import Peaks
    from memlab.device.properties import DeviceProperties

MEMORY_LEVELS = ("l1", "l2", "dram")
"""The levels that have a bandwidth, from the multiprocessor outwards."""

CEILING_LABELS = {
    "l1": "L1 / shared",
    "l2": "L2",
    "dram": "DRAM",
    "fp32": "FP32",
    "fp64": "FP64",
    "fp16_fma": "FP16",
    "bf16_fma": "BF16",
    "int_alu": "INT ALU",
    "int_fma": "INT FMA",
    "int_xu": "INT XU",
    "tf32": "TF32 tensor",
    "fp16": "FP16 tensor",
    "bf16": "BF16 tensor",
    "fp8": "FP8 tensor",
}
"""The name of a ceiling in tables and pictures, by its key."""


def ceilings(properties: DeviceProperties) -> tuple[Ceiling, ...]:
    """List the known limits of a device: `dram`, `l2`, `l1`, then the peaks of arithmetic.

    L1 and shared memory are one array behind one port (CUDA C++ Programming Guide, "Unified
    Data Cache"), so they are one ceiling: bytes per clock and multiprocessor, times
    multiprocessors, times the clock. The L2's ceiling is its bytes per clock times the clock.

    Args:
        properties: The device. An unknown figure gives no ceiling; nothing is guessed.

    Returns:
        Bandwidths in B/s, peaks in FLOP/s and those of integers in OP/s, each with its provenance.
    """
    clock = clock_figure(properties)
    memory = {
        "dram": (peak_bandwidth_bytes_per_s(properties), bandwidth_figures(properties)),
        "l2": _figure_product(properties, "l2_bytes_per_clock", clock),
        "l1": _figure_product(
            properties, "l1_bytes_per_clock_per_sm", "multiprocessor_count", clock
        ),
    }
    pipes = {
        kind: (peak_flop_per_s(properties, kind), peak_figures(properties, kind))
        for kind in (*CUDA_CORE_KINDS, *properties.tensor_flop_per_s)
    }
    integers = {
        kind: (peak_integer_op_per_s(properties, kind), peak_figures(properties, kind))
        for kind in INTEGER_KINDS
    }
    return tuple(
        Ceiling(
            key, CEILING_LABELS.get(key, key.upper()), value, kind, provenance(properties, *names)
        )
        for kind, group in (("bandwidth", memory), ("compute", pipes), ("integer", integers))
        for key, (value, names) in group.items()
        if value is not None
    )


def ceiling_label(key: str) -> str:
    """Give the name of a ceiling, or of another bound, for people: `l1` is `L1 / shared`."""
    return CEILING_LABELS.get(key, key)


def measured_ceilings(peaks: Peaks) -> tuple[Ceiling, ...]:
    """List the limits that micro-benchmarks reached: the best rate for each.

    Args:
        peaks: The device's peaks; invalid rates are left out.

    Returns:
        Ceilings with the keys of `ceilings`, in B/s and FLOP/s.
    """
    best: dict[str, Ceiling] = {}
    for rate in peaks.rates:
        key = "l1" if rate.limit == "shared" else rate.limit
        if rate.invalid or key not in CEILING_LABELS:
            continue
        if key not in best or rate.value > best[key].value:
            kind = "bandwidth" if rate.unit == "B/s" else "compute"
            best[key] = Ceiling(key, CEILING_LABELS[key], rate.value, kind, "measured")
    return tuple(best[key] for key in CEILING_LABELS if key in best)


def ceiling_unit(ceiling: Ceiling) -> str:
    """Give the unit of a ceiling's value: `B/s`, `FLOP/s` or `OP/s`."""
    return {"bandwidth": "B/s", "integer": "OP/s"}.get(ceiling.kind, "FLOP/s")


def ceilings_by_key(ceilings: Iterable[Ceiling]) -> dict[str, Ceiling]:
    """Index ceilings by their key, keeping their order."""
    return {ceiling.key: ceiling for ceiling in ceilings}


def _figure_product(
    properties: DeviceProperties, *names: str
) -> tuple[float | None, tuple[str, ...]]:
    """Multiply figures; gives the product, None where one is unknown, and their names."""
    factors = [getattr(properties, name) for name in names]
    return None if None in factors else math.prod(factors, start=1.0), names
