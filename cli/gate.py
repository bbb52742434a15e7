"""The gate of `compare`, `baseline` and `run`: its options, its lines on stderr, its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlab.cli.kernel_commands import EXIT_FINDING
from memlab.cli.output import check_output, json_text, print_message, write_output
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab.roofline.comparison.records import Comparison, ConditionResult

FailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with 1 if it holds: a name, an operator and a limit, such as 'time>+3%' or "
        "'global_load_sectors>0%' (changes), or 'fraction_of_roof<80%' (B's value). Names are "
        "columns of 'memlab run --csv'. Repeat it for more.",
    ),
]
OwnFailIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with 1 if it holds, such as 'local_load_sectors>0' or 'fraction_of_roof<80%'; "
        "a name is a column of --csv. Repeat it for more.",
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the judged conditions as JUnit XML."),
]
SarifOption = Annotated[
    Path | None,
    typer.Option("--sarif", metavar="FILE", help="Write the failed conditions as SARIF 2.1.0."),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Overwrite files that exist.")]
"""Without `--force`, which compares what should not be compared."""
MarkdownOption = Annotated[
    bool, typer.Option("--markdown", help="Print Markdown, for a comment on a pull request.")
]
ThresholdOption = Annotated[
    str,
    typer.Option(
        "--threshold",
        metavar="SHARE",
        help="Times that differ by less count as equal: 1% or 0.01.",
    ),
]
ComparisonOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to FILE instead of stdout: .html, .json, .csv or .md.",
    ),
]
DEFAULT_THRESHOLD_TEXT = "1%"


def parse_threshold(text: str) -> float:
    """Read a share: `1%` or `0.01`.

    Raises:
        UsageError: It is no share from 0 to below 1.
    """
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise UsageError(f"threshold must be from 0% to below 100%, got {text!r}: use 1% or 0.01")
    return share


def check_gate_files(junit: Path | None, sarif: Path | None, overwrite: bool) -> None:
    """Refuse files that could not be written, before the work that fills them."""
    for path, option in ((junit, "--junit"), (sarif, "--sarif")):
        if path is not None:
            check_output(path, overwrite, option)


def write_gate_files(
    comparison: Comparison, junit: Path | None, sarif: Path | None, overwrite: bool, quiet: bool
) -> None:
    """Write the judged conditions for other tools.

    Raises:
        UsageError: A file cannot be written.
    """
    from memlab.roofline.documents.gates import junit_xml, sarif_document

    if junit is not None:
        write_output(junit, junit_xml(comparison), overwrite, "--junit")
    if sarif is not None:
        write_output(sarif, json_text(sarif_document(comparison)), overwrite, "--sarif")
    for path in (junit, sarif):
        if path is not None and not quiet:
            print_message(f"wrote {path}")


def print_failures(results: Iterable[ConditionResult]) -> int:
    """Print a line on stderr for each condition that fails, and return the exit code: 0 or 1."""
    code = 0
    for result in results:
        if result.failed:
            verb = "holds" if result.status == "held" else "cannot be judged"
            print_message(f"{result.condition} {verb}: {result.subject}: {result.text}")
            code = EXIT_FINDING
    return code
