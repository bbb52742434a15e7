"""`memlab check KERNEL`: compute-sanitizer's checks without a GPU, and compared with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memlab.cli import options
from memlab.cli.kernel_commands import EXIT_FINDING, kernel_app
from memlab.cli.output import (
    check_output,
    chosen_format,
    deliver,
    json_text,
    note_time_limit,
    print_message,
)
from memlab.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.checking.findings import Tool
    from memlab.device.nvidia_tools.sanitizer import FindingPair, SanitizerReport
    from memlab.kernels.user.kernel import UserKernel

ALL_TOOLS = "all"
"""The value of `--tool` that stands for all tools."""

CHECK_FORMATS = {".json": "json"}
"""Formats by a file's extension."""

ReferenceTool = Literal["compute-sanitizer"]

CheckOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write JSON to FILE instead of a report to stdout."
    ),
]


def _complete_tool_names(incomplete: str) -> list[str]:
    from memlab.device.checking.findings import TOOLS

    return [tool for tool in (*TOOLS, ALL_TOOLS) if tool.startswith(incomplete)]


def check_kernel(
    target: "str | UserKernel",
    parameters: "Mapping[str, int | str | None]",
    *,
    device: options.DeviceOption = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="TOOL",
            help="memcheck, initcheck, racecheck or synccheck; may be repeated. [default: all]",
            autocompletion=_complete_tool_names,
        ),
    ] = None,
    with_: Annotated[
        ReferenceTool | None,
        typer.Option("--with", help="Also run NVIDIA's tools on a GPU, and show both."),
    ] = None,
    seed: options.SeedOption = 0,
    timeout: options.TimeoutOption = None,
    memory_limit: options.MemoryLimitOption = None,
    as_json: options.JsonOption = False,
    output: CheckOutputOption = None,
    overwrite: options.OverwriteOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Check one kernel, print or write the findings, and exit with 1 if there are any."""
    tools = _selected_tools(tool)
    chosen = chosen_format(as_json, False, output, CHECK_FORMATS)
    if output is not None:
        check_output(output, overwrite)

    from memlab.cli.progress import progress_bar
    from memlab.device.nvidia_tools.sanitizer import SanitizerError, match_findings
    from memlab.hardware import sanitizer_report
    from memlab.inspection import check_prepared
    from memlab.launching import prepare

    theirs: SanitizerReport | None = None
    pairs: tuple[FindingPair, ...] = ()
    with progress_bar(quiet) as progress:
        prepared = prepare(
            target,
            parameters,
            device=device,
            seed=seed,
            timeout_s=timeout,
            memory_bytes=memory_limit,
            progress=progress,
        )
        report = check_prepared(prepared, tools)
        if with_ is not None:
            try:
                theirs = sanitizer_report(prepared, tools, timeout)
                pairs = match_findings(report.findings, theirs.findings)
            except SanitizerError as error:
                print_message(f"no compute-sanitizer: {error}")
    note_time_limit(report.coverage, quiet)
    if chosen == "json":
        from memlab.roofline.documents.check import check_document

        deliver(json_text(check_document(report, theirs, pairs)), output, overwrite, quiet)
    else:
        from memlab.roofline.reports.check import check_report
        from memlab.roofline.reports.parts import console

        console().print(check_report(report, theirs, pairs))
    if report.findings or report.verification.status == "failed" or (theirs and theirs.findings):
        raise typer.Exit(EXIT_FINDING)


def _selected_tools(chosen: list[str] | None) -> "tuple[Tool, ...]":
    """Return the chosen tools, each once and in the order of reports.

    Raises:
        UsageError: There is no such tool.
    """
    from memlab.device.checking.findings import TOOLS

    for tool in chosen or ():
        if tool not in (*TOOLS, ALL_TOOLS):
            raise UsageError(
                f"there is no tool {tool!r}: {suggest_nearest(tool, (*TOOLS, ALL_TOOLS))}"
            )
    if not chosen or ALL_TOOLS in chosen:
        return TOOLS
    return tuple(tool for tool in TOOLS if tool in chosen)


check_app = kernel_app(
    check_kernel,
    "memlab check tiled",
    "Find wrong accesses, races and barriers in a kernel; no GPU is needed.",
)
