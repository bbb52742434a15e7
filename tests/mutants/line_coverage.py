"""Which tests execute which lines, and how long they take; kept under `build`."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import Any

import coverage
import pytest

from .operators import Mutation
from .targets import ROOT, Target
from .trial import Recorder, in_child, run_tests

KEPT = ROOT / "build" / "mutants"
COMPILED = KEPT / "compiled"
ROOMS = ("memlab", "cli", "roofline", "device", "kernels")
"""The folders of the product."""
LIMIT_S = 900.0
"""Time limit for the tests of one file."""


@dataclass(frozen=True)
class FileCoverage:
    """The lines that the tests of one file execute.

    Attributes:
        file: The test file.
        seconds: Duration of each test; tests that fail without any fault are left out.
        lines: For each module and line, the tests that execute it.
    """

    file: str
    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, frozenset[str]]]

    def tests_of(self, path: str, mutation: Mutation) -> frozenset[str]:
        """The tests that execute the changed code."""
        lines = self.lines.get(path, {})
        if mutation.at_import:  # any test of the module may find it
            return frozenset().union(*lines.values())
        first, last = mutation.extent
        return frozenset().union(*(lines.get(line, ()) for line in range(first, last + 1)))


def choose_tests(
    target: Target, mutation: Mutation, coverages: Mapping[str, FileCoverage], budget_s: float
) -> dict[str, float]:
    """Choose the fastest of the tests that execute a fault.

    Args:
        target: The module.
        mutation: The fault.
        coverages: The coverage of each test file.
        budget_s: Seconds for all tests together.

    Returns:
        The seconds of each chosen test.
    """
    seconds = {
        test: coverages[file].seconds[test]
        for file in target.tests
        for test in coverages[file].tests_of(target.path, mutation)
    }
    chosen: dict[str, float] = {}
    total_s = 0.0
    for test in sorted(seconds, key=lambda test: (seconds[test], test)):
        total_s += seconds[test]
        if chosen and total_s > budget_s:
            break
        chosen[test] = seconds[test]
    return chosen


def trace_coverage(file: str, paths: Sequence[str]) -> FileCoverage:
    """Run a test file twice: once for its coverage, once for its durations with a warm cache.

    Args:
        file: The test file, relative to the repository's root.
        paths: The modules to trace, relative to the repository's root.

    Raises:
        RuntimeError: The tests cannot be run.
    """
    kept = KEPT / f"{file.replace('/', '.')}.json"
    key = _digest(file, tuple(paths))
    if not kept.exists() or json.loads(kept.read_text("utf-8"))["key"] != key:
        COMPILED.mkdir(parents=True, exist_ok=True)
        traced = in_child(lambda folder: _lines(file, paths, folder), LIMIT_S)
        timed = in_child(lambda folder: _durations(file, folder), LIMIT_S)
        if traced.answer is None or timed.answer is None:
            raise RuntimeError(f"{file} cannot be run:\n{traced.printed}\n{timed.printed}")
        if "\nFAILED" in timed.printed:
            print(f"{file} fails without any fault:\n{timed.printed}", file=sys.stderr)
        found = {
            "key": key,
            "seconds": json.loads(timed.answer),
            "lines": json.loads(traced.answer),
        }
        kept.write_text(json.dumps(found), "utf-8")
    found = json.loads(kept.read_text("utf-8"))
    return FileCoverage(
        file,
        found["seconds"],
        {
            path: {
                int(line): frozenset(test for test in tests if test in found["seconds"])
                for line, tests in lines.items()
            }
            for path, lines in found["lines"].items()
        },
    )


def _lines(file: str, paths: Sequence[str], folder: Path) -> str:
    """For each module and line, the tests that execute it."""
    files = [str(ROOT / path) for path in paths]
    measured = coverage.Coverage(data_file=None, config_file=False, include=files)
    tracer = _Tracer(measured)
    measured.start()
    run_tests([file], folder, COMPILED, tracer)
    measured.stop()
    found: dict[str, dict[int, list[str]]] = {}
    data = measured.get_data()
    for path in paths:
        found[path] = lines = {}
        for line, contexts in data.contexts_by_lineno(str(ROOT / path)).items():
            tests: set[str] = set()
            for phase, _, test in (context.partition(" ") for context in contexts):
                # A fixture may serve all tests of the file.
                tests |= tracer.passed if phase == "setup" else {test} & tracer.passed
            lines[line] = sorted(tests)
    return json.dumps(found)


def _durations(file: str, folder: Path) -> str:
    """The seconds of each test that passes."""
    plugin = Recorder()
    run_tests([file], folder, COMPILED, plugin)
    return json.dumps({test: plugin.seconds[test] for test in sorted(plugin.passed)})


class _Tracer(Recorder):
    """Tells coverage which test runs, and clears the tests' caches before each."""

    def __init__(self, measured: coverage.Coverage) -> None:
        super().__init__()
        self._measured = measured
        self._caches: list[_lru_cache_wrapper[Any]] = []

    def pytest_collection_finish(self) -> None:
        for function in gc.get_objects():
            if isinstance(function, _lru_cache_wrapper):
                code = getattr(function.__wrapped__, "__code__", None)
                if code and Path(code.co_filename).is_relative_to(ROOT / "tests"):
                    self._caches.append(function)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for function in self._caches:
            function.cache_clear()
        super().pytest_runtest_setup(item)
        self._measured.switch_context(f"setup {item.nodeid}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._measured.switch_context(f"call {item.nodeid}")


def _digest(file: str, paths: tuple[str, ...]) -> str:
    return hashlib.sha256(
        b"\0".join([(ROOT / file).read_bytes(), repr(paths).encode(), _sources_digest()])
    ).hexdigest()


@cache
def _sources_digest() -> bytes:
    """The digest of the product and of the tests' helper modules."""
    digest = hashlib.sha256()
    sources = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    helpers = [
        file
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if not file.name.startswith("test_") and file.parent != Path(__file__).parent
    ]
    for file in sources + helpers:
        digest.update(file.read_bytes())
    return digest.digest()
