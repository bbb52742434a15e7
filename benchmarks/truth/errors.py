"""The quantiles of the model's errors by kind of kernel, as `device/model_errors.toml`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.truth.compare import Comparison
from memlab.device.model_errors import ALL_KINDS, BY_COUNTERS, COVERED_SHARE

LEAST_LAUNCHES = 8
"""Launches of a kind from which its own quantiles are recorded: of fewer, the outer ones are the
extremes of a handful."""


def quantiles_toml(compared: Sequence[Comparison]) -> str:
    """The quantiles of the measured over the modelled time, as the text of a TOML file."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for one in compared:
        ratio = one.measured.time_s / one.modelled.time_s
        for kind in (ALL_KINDS, one.modelled.bound):
            ratios[kind].append(ratio)
        ratios[BY_COUNTERS].append(one.measured.time_s / one.modelled.counters_s)
    outer = (1 - COVERED_SHARE) / 2
    text = (
        "# The measured over the modelled time of launches, by the bound that takes longest in the"
        "\n# model: quantiles. Written by `python -m benchmarks.truth compare --errors`.\n"
    )
    for kind in sorted(ratios, key=lambda name: -len(ratios[name])):
        if len(ratios[kind]) >= LEAST_LAUNCHES:
            low, high = np.quantile(ratios[kind], (outer, 1 - outer))
            text += f'\n[kinds."{kind}"]\nlaunches = {len(ratios[kind])}\n'
            text += f"low = {low:.3f}\nhigh = {high:.3f}\n"
    return text
