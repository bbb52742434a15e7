"""NVIDIA's Compute Sanitizer on a GPU, if it is installed: its findings as memlab's records.

For each of its tools, `compute-sanitizer` starts the process that launches the kernel, and writes
text, which `sanitizer_output` reads. Its options: "Compute Sanitizer" user manual, in the pip
package nvidia-cuda-sanitizer-api (release 2026.3).
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
"""The program that starts the observed process, in the folder of compute-sanitizer; pip packages
before 13.4.92 lack it."""

TIMEOUT_S = 300.0
"""The limit of one tool, seconds: instrumented kernels run tens to thousands of times slower."""

_INSTALL_PATTERNS = (
    "usr/local/cuda*/bin/compute-sanitizer",
    "usr/local/cuda*/compute-sanitizer/compute-sanitizer",
    "opt/nvidia/hpc_sdk/*/*/cuda/*/compute-sanitizer/compute-sanitizer",
)
"""Paths of CUDA's installers, relative to the root."""

_MAX_PRINTED_RECORDS = 100_000
"""The most records that it prints, one per thread; it reports if there were more."""

_SUMMARY = re.compile(r"^\s*========= (?:ERROR|RACECHECK) SUMMARY: ", re.M)
"""The last line of a complete log."""

_ROUTINE_LINE = re.compile(r"COMPUTE-SANITIZER$| SUMMARY: ")

_PROCESS_ERROR = re.compile(r"process didn't|couldn't find exit|Target app|No attachable|Could not")
"""Errors that only report that the process ended before the launch, without a reason."""

_OPTIONS = {
    "--target-processes": "application-only",  # the compiler runs in a child process
    "--launch-timeout": "0",  # `run_tool` has a limit; by default it waits some seconds for CUDA
    "--print-limit": str(_MAX_PRINTED_RECORDS),
    "--show-backtrace": "device",
    "--demangle": "no",
    "--check-exit-code": "no",  # after a fault the process exits with an error
    "--report-api-errors": "no",  # after a fault the following calls fail
    "--padding": "4096",  # like the emulator: an access just outside an array hits no other one
    "--initcheck-address-space": "all",  # release 2025.3 checks only global memory
    "--racecheck-report": "analysis",
}
"""Options for all tools; each tool ignores those of the others."""


class SanitizerError(DeviceError):
    """Compute Sanitizer gives no verdict; memlab's check works without it."""


