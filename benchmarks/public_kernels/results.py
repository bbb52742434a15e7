"""The results of the trials: figures with their goals, a table as CSV and as Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from benchmarks.public_kernels.trial import UNJUDGED, Trial
from benchmarks.report import Figure

_KERNELS = 100
_REPOSITORIES = 10
_RAN_AT_FIRST = 0.9
_CHECKED = 40


def figures(trials: Sequence[Trial]) -> list[Figure]:
    """The figures of a list of kernels, with their goals."""
    compared = [each for each in trials if each.verified]
    checked = [each for each in trials if each.check_result in ("clean", "findings")]
    at_first = sum(each.first_result == "ran" for each in trials)
    right = sum(each.verified.startswith("passed") for each in compared)
    judgements = [text for each in trials for text in each.judged.split("; ") if text]
    unjudged = sum(text == UNJUDGED for text in judgements)
    false = sum(text.startswith("false") for text in judgements)
    return [
        Figure("kernels", len(trials), "", least=_KERNELS),
        Figure("repositories", len({each.repository for each in trials}), "", least=_REPOSITORIES),
        Figure("ran at the first command", at_first, ""),
        Figure("  of all", at_first / max(1, len(trials)), "", least=_RAN_AT_FIRST),
        Figure("compared with a reference", len(compared), ""),
        Figure("  right", right, "", least=len(compared)),
        Figure("checked", len(checked), "", least=_CHECKED),
        Figure("findings", len(judgements), ""),
        Figure("  false", false, "", most=0),
        Figure("  not judged", unjudged, "", most=0),
    ]


def write_results(trials: Sequence[Trial], folder: Path) -> None:
    """Write `public-kernels.csv`, with everything, and `public-kernels.md`, which summarises it."""
    with (folder / "public-kernels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Trial)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, trials))
    (folder / "public-kernels.md").write_text(_page(trials), encoding="utf-8")


def _page(trials: Sequence[Trial]) -> str:
    """The summary: the figures, and a table of the kernels of each repository."""
    lines = [
        "# Kernels of public repositories",
        "",
        f"`python -m benchmarks.public_kernels`, emulated H200, {datetime.now(UTC):%Y-%m-%d}. The",
        "commands, messages and judgements are in `public-kernels.csv`.",
        "",
        "| figure | value |",
        "| --- | --- |",
        *(f"| {each.name.strip()} | {each.value:.4g} |" for each in figures(trials)),
    ]
    for repository, group in groupby(trials, attrgetter("repository")):
        lines += [
            "",
            f"## {repository}",
            "",
            "| kernel | first command | output | check |",
            "| --- | --- | --- | --- |",
            *map(_row, group),
        ]
    return "\n".join(lines) + "\n"


def _row(trial: Trial) -> str:
    """A kernel's row of the table."""
    first = trial.first_result
    if trial.second_result:
        first += f", then {trial.second_result}"
    if trial.why:
        first += f": {trial.why}"
    kernel = f"`{trial.kernel}`: {trial.about}"
    return f"| {kernel} | {first} | {trial.verified or 'no reference'} | {_checked(trial)} |"


def _checked(trial: Trial) -> str:
    """What check found, with the judgements."""
    pairs = zip(trial.findings.split("; "), trial.judged.split("; "), strict=True)
    return "; ".join(f"{found}: {judged}" for found, judged in pairs if found) or trial.check_result
