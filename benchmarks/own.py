"""Kernels of one's own at four million elements: how long, and whether every count is right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.commands import MEMLAB, cost
from benchmarks.report import Figure

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cli"))

from ten_kernels import KERNELS

ELEMENTS = 4_000_000
MOST_S = 10.0


def runs() -> list[Figure]:
    """Whole commands, cold: seconds, and counts that differ from those of the addresses alone.

    Raises:
        RuntimeError: A command failed, a wrong result among the reasons.
    """
    figures = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for make in KERNELS:
            case, document = make(ELEMENTS), folder / f"{make.__name__}.json"
            options = ("--device", "h200", "--no-store", "-q", "--output", str(document))
            taken = cost([*MEMLAB, *case.words(folder), *options])
            counters = json.loads(document.read_text())["counters"]
            different = sum(
                counters[f"global_{count}"] != value for count, value in vars(case.traffic).items()
            )
            figures.append(Figure(f"{case.name}: wall", taken.wall_s, "s", MOST_S))
            figures.append(Figure(f"{case.name}: wrong counts", different, "of 4", 0))
    return figures
