"""The speed of the emulator's engine beside that of the old one, in one run on one machine.

    python -m benchmarks.engine [ROW...]

The old engine is that of a commit before PTX was compiled to machine code. It is unpacked into a
temporary folder. Each engine has a cache of compilations of its own, and each measurement is made
in a new process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.commands import cost
from benchmarks.report import Figure

ROOT = Path(__file__).parents[1]
PROBE = Path(__file__).with_name("engine_probe.py")
OLD_COMMIT = "67229a8"
"""The last commit whose engine executed every instruction by NumPy."""

REPETITIONS = 3
"""Processes of the new engine of which the fastest counts; the old one runs once."""
SMALL_WIDTH = "256"
"""The size of a run that is not timed: it leaves the compilation of its kernel in the cache."""


@dataclass(frozen=True)
class Engine:
    """A tree of memlab.

    Attributes:
        tree: The root of its repository.
        cache: The folder of its compilations.
        repetitions: How often a command is timed.
    """

    tree: Path
    cache: Path
    repetitions: int

    def wall_s(self, *command: str | Path, threads: int | None = None) -> float:
        """Seconds of a Python command with this memlab on the path; None allows all cores."""
        environment = self._environment(threads)
        return cost([sys.executable, *map(str, command)], environment, self.tree).wall_s

    def probe(self, *words: str, threads: int = 1) -> float:
        """The figure that `engine_probe` prints."""
        done = subprocess.run(
            [sys.executable, "-P", str(PROBE), *words],
            env=self._environment(threads),
            stdout=subprocess.PIPE,
            check=True,
        )
        return float(json.loads(done.stdout))

    def _environment(self, threads: int | None) -> dict[str, str]:
        inherited = {
            name: text for name, text in os.environ.items() if not name.startswith("MEMLAB_")
        }
        path = os.pathsep.join(filter(None, [str(self.tree), inherited.get("PYTHONPATH")]))
        # docs/make.py passes on no MEMLAB_CACHE.
        settings = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(self.cache)}
        return inherited | settings | ({"MEMLAB_THREADS": str(threads)} if threads else {})


@dataclass(frozen=True)
class Row:
    """A figure that is measured with both engines, and its goal.

    Attributes:
        name: Its name on the command line.
        title: What it is.
        unit: Its unit.
        measure: Measures it.
        most: The largest allowed value of the new engine; None for no limit.
        least: The smallest allowed value of the new engine; more is then better.
        ratio: How many times better than the old engine it must be at least; None for no limit.
        cores: The cores that it needs.
        is_new: Whether the old engine does not have it.
        is_long: Whether it is measured only where it is named.
    """

    name: str
    title: str
    unit: str
    measure: Callable[[Engine], float]
    most: float | None = None
    least: float | None = None
    ratio: float | None = None
    cores: int = 1
    is_new: bool = False
    is_long: bool = False


# --- Measurements ------------------------------------------------------------------------------


def run_kernel(name: str, width: str, *words: str) -> Callable[[Engine], float]:
    """Times `memlab run NAME --width WIDTH` as a whole command, with a warm cache."""
    command = ("-m", "memlab", "run", name, *words, "--device", "h200", "--no-store", "--quiet")

    def measure(engine: Engine) -> float:
        engine.wall_s(*command, "--width", SMALL_WIDTH)
        return min(engine.wall_s(*command, "--width", width) for _ in range(engine.repetitions))

    return measure


def verified_share(engine: Engine) -> float:
    """The percentage of a tiled product's blocks and elements that are executed and verified."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        words = ("run", "tiled", "--width", "1024", "--tile", "16", "--device", "h200")
        engine.wall_s("-m", "memlab", *words, "--no-store", "--quiet", "--output", path)
        document = json.loads(path.read_text())
    coverage, verification = document["coverage"], document["verification"]
    if verification["status"] != "passed":
        return 0.0
    executed = coverage["blocks_emulated"] / coverage["blocks_total"]
    return 100 * min(executed, float(verification["checked"] / verification["total"]))


def make_docs(lessons: str) -> Callable[[Engine], float]:
    """Times docs/make.py in a copy of docs, with a warm cache.

    The old engine, which takes minutes, runs once: its time has that of NVIDIA's compiler too, of
    some seconds in all.

    Args:
        lessons: The pattern of the lessons' files.
    """

    def make(engine: Engine) -> float:
        with TemporaryDirectory() as folder:
            docs = Path(folder, "docs")
            shutil.copytree(engine.tree / "docs", docs)
            for lesson in docs.glob("lessons/[0-9]*"):
                if not lesson.match(lessons):
                    lesson.unlink()
            return engine.wall_s(docs / "make.py")

    def measure(engine: Engine) -> float:
        if engine.repetitions > 1:
            make(engine)
        return min(make(engine) for _ in range(engine.repetitions))

    return measure


def run_tests(engine: Engine) -> float:
    """Times what `make test` runs: the engine's own tests."""
    words = ("-m", "pytest", "-m", "not gpu and not slow", "-n", "auto", "--dist", "worksteal")
    return engine.wall_s(*words, "-q", "-p", "no:cacheprovider")


