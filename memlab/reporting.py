"""`memlab.report` and `memlab.frame`, and the HTML that notebooks show."""

from __future__ import annotations

import html as markup
from functools import singledispatch
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from memlab.device.checking.findings import CheckReport
from memlab.device.gpu.peaks.records import Peaks
from memlab.device.machine_code.listing import MachineListing
from memlab.device.properties import DeviceProperties
from memlab.device.tracing.records import Trace
from memlab.drawing import list_of_runs
from memlab.errors import UsageError
from memlab.lessons.lesson import Lesson
from memlab.results import (
    BaselineCheck,
    DoctorReport,
    Explanation,
    KernelList,
    KernelOccupancy,
    ReportPage,
    Roofline,
)
from memlab.roofline.analysis.analysis import Analysis
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.documents.frames import runs_frame
from memlab.roofline.glossary import GlossaryEntry
from memlab.roofline.reports import device as device_reports
from memlab.roofline.reports.analyze import analysis_report, listing_columns
from memlab.roofline.reports.check import check_report
from memlab.roofline.reports.comparison import comparison_report
from memlab.roofline.reports.doctor import doctor_report
from memlab.roofline.reports.glossary import glossary_list, glossary_pages
from memlab.roofline.reports.kernels import kernels_text
from memlab.roofline.reports.occupancy import occupancy_report
from memlab.roofline.reports.page.analysis import listing_page
from memlab.roofline.reports.parts import (
    REPORT_COLUMNS,
    rendered_html,
    rendered_text,
    report_columns,
    table_columns,
)
from memlab.roofline.reports.peaks import peaks_report
from memlab.roofline.reports.run import run_report
from memlab.roofline.reports.runs import runs_table
from memlab.roofline.reports.sass import SASS_COLUMNS, sass_report
from memlab.roofline.reports.sweep import sweep_report
from memlab.roofline.reports.trace import trace_report
from memlab.roofline.run import Run
from memlab.roofline.sweep.records import Sweep
from memlab.summaries import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas

__all__ = ["frame", "html", "one_line", "report"]

PAGE_HEIGHT_REM = 45
"""Height of the frame in which a notebook shows a page."""


def report(result: object, *, columns: int | None = None) -> str:
    """Write a result as the command line prints it, as plain text.

    Examples:
        print(memlab.report(memlab.run("tiled")))

    Args:
        result: The result of another function of memlab, or a list of runs.
        columns: Width of the text, in characters; None takes that of the terminal, as the command
            line does: 80 at most, for the listing of an analysis 130.

    Returns:
        The report; its lines end with newlines.

    Raises:
        UsageError: There is no report of such an object.
    """
    layout = _layout(result, columns)
    if layout is None:
        raise UsageError(
            f"there is no report of an object of type {type(result).__name__}: give a result of "
            "another function of memlab"
        )
    if isinstance(layout, str):
        return layout
    return rendered_text(layout, _columns(result, columns))


def frame(*runs: Run | Iterable[Run]) -> pandas.DataFrame:
    """Make a pandas frame of runs, one row per run.

    Examples:
        memlab.frame([memlab.run("tiled", tile=tile) for tile in (8, 16, 32)])

    Args:
        *runs: The runs, one by one or as a list.

    Returns:
        The frame. Figures are in base units with the unit in the column's name, such as
        `median_s`. Each parameter of a kernel has a column of its name, empty for other kernels.

    Raises:
        UsageError: An argument is not a run.
    """
    return runs_frame(list_of_runs(runs, "frame"))


def html(result: object) -> str | None:
    """Write the report of a result as a fragment of HTML; None where it has none."""
    if isinstance(result, Analysis):
        return _frame_of(listing_page(result), "memlab analysis")
    if isinstance(result, ReportPage):
        return _frame_of(result.html, "memlab report")
    layout = _layout(result, REPORT_COLUMNS)
    if layout is None:
        return None
    if isinstance(layout, str):
        layout = Text(layout.rstrip("\n"), no_wrap=True, overflow="ignore")
    return rendered_html(layout, REPORT_COLUMNS)


def _frame_of(page: str, name: str) -> str:
    """Frame a page: it has styles for the whole document, so it gets a document of its own."""
    return (
        f'<iframe srcdoc="{markup.escape(page)}" title="{name}" '
        f'style="width: 100%; height: {PAGE_HEIGHT_REM}rem; border: 0"></iframe>'
    )


def _columns(result: object, columns: int | None) -> int:
    if columns is not None:
        return columns
    if isinstance(result, Analysis):
        return listing_columns()
    if isinstance(result, MachineListing):
        return report_columns(SASS_COLUMNS)
    return table_columns() if isinstance(result, list | Roofline) else report_columns()


def _layout(result: object, columns: int | None) -> RenderableType | None:
    """Lay out a report; text is final as it is, and None stands for no report."""
    if isinstance(result, Roofline):
        return runs_table(result.runs, _columns(result, columns))
    if isinstance(result, list) and all(isinstance(run, Run) for run in result):
        return runs_table(result, _columns(result, columns))
    return _report_of(result)


@singledispatch
def _report_of(result: object) -> RenderableType | None:
    return None


_report_of.register(Run, run_report)
_report_of.register(Analysis, analysis_report)
_report_of.register(Comparison, comparison_report)
_report_of.register(CheckReport, check_report)
_report_of.register(Trace, trace_report)
_report_of.register(MachineListing, sass_report)
_report_of.register(Peaks, peaks_report)
_report_of.register(Sweep, sweep_report)


@_report_of.register
def _(check: BaselineCheck) -> RenderableType:
    return comparison_report(check.comparison)


@_report_of.register
def _(occupancy: KernelOccupancy) -> RenderableType:
    return occupancy_report(occupancy.properties, occupancy.subject)


@_report_of.register
def _(explanation: Explanation) -> RenderableType:
    if explanation.name is None:
        return glossary_list(explanation.entries)
    return glossary_pages(explanation.entries)


@_report_of.register
def _(lesson: Lesson) -> str:
    return lesson.text


@_report_of.register
def _(entry: GlossaryEntry) -> RenderableType:
    return glossary_pages([entry])


@_report_of.register
def _(kernels: KernelList) -> str:
    return kernels_text(kernels.catalog, kernels.user) + "\n"


@_report_of.register
def _(report: DoctorReport) -> RenderableType:
    return doctor_report(
        report.items, gpu_works=report.gpu_works, emulator_works=report.emulator_works
    )


@_report_of.register
def _(properties: DeviceProperties) -> str:
    # Properties do not hold the device's own index: it is the first that is no peer's.
    peers = {f"cuda:{index}" for index in range(len(properties.peer_access) + 1)}
    key = min(peers - set(properties.peer_access))
    # Only a driver knows where a GPU is.
    is_gpu = properties.sources.get("pci_bus_id", "").startswith("queried")
    first = () if is_gpu else (device_reports.datasheet_line(properties), "")
    lines = device_reports.device_query_lines({key: properties})
    return "\n".join((*first, *lines, "", *device_reports.memory_lab_lines(properties))) + "\n"
