"""The meaning of terms, counters and kernels: the data behind `memlab explain`.

The terms are in `glossary.toml`. A kernel's text comes from its own files: its summary, its
parameters and the comment at the head of its `.cu`, which says what it changes and what to expect.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from memlab.device.nvidia_tools.ncu import COUNTER_METRICS
from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.catalog import CATALOG
from memlab.presentation import Presentable

if TYPE_CHECKING:
    from memlab.kernels.kernel import Kernel

KERNEL_KIND = "kernels"


@dataclass(frozen=True, repr=False)
class GlossaryEntry(Presentable):
    """The explanation of a term or a kernel; optional texts are empty where there are none.

    Attributes:
        name: The term as memlab writes it, or the kernel's name.
        kind: The group of the listing; `kernels` for a kernel.
        paragraphs: The explanation; each item of a list is a line that begins with `- `.
        unit: The figure's unit.
        formula: The figure's formula.
        ncu: Nsight Compute's metrics for the figure.
        chapters: The titles of notes that teach the term.
        source: The publication of a rule or a formula.
        aliases: Other names of the term.
        see: Terms to read next.
        parameters: A kernel's options: name, and meaning with default.
    """

    name: str
    kind: str
    paragraphs: tuple[str, ...]
    unit: str = ""
    formula: str = ""
    ncu: tuple[str, ...] = ()
    chapters: tuple[str, ...] = ()
    source: str = ""
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()


@cache
def terms() -> dict[str, GlossaryEntry]:
    """Give every term by its name, in the order of the lessons."""
    document = _document()
    return {name: _term_entry(name, table) for name, table in document["terms"].items()}


def kernel_entry(kernel: Kernel) -> GlossaryEntry:
    """Explain a kernel from its own files."""
    document = _document()
    table = document["kernels"].get(kernel.name, {})
    return GlossaryEntry(
        name=kernel.name,
        kind=KERNEL_KIND,
        paragraphs=(f"{kernel.summary}.", *head_comment(kernel.source)),
        chapters=_chapters(table),
        see=tuple(table.get("see", ())),
        parameters=tuple(
            (
                parameter.option,
                f"{parameter.help} [{parameter.range_label}; default: {parameter.default_label}]",
            )
            for parameter in kernel.parameters
        ),
    )


def explainable_names() -> list[str]:
    """List all names with an explanation: terms, their aliases, and kernels."""
    aliases = (alias for entry in terms().values() for alias in entry.aliases)
    return [*terms(), *aliases, *CATALOG]


def find_entries(name: str) -> tuple[GlossaryEntry, ...]:
    """Find the explanation of a name.

    Args:
        name: A term, one of its aliases or a kernel; case, dashes and underscores do not matter.

    Returns:
        One entry; two where a kernel and a term have the same name.

    Raises:
        UsageError: The name is unknown; the message gives the nearest names.
    """
    wanted = _normalized_name(name)
    kernels = [
        kernel_entry(kernel)
        for kernel in CATALOG.values()
        if _normalized_name(kernel.name) == wanted
    ]
    entries = [
        entry
        for entry in terms().values()
        if wanted in map(_normalized_name, (entry.name, *entry.aliases, *entry.ncu))
    ]
    # A term's name precedes an alias or a metric that several entries share.
    exact = [entry for entry in entries if _normalized_name(entry.name) == wanted]
    if not kernels and not entries:
        raise UsageError(f"no term or kernel is called {name!r}: {_nearest_names_text(wanted)}")
    return (*kernels, *(exact or entries)[:1])


def head_comment(source: str) -> tuple[str, ...]:
    """Read the comment at the head of a `.cu` file.

    Returns:
        The comment's paragraphs, with their lines joined; a blank comment line ends a paragraph,
        and an item of a list, after `- `, begins a line of its own.
    """
    lines: list[str] = []
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    paragraphs = "\n".join(lines).split("\n\n")
    return tuple(
        re.sub(r"\n(?!- )", " ", paragraph.strip()) for paragraph in paragraphs if paragraph.strip()
    )


def _term_entry(name: str, table: dict[str, Any]) -> GlossaryEntry:
    return GlossaryEntry(
        name=name,
        kind=table["kind"],
        paragraphs=(" ".join(table["text"].split()),),
        unit=table.get("unit", ""),
        formula=table.get("formula", ""),
        ncu=(*COUNTER_METRICS.get(name, ()), *table.get("ncu", ())),
        chapters=_chapters(table),
        source=table.get("source", ""),
        aliases=tuple(table.get("aliases", ())),
        see=tuple(table.get("see", ())),
    )


def _chapters(table: dict[str, Any]) -> tuple[str, ...]:
    titles = _document()["chapters"]
    return tuple(titles[key] for key in table.get("chapters", ()))


def _nearest_names_text(wanted: str) -> str:
    folded = {_normalized_name(known): known for known in reversed(explainable_names())}
    close = suggest_nearest(wanted, folded)
    if close.startswith("known"):
        return "'memlab explain' lists all names"
    return re.sub(r"'([^']*)'", lambda match: repr(folded[match[1]]), close)


def _normalized_name(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", name.lower().strip(" _-.")))


@cache
def _document() -> dict[str, Any]:
    file = resources.files(__package__).joinpath("glossary.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
