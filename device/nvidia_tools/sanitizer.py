"""NVIDIA's Compute Sanitizer on a GPU, where it is installed: its findings in memlab's records.

`compute-sanitizer` runs a process of its own around the one that launches the kernel, once for
each tool, and writes text, which `sanitizer_text` reads. Its options: "Compute Sanitizer" user
manual, which comes with the pip package nvidia-cuda-sanitizer-api (release 2026.3).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from tempfile import TemporaryDirectory

from memlab.device.checking.findings import TOOLS, CheckFinding, Tool
from memlab.device.measurement import Progress
from memlab.device.nvidia_tools.launch_request import completion_file, launch_command, run_tool
from memlab.device.nvidia_tools.sanitizer_output import (
    parse_log,
    sanitizer_errors,
    strip_log_prefix,
)
from memlab.errors import DeviceError
from memlab.kernels.launch import Launch

PACKAGE = "nvidia-cuda-sanitizer-api"
INSTALL_ADVICE = "install it with pip install 'memlab[sanitizer]', or add its folder to PATH"

_LAUNCHER = "TreeLauncherSubreaper"
"""What starts the launch. It lies beside the program; no pip package before 13.4.92 has it."""

TIMEOUT_S = 300.0
"""Instrumented kernels run tens to thousands of times slower."""

_INSTALL_PATTERNS = (
    "usr/local/cuda*/bin/compute-sanitizer",
    "usr/local/cuda*/compute-sanitizer/compute-sanitizer",
    "opt/nvidia/hpc_sdk/*/*/cuda/*/compute-sanitizer/compute-sanitizer",
)
"""Where CUDA's installers put it, under the root."""

_MAX_PRINTED_RECORDS = 100_000
"""Records, one a thread, that it prints at most; it says when there were more."""

_SUMMARY = re.compile(r"^\s*========= (?:ERROR|RACECHECK) SUMMARY: ", re.M)
"""The last line of a log that is whole."""

_ROUTINE_LINE = re.compile(r"COMPUTE-SANITIZER$| SUMMARY: ")

_PROCESS_ERROR = re.compile(r"process didn't|couldn't find exit|Target app|No attachable|Could not")
"""Errors that only say that the launch ended or was not reached, not why."""

_OPTIONS = {
    "--target-processes": "application-only",  # the compiler runs in a child of the launch
    "--launch-timeout": "0",  # `watch` ends it; by itself it waits some seconds for CUDA's start
    "--print-limit": str(_MAX_PRINTED_RECORDS),
    "--show-backtrace": "device",
    "--demangle": "no",
    "--check-exit-code": "no",  # a kernel that faulted ends the process with an error
    "--report-api-errors": "no",  # ... and the calls after it
    "--padding": "4096",  # as the emulator's guards, so that a stray is in no other array
    "--initcheck-address-space": "all",  # release 2025.3 has global memory alone
    "--racecheck-report": "analysis",
}
"""Options, all given to every tool: it passes over those of another."""


class SanitizerError(DeviceError):
    """Compute Sanitizer says nothing here; memlab's own check works without it."""


