"""`memlab check KERNEL`: what compute-sanitizer finds, found without a GPU, and beside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memlab.cli import options
from memlab.cli.kernel_commands import EXIT_FINDING, kernel_app
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    note_time_limit,
    say,
)
from memlab.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.checking.findings import Tool
    from memlab.device.nvidia_tools.sanitizer import Pair, SanitizerReport
    from memlab.kernels.user.kernel import OwnKernel

ALL = "all"
"""What `--tool` takes besides the tools."""

FORMATS = {".json": "json"}
"""What a file's extension asks for."""

Beside = Literal["compute-sanitizer"]

Document = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write JSON to FILE instead of a report to stdout."
    ),
]


def _tool_names(incomplete: str) -> list[str]:
    from memlab.device.checking.findings import TOOLS

    return [each for each in (*TOOLS, ALL) if each.startswith(incomplete)]


def check_kernel(
    target: "str | OwnKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.Device = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="TOOL",
            help="memcheck, initcheck, racecheck or synccheck; may be repeated. [default: all]",
            autocompletion=_tool_names,
        ),
    ] = None,
    with_: Annotated[
        Beside | None,
        typer.Option("--with", help="Also run NVIDIA's own on a GPU, and show both."),
    ] = None,
    seed: options.Seed = 0,
    timeout: options.Timeout = None,
    memory_limit: options.MemoryLimit = None,
    as_json: options.Json = False,
    output: Document = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Check one kernel, print or write what was found, and leave with 1 if anything was."""
    tools = _tools(tool)
    chosen = chosen_format(as_json, False, output, FORMATS)
    if output is not None:
        check_output(output, force)

    from memlab import gpu, lab
    from memlab.cli.progress import progress_bar
    from memlab.device.nvidia_tools.sanitizer import SanitizerError, side_by_side

    beside: SanitizerReport | None = None
    pairs: tuple[Pair, ...] = ()
    with progress_bar(quiet) as progress:
        asked: dict[str, Any] = {"device": device, "seed": seed, "tools": tools}
        asked["progress"] = progress
        report = lab.check(
            target, parameters, **asked, timeout_s=timeout, memory_bytes=memory_limit
        )
        if with_ is not None:
            try:
                beside = gpu.compute_sanitizer(target, parameters, **asked, timeout_s=timeout)
                pairs = side_by_side(report.findings, beside.findings)
            except SanitizerError as error:
                say(f"no compute-sanitizer: {error}")
    note_time_limit(report.coverage, quiet)
    if chosen == "json":
        from memlab.roofline.documents.check import document

        deliver(json_text(document(report, beside, pairs)), output, force, quiet)
    else:
        from memlab.roofline.reports.check import check_report
        from memlab.roofline.reports.parts import console

        console().print(check_report(report, beside, pairs))
    if report.findings or report.verification.status == "failed" or (beside and beside.findings):
        raise typer.Exit(EXIT_FINDING)


def _tools(chosen: list[str] | None) -> "tuple[Tool, ...]":
    """The tools asked for, each once and in the order of reports.

    Raises:
        UsageError: There is no such tool.
    """
    from memlab.device.checking.findings import TOOLS

    for each in chosen or ():
        if each not in (*TOOLS, ALL):
            raise UsageError(f"there is no tool {each!r}: {nearest(each, (*TOOLS, ALL))}")
    if not chosen or ALL in chosen:
        return TOOLS
    return tuple(each for each in TOOLS if each in chosen)


check_app = kernel_app(
    check_kernel,
    "memlab check tiled",
    "Find what is wrong with a kernel's accesses and barriers; no GPU is needed.",
)
