"""The result of `compare` and `baseline check`: its format, its files, its exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.cli import gate
from memlab.cli.kernel_commands import EXIT_FINDING
from memlab.cli.output import check_output, chosen_format, deliver, json_text, print_message
from memlab.cli.terminal_text import echo
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.roofline.comparison.records import Comparison

FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv", ".md": "md"}
"""The format that a file's extension stands for."""


@dataclass(frozen=True)
class ComparisonOutput:
    """Where a comparison goes, as its options say.

    Attributes:
        form: `report`, `json`, `csv`, `md` (Markdown) or `html`.
        output: The file; None for stdout.
        junit: The file of the judged conditions as JUnit XML, if any.
        sarif: The file of the failed conditions as SARIF, if any.
        everything: Whether the report shows what did not change, too.
        overwrite: Whether existing files may be overwritten.
        quiet: Whether to print no notes.
    """

    form: str
    output: Path | None
    junit: Path | None
    sarif: Path | None
    everything: bool
    overwrite: bool
    quiet: bool

    def check(self) -> None:
        """Refuse files that could not be written, before the work that fills them.

        Raises:
            UsageError: As `check_output`.
        """
        if self.output is not None:
            check_output(self.output, self.overwrite)
        gate.check_gate_files(self.junit, self.sarif, self.overwrite)

    def deliver(self, compared: Comparison, store: Path | None = None) -> int:
        """Print or write a comparison and its gate, and return the exit code: 0 or 1."""
        self._show(compared, store)
        gate.write_gate_files(compared, self.junit, self.sarif, self.overwrite, self.quiet)
        code = gate.print_failures(compared.conditions)
        for pair in compared.pairs:
            if pair.b.measurement.verification.status == "failed":
                print_message(f"verification failed: {pair.verdict}")
                code = EXIT_FINDING
        return code

    def _show(self, compared: Comparison, store: Path | None) -> None:
        if self.form == "report":
            from memlab.roofline.reports.comparison import comparison_report
            from memlab.roofline.reports.parts import console

            console().print(comparison_report(compared, everything=self.everything))
            return
        text = _text(compared, self.form, store)
        if self.form == "md" and self.output is None:
            echo(text, end="")
        else:
            deliver(text, self.output, self.overwrite, self.quiet)


def comparison_form(as_json: bool, as_csv: bool, markdown: bool, output: Path | None) -> str:
    """Choose the format: that of the option, else of the file's extension, else the report.

    Raises:
        UsageError: Two formats were given, or the extension stands for none.
    """
    if not markdown:
        return chosen_format(as_json, as_csv, output, FORMATS)
    if as_json or as_csv:
        raise UsageError(
            f"--{'json' if as_json else 'csv'} and --markdown were both given: choose one"
        )
    return "md"


def _text(compared: Comparison, form: str, store: Path | None) -> str:
    from memlab.roofline.documents import comparison as documents
    from memlab.roofline.documents.comparison_markdown import comparison_markdown

    if form == "json":
        return json_text(documents.comparison_document(compared))
    if form == "csv":
        return documents.comparison_csv(compared)
    if form == "md":
        return comparison_markdown(compared)

    import memlab

    return memlab.report_page(compared, store=store).html
