"""The findings of a check in a terminal, in the form of a compiler's messages, 80 columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from memlab.device.checking.findings import TOOLS
from memlab.roofline.reports.parts import (
    TAB,
    bare_table,
    device_text,
    heading,
    kernel_text,
    stack_sections,
)
from memlab.roofline.units import compared_text, covered_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from memlab.device.checking.findings import CheckFinding, CheckReport, SourceLocation
    from memlab.device.nvidia_tools.sanitizer import FindingPair, SanitizerReport
    from memlab.kernels.launch import Dim3

MARGIN_COLUMNS = 7
"""Columns for a line's number and the bar after it, as compilers print them."""

FINDING_TITLES = {
    "RAW": "read-after-write hazard",
    "WAR": "write-after-read hazard",
    "WAW": "write-after-write hazard",
    "RAW or WAR": "read-write hazard",
}
"""Full names of races; other kinds of findings are shown as they are."""


def check_report(
    report: CheckReport, sanitizer: SanitizerReport | None = None, pairs: Sequence[FindingPair] = ()
) -> RenderableType:
    """Lay out the report of a check.

    Args:
        report: memlab's findings.
        sanitizer: Compute Sanitizer's findings of the same launch; None where it did not run.
        pairs: Both, matched; none without `sanitizer`.
    """
    parts = [_heading(report)]
    parts += [_finding(finding, report.source_name) for finding in report.findings]
    if report.verification.status == "failed":
        parts.append(_verification(report))
    theirs = [pair.sanitizer for pair in pairs if pair.memlab is None and pair.sanitizer]
    if sanitizer is not None:
        parts += [
            _finding(finding, report.source_name, "compute-sanitizer: ") for finding in theirs
        ]
        parts.append(_side_by_side(sanitizer, pairs))
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    parts.append(_summary(report, len(theirs)))
    return stack_sections(parts)


def _heading(report: CheckReport) -> RenderableType:
    coverage = report.coverage
    blocks = f"{covered_text(coverage)} checked"
    blocks += " in time" if coverage.timed_out else ""
    return heading(
        (kernel_text(report.kernel, report.parameters), device_text(report.device)),
        (", ".join(report.tools), blocks),
    )


def _finding(finding: CheckFinding, source_name: str, by: str = "") -> RenderableType:
    """Lay out a finding: file, line, tool and kind; the source line; the address and the thread."""
    at, other = finding.at, finding.other
    place = f"{source_name}:{at.line}: " if at.line else f"{source_name}: "
    kind = FINDING_TITLES.get(finding.kind, finding.kind)
    rows: list[RenderableType] = [
        _finding_heading(place, f"{by}{finding.tool}", kind),
        *_source_line(at),
        _detail_line(finding.message),
    ]
    where = ", by ".join(filter(None, (finding.element, _thread_text(at))))
    rows += [_detail_line(f"at {where}" if finding.element else where)] if where else []
    if other is not None and other != at:
        if other.line != at.line:
            rows += _source_line(other)
        prefix = _OTHER_PLACE_PREFIX.get(finding.kind, _OTHER_ACCESS_PREFIX.get(finding.tool, ""))
        rows += [_detail_line(f"{prefix}{_thread_text(other)}")] if _thread_text(other) else []
    if finding.count > 1 and at.thread is not None:
        what = "threads" if finding.tool == "synccheck" else "times"
        rows.append(_detail_line(f"{finding.count:,} {what} in all"))
    return Group(*rows)


_OTHER_ACCESS_PREFIX = {"racecheck": "against ", "synccheck": "without "}
"""The word that leads to the other thread of a finding."""
_OTHER_PLACE_PREFIX = {"missing wait": "the product is that of "}
"""The same for kinds of findings whose other place is no other thread's."""


def _finding_heading(place: str, tool: str, what: str) -> Text:
    return Text.assemble((place, "bold"), (f"{tool}: ", "bold red"), (what, "bold"))


