"""Time and memory of whole commands, each in a separate process."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import stages
from benchmarks.report import Figure

SEARCH_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
MEMLAB = (shutil.which("memlab", path=SEARCH_PATH) or "memlab",)
"""The command that is installed with this interpreter, or else the first on the path."""
REPETITIONS = 15

RUNS = (
    ("run tiled --width 4096 --tile 32 --device h200 --no-store", 1.2, 2.0),
    ("run tiled --width 256 --tile 16 --device h200 --no-store", 3.0, 2.0),
    ("run register-tiled-2d --width 4096 --device h200 --no-store", 3.0, 2.0),
)
"""Commands with their limits: seconds and GiB."""
RUN_REPETITIONS = 3
"""Processes of each, with a warm cache of compilations; the fastest counts."""

HELP_OVER_TYPER = 1.2
"""The largest time of `memlab --help`, as a multiple of the time to import Typer."""


@dataclass(frozen=True)
class Cost:
    """The cost of a process.

    Attributes:
        wall_s: Wall time, seconds.
        peak_bytes: Peak memory, bytes.
    """

    wall_s: float
    peak_bytes: int


def cost(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Cost:
    """Run a command to its end.

    Args:
        command: Its words.
        environment: Its environment; None for this process's.
        folder: Its working folder; None for this process's.

    Raises:
        RuntimeError: It failed.
    """
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env=environment, cwd=folder
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(wall_s, usage.ru_maxrss * 1024)  # Linux gives KiB


def runs() -> list[Figure]:
    """Measure the time of runs in new processes, as a whole and by stage, and their peak memory."""
    figures = []
    for words, most_s, most_gib in RUNS:
        command = words.split()
        costs = [cost([*MEMLAB, *command]) for _ in range(RUN_REPETITIONS)]
        name = " ".join(command[1:6])
        wall_s = min(one.wall_s for one in costs)
        peak_gib = max(one.peak_bytes for one in costs) / 2**30
        figures.append(Figure(f"{name}: wall", wall_s, "s", most_s))
        figures.append(Figure(f"{name}: peak", peak_gib, "GiB", most_gib))
        by_stage = stages.measure(command, RUN_REPETITIONS)
        figures += [Figure(f"  {stage}", seconds, "s") for stage, seconds in by_stage.items()]
    return figures


def start_up() -> list[Figure]:
    """Time `memlab --help` and the import of Typer alternately, so that the load is the same."""
    commands = ([*MEMLAB, "--help"], [sys.executable, "-c", "import typer"])
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPETITIONS):
        for command, command_times in zip(commands, times, strict=True):
            command_times.append(cost(command).wall_s)
    shown, imported = map(statistics.median, times)
    return [
        Figure("memlab --help: wall", shown, "s"),
        Figure("import typer: wall", imported, "s"),
        Figure("memlab --help over import typer", shown / imported, "x", HELP_OVER_TYPER),
    ]
