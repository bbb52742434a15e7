"""The input and the result of a rule of the advice, and what a change could save.

Savings come from the time model's own formula (`device/time_model.py`): units that work at the same
time, the busiest of which takes M, and a part L that they wait for, give a time between the larger
of M and L and their sum; the model is the middle. M is known from the counters. L is taken such
that the formula gives the time of the launch. A change that shortens some bounds then has a time,
too, with the next bound in its way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from memlab.device.measurement import Measurement
from memlab.device.properties import DeviceProperties
from memlab.device.time_model import LaunchWork, explaining_bounds_s, throughput_bounds_s
from memlab.roofline.placement import L1_WAVEFRONT_BYTES
from memlab.roofline.run import Placement

DEVICE_BOUNDS = ("l2", "dram", "launch", "atomics")
"""Bounds of the whole device; the others are those of the busiest multiprocessor."""


@dataclass(frozen=True)
class AdviceCase:
    """The figures of a launch that rules may use.

    Attributes:
        measurement: The measured launch.
        placement: Its place under the roofline.
        properties: The device.
        moved: Bytes moved at each level, see `placement.bytes_moved`.
        busy: Share of the time for which each resource is busy, 0 to 1, by the ceiling's key.
    """

    measurement: Measurement
    placement: Placement
    properties: DeviceProperties
    moved: dict[str, int]
    busy: dict[str, float]

    @cached_property
    def bounds_s(self) -> dict[str, float]:
        """The time that each unit alone needs, seconds by name; at most that of the launch."""
        measurement = self.measurement
        work = LaunchWork(math.prod(measurement.grid), measurement.counters, 0.0)
        bounds = throughput_bounds_s(work, self.properties)
        bounds |= explaining_bounds_s(work, self.properties)
        return {name: min(bound, measurement.time.median_s) for name, bound in bounds.items()}

    def saving(
        self,
        shortened: Mapping[str, float],
        *,
        waiting: float = 1.0,
        l1_passes: float | None = None,
    ) -> float:
        """The share of the time that a change could save at most, by the time model.

        Args:
            shortened: By the name of a bound, the share of it that remains.
            waiting: The share that remains of what is no unit's work: latency, mostly.
            l1_passes: The passes through the L1 / shared port that the change spares.
        """
        shares = dict(shortened)
        if l1_passes is not None:
            all_passes = max(self.measurement.counters.l1_wavefronts, 1)
            shares["l1"] = 1.0 - min(l1_passes / all_passes, 1.0)
        time_s = self.measurement.time.median_s
        longest = max(self.bounds_s.values(), default=0.0)
        left = max(
            (bound * shares.get(name, 1.0) for name, bound in self.bounds_s.items()), default=0.0
        )
        return max(1.0 - _time_s(left, waiting * _waiting_s(time_s, longest)) / time_s, 0.0)

    def multiprocessor_bounds(self, share: float) -> dict[str, float]:
        """Shares for `saving`: of the bounds of the busiest multiprocessor so much remains."""
        return {name: share for name in self.bounds_s if name not in DEVICE_BOUNDS}

    def l1_port_share(self, byte_count: float) -> float:
        """Share of some bytes in all bytes through the L1 / shared port, 0 to 1."""
        return byte_count / self.moved["l1"] if self.moved["l1"] else 0.0

    def l1_passes(self, byte_count: float) -> float:
        """The passes through the L1 / shared port that some of its bytes take."""
        counters = self.measurement.counters
        return max(
            byte_count / L1_WAVEFRONT_BYTES,
            self.l1_port_share(byte_count) * counters.l1_wavefronts,
        )


def _time_s(busiest_s: float, waiting_s: float) -> float:
    """The time of a launch whose busiest unit works so long, by the time model."""
    return (max(busiest_s, waiting_s) + busiest_s + waiting_s) / 2


def _waiting_s(time_s: float, busiest_s: float) -> float:
    """The waiting with which `_time_s` gives a time."""
    if time_s <= 1.5 * busiest_s:
        return 2.0 * max(time_s - busiest_s, 0.0)
    return time_s - busiest_s / 2


@dataclass(frozen=True)
class Recommendation:
    """One recommended change.

    Attributes:
        saving: The share of the time that it could save at most, by the time model; 0 to 1.
        sentence: The figures and the remedy, in one sentence.
        is_estimate: Whether the saving is that of the remedy in the sentence, so that it may be
            stated; else it only ranks the sentence.
    """

    saving: float
    sentence: str
    is_estimate: bool = True

    @property
    def text(self) -> str:
        """The sentence, with the saving where that is an estimate."""
        if not self.is_estimate:
            return self.sentence
        saving = f"up to {self.saving:.0%} of the time, by the model"
        return f"{self.sentence.removesuffix('.')} ({saving})."
