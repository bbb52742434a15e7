"""Runs tests in a forked child that has imported the third-party packages but not memlab."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings

from .targets import ROOT

MOST_BYTES = 12 << 30
"""Limit of a child's address space: a faulty program may allocate without end."""
SLOW_IMPORTS = (
    "hypothesis numpy numpy.testing pandas matplotlib.figure matplotlib.backends.backend_agg "
    "typer rich.console rich.table rich.progress jsonschema ml_dtypes elftools.elf.elffile "
    "cuda.bindings.nvrtc coverage sqlite3"
)
"""Packages that the parent imports once for all children."""
PROFILE = "mutants"
"""Name of the Hypothesis profile."""
OPTIONS = ("-q", "-m", "not gpu", "-o", "addopts=", "--import-mode=importlib", "--tb=short")


def prepare() -> None:
    """Import what children share, and let Hypothesis draw the same examples every time."""
    os.chdir(ROOT)
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    for name in SLOW_IMPORTS.split():
        importlib.import_module(name)
    settings.register_profile(
        PROFILE,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(PROFILE)


@dataclass(frozen=True)
class ChildRun:
    """The result of a child process.

    Attributes:
        answer: The returned text; None if the child ended without one.
        printed: The child's output.
        timed_out: Whether the child or one of its tests exceeded its time limit.
    """

    answer: str | None
    printed: str
    timed_out: bool


def in_child(action: Callable[[Path], str], limit_s: float) -> ChildRun:
    """Call a function in a forked child.

    Args:
        action: Receives an empty folder and returns the answer.
        limit_s: Seconds after which the child and its children are killed.
    """
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    answer, printed = folder / "answer", folder / "printed"
    try:
        child = os.fork()
        if child == 0:
            _run_child(action, folder, answer, printed)
        process = os.pidfd_open(child)
        try:
            ended, _, _ = select.select([process], [], [], limit_s)
        finally:
            os.close(process)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        return ChildRun(
            answer.read_text("utf-8") if answer.exists() else None,
            printed.read_text("utf-8", "replace") if printed.exists() else "",
            not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_child(
    action: Callable[[Path], str], folder: Path, answer: Path, printed: Path
) -> NoReturn:
    try:
        os.setsid()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, hard))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(printed, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        text = action(folder)
        answer.with_suffix(".new").write_text(text, "utf-8")
        answer.with_suffix(".new").rename(answer)
    except BaseException:  # no exception may leave the child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def run_tests(
    files: Sequence[str], folder: Path, compiled: Path, plugin: Recorder, *options: str
) -> None:
    """Run test files in this process, which must not be used for anything else afterwards.

    Args:
        files: The test files.
        folder: The folder in which the tests write.
        compiled: The folder for compiled kernels.
        plugin: Selects the tests and records their results.
        options: Further options for pytest.
    """
    plugin.compiled = compiled
    disabled = [f"-pno:{name}" for name in ("cacheprovider", "xdist", "cov")]
    base = f"--basetemp={folder / 'tests'}"
    status = pytest.main([*OPTIONS, *disabled, base, *options, *files], [plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        plugin.failed = plugin.failed or f"pytest ended with {status}"


class Recorder:
    """A pytest plugin that selects tests and records their results.

    Attributes:
        compiled: The folder in which children share compiled kernels.
        seconds: Duration of each test.
        passed: The tests that passed.
        failed: The first test that failed, or another error.
    """

    def __init__(self, selected: Mapping[str, float] | None = None) -> None:
        """Run the selected tests, given with the seconds that each takes; None for all tests."""
        self._selected = selected
        self.compiled = Path()
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.failed = ""

    @pytest.fixture(scope="session", autouse=True)
    def shared_compile_cache(self, compile_cache: None) -> None:
        """Use the kernels that other children have compiled."""
        os.environ["MEMLAB_CACHE"] = str(self.compiled)

    def pytest_sessionstart(self) -> None:
        """Select the Hypothesis profile again: the tests' configuration loads its own."""
        settings.load_profile(PROFILE)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort files by duration, and the tests of each file too."""
        times = self._selected
        if times is None:
            return
        items[:] = [item for item in items if item.nodeid in times]
        file_seconds: dict[Path, float] = defaultdict(float)
        for item in items:
            file_seconds[item.path] += times[item.nodeid]
        items.sort(key=lambda item: (file_seconds[item.path], item.path, times[item.nodeid]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set an alarm that ends the process if the test takes too long."""
        if self._selected is not None:
            signal.setitimer(signal.ITIMER_REAL, 10 + 5 * self._selected[item.nodeid])

    def pytest_sessionfinish(self) -> None:
        """Cancel the alarm."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that cannot be imported."""
        if report.failed:
            self.failed = self.failed or f"{report.nodeid}, when imported"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test's duration and result."""
        self.seconds[report.nodeid] += report.duration
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        if report.failed:
            self.passed.discard(report.nodeid)
            self.failed = self.failed or report.nodeid


class Planter:
    """A module finder that replaces the code of one module."""

    def __init__(self, path: Path, code: CodeType) -> None:
        """Replace the code of the module in a file."""
        self._path, self._code = path.resolve(), code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders give, with a loader of the replaced code."""
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in specs if spec), None)
        if spec and spec.has_location and Path(str(spec.origin)).resolve() == self._path:
            spec.loader = _CodeLoader(name, str(self._path), self._code)
        return spec


class _CodeLoader(SourceFileLoader):
    """Loads a file's module from other code."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code
