"""The machine code as an HTML table: each instruction with its executions, its PTX and its line."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from memlab.device.properties import architecture_name
from memlab.roofline.reports.page.markup import document, escape
from memlab.roofline.units import covered_text, parameters_text, si_text
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from memlab.device.machine_code.listing import ListedInstruction, MachineListing

STYLES = ("base.css", "report.css")


def machine_code_page(listing: MachineListing) -> str:
    """Write the machine code and its source as an HTML document without scripts."""
    parameters = parameters_text(listing.parameters)
    counters = listing.counters
    shares = ", ".join(
        f"{pipe} {100 * count / max(counters.warp_instructions, 1):.0f}%"
        for pipe, count in counters.by_pipe.items()
    )
    facts = (
        f"{listing.device.name}, {architecture_name(listing.device.compute_capability)}",
        f"{covered_text(listing.coverage)} emulated",
        f"{si_text(counters.warp_instructions, '')} warp instructions: {shares}",
    )
    lines = {step.source_line for step in listing.instructions} - {0}
    source = "".join(
        f'<tr id="source-L{number}"{"" if number in lines else " class=cold"}>'
        f'<td class="number">{number}</td><td class="code">{escape(text)}</td></tr>'
        for number, text in enumerate(listing.source, 1)
    )
    body = (
        f"<header><h1>{escape(listing.kernel)}<span>{escape(parameters)}</span></h1>"
        f"<p>{escape(' · '.join(facts))}</p></header>\n<main>\n"
        f'<h2>Source</h2><div class="listing"><table><thead><tr><td></td>'
        f'<th scope="col">{escape(listing.source_name)}</th></tr></thead>'
        f"<tbody>{source}</tbody></table></div>\n"
        f"{machine_code_table(listing, 'source', lines, is_open=True)}\n</main>"
    )
    return document(f"{listing.kernel}, {parameters}: machine code: memlab", body, STYLES)


def machine_code_table(
    listing: MachineListing, anchor: str = "", lines: Collection[int] = (), *, is_open: bool = False
) -> str:
    """Write the machine code by basic block, which can be folded.

    Args:
        listing: The machine code.
        anchor: The lines of the source have the ids `ANCHOR-LNUMBER`.
        lines: The lines that have one, to which the instructions link.
        is_open: Whether it is unfolded at first.
    """
    body = "\n".join(_rows(listing, anchor, lines))
    count = len(listing.instructions)
    head = "".join(
        f'<th scope="col" title="{escape(explanation)}">{escape(name)}</th>'
        for name, explanation in (
            ("machine code", "SASS, as nvdisasm prints it"),
            ("PTX", "the instruction that it comes from"),
            ("line", "the line of the source"),
            ("warps", "executions by warps of the whole grid"),
            ("pipe", "the pipe that executes it"),
            ("stall", "clocks until the warp may issue its next instruction"),
        )
    )
    title = f"Machine code: {count} {plural(count, 'instruction')}"
    return (
        f'<details class="sass"{" open" if is_open else ""}><summary>{title}</summary>'
        f'<div class="listing"><table><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div></details>"
    )


def _rows(listing: MachineListing, anchor: str, lines: Collection[int]) -> Iterator[str]:
    most = max((step.warps for step in listing.instructions), default=0) or 1
    for _, group in groupby(listing.instructions, lambda step: step.block):
        steps = list(group)
        loop = " · loop" if steps[-1].target == steps[0].address else ""
        idle = "" if any(step.warps for step in steps) else " · never executed"
        yield (
            '<tr class="block"><td class="number"></td>'
            f'<th scope="rowgroup" colspan="6">{steps[0].address:04x}{loop}{idle}</th></tr>'
        )
        before = 0
        for step in steps:
            yield _row(listing, step, before, most, anchor, lines)
            before = step.ptx_line


def _row(
    listing: MachineListing,
    step: ListedInstruction,
    before: int,
    most: int,
    anchor: str,
    lines: Collection[int],
) -> str:
    ptx = " ".join(listing.ptx_text(step.ptx_line).split()) if step.ptx_line != before else ""
    line = str(step.source_line or "")
    if step.source_line in lines and anchor:
        line = f'<a href="#{anchor}-L{line}">{line}</a>'
    share = step.warps / most
    look = "cold" if not step.warps else f"h{1 + (share > 0.25) + (share > 0.75)}"
    return (
        f'<tr class="{look}"><td class="number">{step.address:04x}</td>'
        f'<td class="code">{escape(step.text)}</td><td class="code ptx">{escape(ptx)}</td>'
        f'<td data-name="line">{line}</td>'
        f'<td data-name="warps">{si_text(step.warps, "").replace(" ", "") if step.warps else ""}'
        f'</td><td data-name="pipe">{escape(step.pipe)}</td>'
        f'<td data-name="stall">{"" if step.stall is None else step.stall}</td></tr>'
    )
