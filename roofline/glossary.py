"""What the terms, counters and kernels mean: the data behind `memlab explain`.

The terms are in `glossary.toml`. A kernel explains itself: its summary, its parameters and the
comment at the head of its `.cu`, which says what the step changes and what to expect.
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
    """What a term or a kernel is.

    Attributes:
        name: As memlab writes it.
        kind: The group it is listed in, `kernels` for a kernel.
        paragraphs: What it is, in sentences.
        unit: Of the figure; empty where it is none.
        formula: How it is computed.
        ncu: Nsight Compute's metrics for it.
        chapters: The notes that teach it, by title.
        source: Where a rule or a formula is from.
        aliases: Other names for it.
        see: Terms to read next.
        parameters: For a kernel, its options: name and meaning with default.
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
    """Give every term by its name, in the order of a lesson."""
    document = _document()
    return {name: _term_entry(name, table) for name, table in document["terms"].items()}


def kernel_entry(kernel: Kernel) -> GlossaryEntry:
    """Explain a kernel by what its own files say."""
    document = _document()
    table = document["kernels"].get(kernel.name, {})
    return GlossaryEntry(
        name=kernel.name,
        kind=KERNEL_KIND,
        paragraphs=(f"{kernel.summary}.", *head_comment(kernel.source)),
        chapters=_chapters(table),
        see=tuple(table.get("see", ())),
        parameters=tuple(
            (each.option, f"{each.help} [{each.range_label}; default: {each.default_label}]")
            for each in kernel.parameters
        ),
    )


def explainable_names() -> list[str]:
    """List what can be explained: every term and alias, every kernel."""
    aliases = (alias for entry in terms().values() for alias in entry.aliases)
    return [*terms(), *aliases, *CATALOG]


def find_entries(name: str) -> tuple[GlossaryEntry, ...]:
    """Find what a name means.

    Args:
        name: A term, one of its aliases or a kernel; case, dashes and underscores do not matter.

    Returns:
        One entry; two where a kernel and a term have the same name.

    Raises:
        UsageError: There is none; the message gives the nearest names.
    """
    wanted = _normalized_name(name)
    kernels = [
        kernel_entry(each) for each in CATALOG.values() if _normalized_name(each.name) == wanted
    ]
    found = [
        entry
        for entry in terms().values()
        if wanted in {_normalized_name(each) for each in (entry.name, *entry.aliases, *entry.ncu)}
    ]
    # A name of its own goes before an alias or a metric that several entries share.
    exact = [entry for entry in found if _normalized_name(entry.name) == wanted]
    if not kernels and not found:
        raise UsageError(f"nothing is known of {name!r}: {_nearest_names_text(wanted)}")
    return (*kernels, *(exact or found)[:1])


def head_comment(source: str) -> tuple[str, ...]:
    """Read the comment at the head of a `.cu` file.

    Returns:
        Its paragraphs, a blank comment line between two of them; lines are joined.
    """
    lines: list[str] = []
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    paragraphs = "\n".join(lines).split("\n\n")
    return tuple(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())


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
    folded = {_normalized_name(each): each for each in reversed(explainable_names())}
    close = suggest_nearest(wanted, folded)
    if close.startswith("known"):
        return "'memlab explain' alone lists what is"
    return re.sub(r"'([^']*)'", lambda match: repr(folded[match[1]]), close)


def _normalized_name(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", name.lower().strip(" _-.")))


@cache
def _document() -> dict[str, Any]:
    file = resources.files(__package__).joinpath("glossary.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
