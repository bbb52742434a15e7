"""Which tests run which lines, and how long they take: found out once, and kept under `build`."""

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
from .trial import Watcher, in_child, run_tests

KEPT = ROOT / "build" / "mutants"
COMPILED = KEPT / "compiled"
ROOMS = ("memlab", "cli", "roofline", "device", "kernels")
LIMIT_S = 900.0
"""For the tests of one file."""


@dataclass(frozen=True)
class Reach:
    """What the tests of one file run.

    Attributes:
        file: The file.
        seconds: What each test takes; those that fail as things are, are not among them.
        lines: By module and line, the tests that run it.
    """

    file: str
    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, frozenset[str]]]

    def tests_of(self, path: str, mutation: Mutation) -> frozenset[str]:
        """The tests that run what a fault changes."""
        lines = self.lines.get(path, {})
        if mutation.at_import:  # what a module sets up, all that run any of it may find
            return frozenset().union(*lines.values())
        first, last = mutation.extent
        return frozenset().union(*(lines.get(each, ()) for each in range(first, last + 1)))


def chosen(
    target: Target, mutation: Mutation, reaches: Mapping[str, Reach], budget_s: float
) -> dict[str, float]:
    """Choose the tests of a fault: those that run it, the quickest of them where they take long.

    Args:
        target: The module.
        mutation: The fault.
        reaches: By file, what its tests run.
        budget_s: Seconds for all of them.

    Returns:
        The seconds of each.
    """
    found = {
        test: reaches[file].seconds[test]
        for file in target.tests
        for test in reaches[file].tests_of(target.path, mutation)
    }
    taken: dict[str, float] = {}
    total_s = 0.0
    for test in sorted(found, key=lambda each: (found[each], each)):
        total_s += found[test]
        if taken and total_s > budget_s:
            break
        taken[test] = found[test]
    return taken


def reach(file: str, paths: Sequence[str]) -> Reach:
    """Run a file of tests twice: once watched, once for its times, with all compiled before.

    Args:
        file: The file, from the repository's root.
        paths: The modules to watch, likewise.

    Raises:
        RuntimeError: The tests cannot be run.
    """
    kept = KEPT / f"{file.replace('/', '.')}.json"
    key = _digest(file, tuple(paths))
    if not kept.exists() or json.loads(kept.read_text("utf-8"))["key"] != key:
        COMPILED.mkdir(parents=True, exist_ok=True)
        watched = in_child(lambda folder: _lines(file, paths, folder), LIMIT_S)
        timed = in_child(lambda folder: _times(file, folder), LIMIT_S)
        if watched.answer is None or timed.answer is None:
            raise RuntimeError(f"{file} cannot be run:\n{watched.printed}\n{timed.printed}")
        if "\nFAILED" in timed.printed:
            print(f"{file} fails as it is:\n{timed.printed}", file=sys.stderr)
        found = {
            "key": key,
            "seconds": json.loads(timed.answer),
            "lines": json.loads(watched.answer),
        }
        kept.write_text(json.dumps(found), "utf-8")
    found = json.loads(kept.read_text("utf-8"))
    return Reach(
        file,
        found["seconds"],
        {
            path: {
                int(line): frozenset(each for each in tests if each in found["seconds"])
                for line, tests in lines.items()
            }
            for path, lines in found["lines"].items()
        },
    )


def _lines(file: str, paths: Sequence[str], folder: Path) -> str:
    """By module and line, the tests that run it."""
    files = [str(ROOT / path) for path in paths]
    watch = coverage.Coverage(data_file=None, config_file=False, include=files)
    tracer = _Tracer(watch)
    watch.start()
    run_tests([file], folder, COMPILED, tracer)
    watch.stop()
    found: dict[str, dict[int, list[str]]] = {}
    data = watch.get_data()
    for path in paths:
        found[path] = lines = {}
        for line, contexts in data.contexts_by_lineno(str(ROOT / path)).items():
            tests: set[str] = set()
            for phase, _, test in (each.partition(" ") for each in contexts):
                # What a fixture prepares may be prepared for all.
                tests |= tracer.passed if phase == "setup" else {test} & tracer.passed
            lines[line] = sorted(tests)
    return json.dumps(found)


def _times(file: str, folder: Path) -> str:
    """What each test takes that passes."""
    watcher = Watcher()
    run_tests([file], folder, COMPILED, watcher)
    return json.dumps({test: watcher.seconds[test] for test in sorted(watcher.passed)})


class _Tracer(Watcher):
    """Tells coverage which test runs, and has each work out again what others have before it."""

    def __init__(self, watch: coverage.Coverage) -> None:
        super().__init__()
        self._watch = watch
        self._caches: list[_lru_cache_wrapper[Any]] = []

    def pytest_collection_finish(self) -> None:
        for each in gc.get_objects():
            if isinstance(each, _lru_cache_wrapper):
                code = getattr(each.__wrapped__, "__code__", None)
                if code and Path(code.co_filename).is_relative_to(ROOT / "tests"):
                    self._caches.append(each)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for each in self._caches:
            each.cache_clear()
        super().pytest_runtest_setup(item)
        self._watch.switch_context(f"setup {item.nodeid}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._watch.switch_context(f"call {item.nodeid}")


def _digest(file: str, paths: tuple[str, ...]) -> str:
    return hashlib.sha256(
        b"\0".join([(ROOT / file).read_bytes(), repr(paths).encode(), _house()])
    ).hexdigest()


@cache
def _house() -> bytes:
    """All that tests may depend on, but the tests themselves."""
    digest = hashlib.sha256()
    sources = [each for room in ROOMS for each in sorted((ROOT / room).rglob("*.py"))]
    helpers = [
        each
        for each in sorted((ROOT / "tests").rglob("*.py"))
        if not each.name.startswith("test_") and each.parent != Path(__file__).parent
    ]
    for each in sources + helpers:
        digest.update(each.read_bytes())
    return digest.digest()