def _source_line(place: SourceLocation) -> Iterator[RenderableType]:
    """Lay out the numbered source line, where there is one."""
    if place.text:
        table = Table.grid(Column(width=MARGIN_COLUMNS, justify="right"), Column(), padding=(0, 1))
        table.add_row(Text(f"{place.line} |", style="dim"), Text(place.text.expandtabs(TAB)))
        yield table


def _detail_line(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, MARGIN_COLUMNS + 1))


def _thread_text(place: SourceLocation) -> str:
    if place.thread is None:
        return ""
    block = "" if place.block is None else f" of block {_index(place.block)}"
    return f"thread {_index(place.thread)}{block}"


def _index(index: Dim3) -> str:
    return f"({index[0]},{index[1]},{index[2]})"


def _verification(report: CheckReport) -> RenderableType:
    checked = report.verification
    lines: list[RenderableType] = [
        _finding_heading(f"{report.source_name}: ", "verification", "failed")
    ]
    if checked.worst:
        lines.append(_detail_line(checked.worst))
    if checked.relative_error is not None and checked.tolerance is not None:
        error, allowed = f"{checked.relative_error:.1e}", f"{checked.tolerance:.1e}"
        lines.append(_detail_line(f"relative error {error}, tolerance {allowed}"))
    if checked.wrong:
        lines.append(_detail_line(compared_text(checked)))
    return Group(*lines)


def _side_by_side(sanitizer: SanitizerReport, pairs: Sequence[FindingPair]) -> RenderableType:
    name = f"compute-sanitizer {sanitizer.version}".strip()
    table = bare_table(
        Column(Text("Side by side" if pairs else "Neither finds anything", style="bold")),
        Column(Text("memlab", style="dim")),
        Column(Text(name, style="dim")),
        gap=2,
    )
    for pair in pairs:
        lines = ", ".join(str(line) if line else "?" for line in pair.lines)
        place = f"  {pair.tool}, line{'s' if len(pair.lines) > 1 else ''} {lines}"
        theirs = "-" if pair.tool in sanitizer.tools else "no verdict"
        table.add_row(
            Text(place, style="dim"),
            _finding_kind_text(pair.memlab),
            _finding_kind_text(pair.sanitizer, theirs),
        )
    notes = [Text(f"  {note}", style="dim") for note in sanitizer.notes]
    return Group(table, *notes)


def _finding_kind_text(finding: CheckFinding | None, missing: str = "-") -> Text:
    return Text(missing, style="dim") if finding is None else Text(finding.kind)


def _summary(report: CheckReport, theirs: int) -> RenderableType:
    """Count the findings; where there are none, tell how much was checked.

    Args:
        report: memlab's findings.
        theirs: The number of findings that Compute Sanitizer alone has.
    """
    by_tool = Counter(finding.tool for finding in report.findings)
    counts = [f"{by_tool[tool]} {tool}" for tool in TOOLS if by_tool[tool]]
    failed = report.verification.status == "failed"
    total = len(report.findings) + failed + theirs
    if total:
        counts += ["1 verification"] if failed else []
        counts += [f"{theirs} by compute-sanitizer alone"] if theirs else []
        plural = "" if total == 1 else "s"
        return Text.assemble((f"{total} finding{plural}", "bold red"), f": {', '.join(counts)}")
    coverage = report.coverage
    whole = coverage.blocks_emulated == coverage.blocks_total
    one = coverage.blocks_emulated == 1
    blocks = f"{coverage.blocks_emulated:,} block{'' if one else 's'}"
    covered = f"{'' if one else 'all '}{blocks}" if whole else f"a sample of {blocks}"
    checked = report.verification
    reason = checked.worst or "no reference"
    verified = "verified" if checked.status == "passed" else f"not verified: {reason}"
    if checked.status == "passed" and checked.unverified:
        verified += f", but not {checked.unverified}"
    return Text.assemble(("no findings", "bold green"), f" in {covered}; output {verified}")