def planted_before() -> list[str]:
    """The files with planted bugs that the old engine knows; none where its commit is not here."""
    command = ["git", "-C", ROOT, "ls-tree", "--name-only", f"{OLD_COMMIT}:tests/data/planted"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return [name for name in listed.stdout.split() if name.endswith(".cu")]


def speed_up(cores: int) -> Callable[[Engine], float]:
    """How many times faster a grid is executed on some cores than on one."""

    def measure(engine: Engine) -> float:
        pairs = [
            [engine.probe("grid", threads=threads) for threads in (1, cores)]
            for _ in range(engine.repetitions)
        ]
        one_s, all_s = map(min, zip(*pairs, strict=True))
        return one_s / all_s

    return measure


def compile_time(instructions: int) -> Callable[[Engine], float]:
    """How many CPU seconds a program's first execution takes longer without a compilation of it."""

    def measure(engine: Engine) -> float:
        engine.probe("first_run", "20", "")  # compiles what all programs share
        pairs = [
            [engine.probe("first_run", str(instructions), f"{seed}") for _ in range(2)]
            for seed in range(engine.repetitions)
        ]
        cold_s, warm_s = map(min, zip(*pairs, strict=True))
        return cold_s - warm_s

    return measure


ROWS = (
    Row(
        "fma", "loop of FMAs, lane-operations, CPU", "G/s", lambda e: e.probe("fma") / 1e9, least=5
    ),
    Row(
        "accesses",
        "loads and stores, lanes, CPU",
        "G/s",
        lambda e: e.probe("accesses") / 1e9,
        least=0.5,
    ),
    Row(
        "register-tiled-2d",
        "run register-tiled-2d --width 4096",
        "s",
        run_kernel("register-tiled-2d", "4096"),
        most=3,
    ),
    Row(
        "tiled-4096",
        "run tiled --width 4096 --tile 32",
        "s",
        run_kernel("tiled", "4096", "--tile", "32"),
        most=1.2,
    ),
    Row(
        "tiled-1024",
        "run tiled --width 1024 --tile 16",
        "s",
        run_kernel("tiled", "1024", "--tile", "16"),
        most=5,
    ),
    Row("verified", "  of it, executed and verified", "%", verified_share, least=100),
    Row(
        "check-planted",
        "check, planted bugs, CPU",
        "s",
        lambda e: e.probe("check", "planted", *planted_before()),
        ratio=5,
    ),
    Row(
        "check-tiled",
        "check tiled --width 1024, CPU",
        "s",
        lambda e: e.probe("check", "tiled"),
        ratio=5,
    ),
    Row("2-cores", "speed-up by 2 cores", "x", speed_up(2), least=1.8, cores=2, is_new=True),
    Row("16-cores", "speed-up by 16 cores", "x", speed_up(16), least=12, cores=16, is_new=True),
    Row(
        "compile-200",
        "compile 200 instructions, CPU",
        "s",
        compile_time(200),
        most=0.3,
        is_new=True,
    ),
    Row(
        "compile-5000",
        "compile 5,000 instructions, CPU",
        "s",
        compile_time(5000),
        most=3,
        is_new=True,
    ),
    Row("lesson", "lesson 13", "s", make_docs("13-*"), ratio=4),
    Row("docs", "make docs", "s", make_docs("*"), ratio=4),
    Row("tests", "make test", "s", run_tests, ratio=4, is_long=True),
)


# --- The report --------------------------------------------------------------------------------


def report(rows: Iterable[Row]) -> list[Figure]:
    """Measure rows, print each at once, and return the figures with the goals."""
    figures = []
    with TemporaryDirectory() as cache, _old_engine() as old:
        print(f"{'':<36}{'old':>9}{'new':>9}       {'ratio':>7}  goal", flush=True)
        new = Engine(ROOT, Path(cache), REPETITIONS)
        for row in rows:
            before = None if row.is_new or old is None else row.measure(old)
            after = row.measure(new)
            line, figure = _compare(row, before, after)
            print(line, flush=True)
            figures.append(figure)
    return figures


def _compare(row: Row, old: float | None, new: float) -> tuple[str, Figure]:
    """The line of a row, and its figure with the goal: of the new engine, or of the ratio."""
    ratio = None if old is None else old / new if row.least is None else new / old
    if row.ratio is None:
        figure = Figure(row.title, new, row.unit, row.most, row.least)
    else:
        figure = Figure(row.title, ratio or 0.0, "x", least=None if ratio is None else row.ratio)
    cells = f"{'-' if old is None else f'{old:.3g}':>9}{new:>9.3g} {row.unit:<6}"
    times = f"{'-' if ratio is None else f'{ratio:.1f}x':>7}"
    of_ratio = "ratio" if row.ratio else ""
    return f"{row.title:<36}{cells}{times}  {of_ratio:<5}{figure.goal}".rstrip(), figure


@contextmanager
def _old_engine() -> Iterator[Engine | None]:
    """The old engine in a temporary folder; None, and a line that says so, without its commit."""
    with TemporaryDirectory() as folder:
        tree, cache = Path(folder, "tree"), Path(folder, "cache")
        tree.mkdir()
        try:
            archive = subprocess.run(
                ["git", "-C", ROOT, "archive", OLD_COMMIT], capture_output=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            print(f"commit {OLD_COMMIT} is not in this clone: only the new engine is measured")
            yield None
            return
        subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
        yield Engine(tree, cache, repetitions=1)


def default_rows() -> list[Row]:
    """The rows that this machine has the cores for, but for those that are long."""
    cores = len(os.sched_getaffinity(0))
    return [row for row in ROWS if row.cores <= cores and not row.is_long]


def main(arguments: Sequence[str]) -> int:
    """Print the named rows, or the default ones; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(names)}")
    chosen = parser.parse_args(arguments).rows
    if unknown := {*chosen} - {*names}:
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    figures = report([row for row in ROWS if row.name in chosen] or default_rows())
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
