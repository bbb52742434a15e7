"""A run: a measurement with its place under the roof, as it is stored, listed and drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from memlab.device.measurement import Measurement, Provenance
from memlab.presentation import Presentable

TRAFFIC_LEVELS = ("requested", "l1", "l2", "dram", "compulsory")
"""Where bytes are counted for an arithmetic intensity, from the program to the memory chips."""


@dataclass(frozen=True)
class Ceiling:
    """One limit of a device.

    Attributes:
        key: `dram`, `l2`, `l1` (shared memory has the same port), `fp32`, `fp64`, `tf32` …
        label: As drawn, e.g. `DRAM`.
        value: Bytes a second for a memory level, FLOP a second for a pipe.
        kind: `bandwidth` (B/s) or `compute` (FLOP/s).
        provenance: Where the value comes from: `datasheet`, `measured`, `queried`, `analytic`.
    """

    key: str
    label: str
    value: float
    kind: str
    provenance: Provenance


@dataclass(frozen=True)
class Placement:
    """A measurement under the roof.

    Attributes:
        flop_per_s: FLOPs of the algorithm over the median time.
        intensity_flop_per_byte: FLOP/B at each of `LEVELS`; None where no byte moves there.
        bound: What binds: `dram`, `l2`, `l1`, `fp32` … (a ceiling's key), or `latency`.
        ceiling_flop_per_s: The lowest roof over this kernel's intensities.
        ceiling: Which one that is, a ceiling's key.
        fraction_of_ceiling: `flop_per_s` over it; above 1 the measurement is invalid.
        busy: Share of the time for which each resource is busy, by the ceiling's key; empty in
            a run that an older version stored.
    """

    flop_per_s: float
    intensity_flop_per_byte: dict[str, float | None]
    bound: str
    ceiling: str
    ceiling_flop_per_s: float
    fraction_of_ceiling: float
    busy: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Run(Presentable):
    """One finished run.

    Attributes:
        id: The store's number for it; None before it is stored.
        created_at: ISO 8601 in UTC, to the second.
        memlab_version: The version that made it.
        measurement: What the device gave.
        placement: Its place under the roof.
        advice: One or two sentences that follow from the figures.
    """

    id: int | None
    created_at: str
    memlab_version: str
    measurement: Measurement
    placement: Placement
    advice: tuple[str, ...]