@dataclass(frozen=True)
class SanitizerReport:
    """The result of Compute Sanitizer for a launch.

    Attributes:
        version: Its release, such as `2026.3.0.0`.
        tools: The tools that gave a verdict.
        findings: The findings, in the order of `TOOLS`, then of lines.
        notes: Messages that are not findings about the kernel's code, one line each.
    """

    version: str
    tools: tuple[Tool, ...]
    findings: tuple[CheckFinding, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FindingPair:
    """The findings of memlab and of Compute Sanitizer for one mistake; one may be missing.

    Attributes:
        tool: The tool that looks for this kind of mistake.
        lines: The lines of the source, both of a race; 0 if the compiler gave none.
        memlab: memlab's finding.
        sanitizer: Compute Sanitizer's finding.
    """

    tool: Tool
    lines: tuple[int, ...]
    memlab: CheckFinding | None
    sanitizer: CheckFinding | None


def find_sanitizer() -> Path | None:
    """Find Compute Sanitizer: on the PATH, in its pip package, or else where CUDA installs it."""
    on_path = shutil.which("compute-sanitizer")
    if on_path is not None:
        return Path(on_path)
    try:
        packaged = [Path(str(file.locate())) for file in files(PACKAGE) or ()]
    except PackageNotFoundError:
        packaged = []
    candidates = [file.with_name("compute-sanitizer") for file in packaged if _is_launcher(file)]
    for pattern in _INSTALL_PATTERNS:
        candidates += sorted(Path("/").glob(pattern), reverse=True)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _is_launcher(file: Path) -> bool:
    """Whether a file of the package is the program that starts 64-bit processes."""
    return file.name == _LAUNCHER and file.parent.name != "x86"


def sanitizer_command(
    sanitizer: Path, usage: str, tool: Tool, log: Path, target_words: Iterable[str | Path]
) -> list[str]:
    """The command that checks one launch with one tool.

    Args:
        sanitizer: The executable.
        usage: The output of its `--help`, because older releases lack some options.
        tool: The tool.
        log: The file for its findings; the observed process uses stdout.
        target_words: The command that launches the kernel.
    """
    known = {name: value for name, value in _OPTIONS.items() if f"{name} " in usage}
    literal = str(log).replace("%", "%%")  # %p and %q are placeholders
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

    A tool without a verdict becomes a note: a kernel that faults stops all tools but memcheck.

    Args:
        launch: The launch.
        index: The GPU's number, from 0, as CUDA counts.
        seed: Seed of the random inputs.
        tools: The tools to run.
        timeout_s: The limit of one tool, seconds.
        progress: Called with the running tool.

    Raises:
        SanitizerError: It is not installed, or no tool gave a verdict; the message says why, and
            what to do.
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
            tool_findings, tool_notes = _run_sanitizer_tool(
                sanitizer, usage, tool, launch, index, seed, timeout_s
            )
        except SanitizerError as error:
            failed[tool] = error
            notes.append(f"{tool}: {error}")
        else:
            findings += tool_findings
            notes += tool_notes
    if failed and len(failed) == len(tools):
        raise failed[tools[0]]
    return SanitizerReport(
        version=version[1] if version else "",
        tools=tuple(tool for tool in tools if tool not in failed),
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
    """Run one tool and read its log.

    Returns:
        Its findings, and its messages that are not findings.

    Raises:
        SanitizerError: It gave no verdict.
    """
    with TemporaryDirectory(prefix="memlab-") as folder:
        log = Path(folder, "log")
        try:
            # Poisoned outputs would count as initialized.
            with launch_command(launch, index, seed, poison=False) as words:
                output = run_tool(sanitizer_command(sanitizer, usage, tool, log, words), timeout_s)
                completed = completion_file(words[-1]).exists()
        except subprocess.TimeoutExpired:
            raise SanitizerError(
                f"compute-sanitizer did not finish {tool} of {launch.kernel} within "
                f"{timeout_s:g} s: use smaller sizes"
            ) from None
        text = log.read_text(errors="replace") if log.exists() else ""
    findings, notes = parse_log(text, tool, launch)
    # The log also ends with `ERROR SUMMARY: 0 errors` if the launch crashed or never started, or if
    # the GPU is not supported.
    if not _SUMMARY.search(text) or (not findings and (sanitizer_errors(text) or not completed)):
        raise SanitizerError(_explain_no_verdict(text, output))
    return findings, notes


def _help_text(sanitizer: Path) -> str:
    """Run it with `--help`, which prints its release and its options.

    Raises:
        SanitizerError: It does not start.
    """
    try:
        return run_tool([str(sanitizer), "--help"], timeout_s=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SanitizerError(
            f"{sanitizer} does not start ({error}): reinstall {PACKAGE}"
        ) from error


def _explain_no_verdict(log: str, output: str) -> str:
    """Explain in one line why there is no verdict."""
    launch_errors = _launch_errors(output)
    tool_errors = [error for error in sanitizer_errors(log) if not _PROCESS_ERROR.match(error)]
    unsupported = [error for error in tool_errors if error.startswith("Device not supported")]
    if unsupported:
        return (
            f"compute-sanitizer gave no verdict ({unsupported[0]}): it refuses GPUs that its "
            "release does not know, and all GPUs in WSL or a sandboxed container"
        )
    if launch_errors and not tool_errors:
        return f"the launch failed ({launch_errors[-1]})"
    # After a message about a wrong option it prints its whole usage.
    messages = output.partition("Usage: compute-sanitizer")[0].splitlines()
    printed = [line.strip() for line in messages if line.strip()]
    if not printed and "couldn't find exit code" in log:
        return (
            "compute-sanitizer could not start the launch, perhaps because parts of it are "
            f"missing: {INSTALL_ADVICE}"
        )
    if "before first instrumented API call" in log:
        cause = printed[-1] if printed else "in a sandboxed container, or without a driver"
        return f"the launch ended before it used CUDA ({cause}): see 'memlab doctor'"
    lines = [line.strip() for line in map(strip_log_prefix, log.splitlines())]
    rest = [line for line in lines if line and not _ROUTINE_LINE.search(line)]
    causes = [
        *tool_errors,
        *printed[-1:],
        *sanitizer_errors(log),
        *rest[-1:],
        "the launch did not run to its end",
    ]
    return f"compute-sanitizer gave no verdict ({causes[0]}): see 'memlab doctor'"


def _launch_errors(output: str) -> list[str]:
    """The errors of memlab in the output of the observed process."""
    return re.findall(r"^memlab: error: (.*)$", output, re.M)


def match_findings(
    memlab: Iterable[CheckFinding], sanitizer: Iterable[CheckFinding]
) -> tuple[FindingPair, ...]:
    """Match two lists of findings by tool and line, in the order of tools and lines.

    Args:
        memlab: memlab's findings.
        sanitizer: Compute Sanitizer's findings.

    Returns:
        A pair for each tool and line of a finding; of several findings of one list with the same
        tool and line, the first is taken.
    """
    memlab_by_place, sanitizer_by_place = _by_place(memlab), _by_place(sanitizer)
    places = sorted(
        {*memlab_by_place, *sanitizer_by_place},
        key=lambda place: (TOOLS.index(place[0]), sorted(place[1])),
    )
    return tuple(
        FindingPair(
            tool=place[0],
            lines=tuple(sorted(place[1])),
            memlab=memlab_by_place.get(place),
            sanitizer=sanitizer_by_place.get(place),
        )
        for place in places
    )


def _by_place(
    findings: Iterable[CheckFinding],
) -> dict[tuple[Tool, frozenset[int]], CheckFinding]:
    """The first finding for each tool and lines."""
    by_place: dict[tuple[Tool, frozenset[int]], CheckFinding] = {}
    for finding in findings:
        by_place.setdefault((finding.tool, finding.lines), finding)
    return by_place