@dataclass(frozen=True)
class SanitizerReport:
    """What Compute Sanitizer said of a launch.

    Attributes:
        version: Its release, such as `2026.3.0.0`.
        tools: Those that gave a verdict.
        findings: In the order of `TOOLS`, then of lines.
        notes: Messages that are no finding about the kernel's code, one line each.
    """

    version: str
    tools: tuple[Tool, ...]
    findings: tuple[CheckFinding, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FindingPair:
    """One mistake as memlab and Compute Sanitizer have it; one of them may be missing.

    Attributes:
        tool: Whose kind of mistake it is.
        lines: Where; of a race both lines, 0 where the compiler gave none.
        memlab: What memlab found there.
        sanitizer: What Compute Sanitizer found there.
    """

    tool: Tool
    lines: tuple[int, ...]
    memlab: CheckFinding | None
    sanitizer: CheckFinding | None


def find_sanitizer() -> Path | None:
    """Find Compute Sanitizer: on the PATH, as a pip package, else where installers put it."""
    on_path = shutil.which("compute-sanitizer")
    if on_path is not None:
        return Path(on_path)
    try:
        packaged = [each.locate() for each in files(PACKAGE) or ()]
    except PackageNotFoundError:
        packaged = []
    places = [Path(str(each)) for each in packaged]
    found = [each.with_name("compute-sanitizer") for each in places if _is_launcher(each)]
    found += [
        each for place in _INSTALL_PATTERNS for each in sorted(Path("/").glob(place), reverse=True)
    ]
    return next((each for each in found if each.is_file()), None)


def _is_launcher(file: Path) -> bool:
    """Whether a file of the package is what starts a launch of 64 bits."""
    return file.name == _LAUNCHER and file.parent.name != "x86"


def sanitizer_command(
    sanitizer: Path, usage: str, tool: Tool, log: Path, target_words: Iterable[str | Path]
) -> list[str]:
    """Give the command that checks one launch with one tool.

    Args:
        sanitizer: The executable.
        usage: What it prints with `--help`: older releases lack options.
        tool: What to check.
        log: Where it writes what it finds; the process that it watches has stdout to itself.
        target_words: The command that launches the kernel.
    """
    known = {name: value for name, value in _OPTIONS.items() if f"{name} " in usage}
    literal = str(log).replace("%", "%%")  # %p and %q mean something there
    return [
        *(str(sanitizer), "--tool", tool, "--log-file", literal),
        *(word for option in known.items() for word in option),
        *map(str, target_words),
    ]


def run_sanitizer(
    launch: Launch,
    *,
    index: int = 0,
    seed: int = 0,
    tools: Sequence[Tool] = TOOLS,
    timeout_s: float = TIMEOUT_S,
    progress: Progress | None = None,
) -> SanitizerReport:
    """Run a launch on a GPU under Compute Sanitizer, once for each tool.

    A tool that gives no verdict becomes a note: a kernel that faults stops all but memcheck.

    Args:
        launch: What to run.
        index: Which GPU, as CUDA counts them.
        seed: Of the random inputs.
        tools: What to check.
        timeout_s: When to give up a tool, seconds.
        progress: Told which tool is running.

    Raises:
        SanitizerError: It is not installed, or no tool gave a verdict; the message says why
            and what to do.
    """
    sanitizer = find_sanitizer()
    if sanitizer is None:
        raise SanitizerError(
            f"compute-sanitizer is not installed, or not on the PATH: {INSTALL_ADVICE}"
        )
    usage = _help_text(sanitizer)
    version = re.search(r"^Version (\d[\d.]*)", usage, re.M)
    findings: list[CheckFinding] = []
    notes: list[str] = []
    failed: dict[Tool, SanitizerError] = {}
    for tool in tools:
        if progress is not None:
            progress(f"{tool} of compute-sanitizer", None)
        try:
            found, said = _run_sanitizer_tool(
                sanitizer, usage, tool, launch, index, seed, timeout_s
            )
        except SanitizerError as error:
            failed[tool] = error
            said = [f"{tool}: {error}"]
        else:
            findings += found
        notes += said
    if failed and len(failed) == len(tools):
        raise failed[tools[0]]
    return SanitizerReport(
        version=version[1] if version else "",
        tools=tuple(each for each in tools if each not in failed),
        findings=tuple(findings),
        notes=tuple(dict.fromkeys(notes)),
    )


def _run_sanitizer_tool(
    sanitizer: Path,
    usage: str,
    tool: Tool,
    launch: Launch,
    index: int,
    seed: int,
    timeout_s: float,
) -> tuple[list[CheckFinding], list[str]]:
    """Run one tool, and read what it wrote.

    Raises:
        SanitizerError: It gave no verdict.
    """
    with TemporaryDirectory(prefix="memlab-") as folder:
        log = Path(folder, "log")
        try:
            # Poisoned outputs would count as initialised.
            with launch_command(launch, index, seed, poison=False) as words:
                said = run_tool(sanitizer_command(sanitizer, usage, tool, log, words), timeout_s)
                ended = completion_file(words[-1]).exists()
        except subprocess.TimeoutExpired:
            raise SanitizerError(
                f"compute-sanitizer did not finish {tool} of {launch.kernel} within "
                f"{timeout_s:g} s: use smaller sizes"
            ) from None
        text = log.read_text(errors="replace") if log.exists() else ""
    found, notes = parse_log(text, tool, launch)
    # `ERROR SUMMARY: 0 errors` stands below a launch that crashed or never started, too, and below
    # one on a GPU that it does not support.
    if not _SUMMARY.search(text) or (not found and (sanitizer_errors(text) or not ended)):
        raise SanitizerError(_explain_no_verdict(text, said))
    return found, notes


def _help_text(sanitizer: Path) -> str:
    """Ask which release it is and what options it has.

    Raises:
        SanitizerError: It does not start.
    """
    try:
        return run_tool([str(sanitizer), "--help"], timeout_s=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SanitizerError(
            f"{sanitizer} does not start ({error}): reinstall {PACKAGE}"
        ) from error


def _explain_no_verdict(log: str, said: str) -> str:
    """Say in one line why there is no verdict."""
    failures, its_own = (
        _launch_errors(said),
        [each for each in sanitizer_errors(log) if not _PROCESS_ERROR.match(each)],
    )
    unsupported = [each for each in its_own if each.startswith("Device not supported")]
    if unsupported:
        return (
            f"compute-sanitizer gave no verdict ({unsupported[0]}): it refuses GPUs that its "
            "release does not know, and any in WSL or a sandboxed container"
        )
    if failures and not its_own:
        return f"the launch failed ({failures[-1]})"
    # What it says of a wrong option ends with all that it knows.
    words = said.partition("Usage: compute-sanitizer")[0].splitlines()
    own = [line.strip() for line in words if line.strip()]
    if not own and "couldn't find exit code" in log:
        return (
            "compute-sanitizer could not start the launch, as where parts of it are missing: "
            f"{INSTALL_ADVICE}"
        )
    if "before first instrumented API call" in log:
        cause = own[-1] if own else "as in a sandboxed container, or where the driver is missing"
        return f"the launch ended before it used CUDA ({cause}): see 'memlab doctor'"
    lines = [line.strip() for line in map(strip_log_prefix, log.splitlines())]
    rest = [line for line in lines if line and not _ROUTINE_LINE.search(line)]
    causes = [
        *its_own,
        *own[-1:],
        *sanitizer_errors(log),
        *rest[-1:],
        "the launch did not run to its end",
    ]
    return f"compute-sanitizer gave no verdict ({causes[0]}): see 'memlab doctor'"


def _launch_errors(said: str) -> list[str]:
    """Why the launch failed, in memlab's own words; empty where it did not."""
    return re.findall(r"^memlab: error: (.*)$", said, re.M)


# --- Beside memlab's ---------------------------------------------------------------------------


def match_findings(
    ours: Iterable[CheckFinding], theirs: Iterable[CheckFinding]
) -> tuple[FindingPair, ...]:
    """Match two lists of findings by tool and line, in the order of tools and lines.

    Args:
        ours: What memlab found.
        theirs: What Compute Sanitizer found.

    Returns:
        A pair for each tool and line that either of them names; of several findings at one place
        the first stands for all.
    """

    def by_place(
        findings: Iterable[CheckFinding],
    ) -> dict[tuple[Tool, frozenset[int]], CheckFinding]:
        placed: dict[tuple[Tool, frozenset[int]], CheckFinding] = {}
        for each in findings:
            placed.setdefault((each.tool, each.lines), each)
        return placed

    mine, its = by_place(ours), by_place(theirs)
    places = sorted({*mine, *its}, key=lambda each: (TOOLS.index(each[0]), sorted(each[1])))
    return tuple(
        FindingPair(tool, tuple(sorted(lines)), mine.get((tool, lines)), its.get((tool, lines)))
        for tool, lines in places
    )
