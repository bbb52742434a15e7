"""Tests run in a forked child, which has loaded other people's packages and none of memlab's."""

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

from .targets import ROOT

MOST_BYTES = 12 << 30
"""Address space of a child: with a fault a program may well ask for all memory there is."""
HEAVY = (
    "hypothesis numpy numpy.testing pandas matplotlib.figure matplotlib.backends.backend_agg "
    "typer rich.console rich.table rich.progress jsonschema ml_dtypes elftools.elf.elffile "
    "cuda.bindings.nvrtc coverage sqlite3"
)
"""What takes long to import."""
OPTIONS = ("-q", "-m", "not gpu", "-o", "addopts=", "--strict-markers", "--tb=short")


def prepare() -> None:
    """Load what children share, and let Hypothesis draw the same cases every time."""
    os.chdir(ROOT)
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    for name in HEAVY.split():
        importlib.import_module(name)
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")


@dataclass(frozen=True)
class Ending:
    """How a child ended.

    Attributes:
        answer: What it gave; None where it did not come to that.
        printed: What it printed.
        late: Whether it, or one of its tests, had taken too long.
    """

    answer: str | None
    printed: str
    late: bool


def in_child(action: Callable[[Path], str], limit_s: float) -> Ending:
    """Call a function in a forked child.

    Args:
        action: Is given an empty folder, and returns the answer.
        limit_s: After so many seconds the child is ended, with all that it started.
    """
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    answer, printed = folder / "answer", folder / "printed"
    try:
        child = os.fork()
        if child == 0:
            _be_child(action, folder, answer, printed)
        watched = os.pidfd_open(child)
        try:
            ended, _, _ = select.select([watched], [], [], limit_s)
        finally:
            os.close(watched)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        return Ending(
            answer.read_text("utf-8") if answer.exists() else None,
            printed.read_text("utf-8", "replace") if printed.exists() else "",
            not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _be_child(action: Callable[[Path], str], folder: Path, answer: Path, printed: Path) -> NoReturn:
    try:
        os.setsid()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, hard))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(printed, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        given = action(folder)
        answer.with_suffix(".new").write_text(given, "utf-8")
        answer.with_suffix(".new").rename(answer)
    except BaseException:  # nothing may leave the child
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def run_tests(
    files: Sequence[str], folder: Path, compiled: Path, watcher: Watcher, *options: str
) -> None:
    """Run files of tests in this process, which is good for nothing else then.

    Args:
        files: Of tests.
        folder: Where the tests write.
        compiled: Where what they compile is kept.
        watcher: Chooses tests, and notes what becomes of them.
        options: Further options of pytest.
    """
    watcher.compiled = compiled
    without = [f"-pno:{plugin}" for plugin in ("cacheprovider", "xdist", "cov")]
    base = f"--basetemp={folder / 'tests'}"
    status = pytest.main([*OPTIONS, *without, base, *options, *files], [watcher])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        watcher.failed = watcher.failed or f"pytest ended with {status}"


class Watcher:
    """A plugin of pytest that chooses tests and notes what becomes of them.

    Attributes:
        compiled: Where what is compiled is kept from child to child.
        seconds: What each test took.
        passed: Those that passed.
        failed: The first that did not, or what else went wrong.
    """

    def __init__(self, chosen: Mapping[str, float] | None = None) -> None:
        """Watch all tests, or only those chosen, of which the seconds that each takes are known."""
        self._chosen = chosen
        self.compiled = Path()
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.failed = ""

    @pytest.fixture(scope="session", autouse=True)
    def compiled_before(self, compile_cache: None) -> None:
        """What other children compiled need not be compiled again."""
        os.environ["MEMLAB_CACHE"] = str(self.compiled)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put quick files first, and in each its quick tests."""
        times = self._chosen
        if times is None:
            return
        items[:] = [each for each in items if each.nodeid in times]
        of_files: dict[Path, float] = defaultdict(float)
        for each in items:
            of_files[each.path] += times[each.nodeid]
        items.sort(key=lambda each: (of_files[each.path], each.path, times[each.nodeid]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Let the alarm end a test that takes too long, and its process with it."""
        if self._chosen is not None:
            signal.setitimer(signal.ITIMER_REAL, 10 + 5 * self._chosen[item.nodeid])

    def pytest_sessionfinish(self) -> None:
        """No test takes time any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot even be imported."""
        if report.failed:
            self.failed = self.failed or f"{report.nodeid}, when imported"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test's time and its end."""
        self.seconds[report.nodeid] += report.duration
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        if report.failed:
            self.passed.discard(report.nodeid)
            self.failed = self.failed or report.nodeid


class Planter:
    """A finder of modules that gives one of them another code."""

    def __init__(self, path: Path, code: CodeType) -> None:
        """Give the module of a file this code."""
        self._path, self._code = path, code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Ask the other finders."""
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(name, path, target) for each in others)
        spec = next((each for each in found if each), None)
        if spec and spec.has_location and Path(str(spec.origin)) == self._path:
            spec.loader = _Planted(name, str(self._path), self._code)
        return spec


class _Planted(SourceFileLoader):
    """Loads a file's module from another code."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code
