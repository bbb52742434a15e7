"""`memlab doctor`: what works here, and what to do about the rest."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from memlab.cli import options
from memlab.cli.output import print_json

if TYPE_CHECKING:
    from memlab.device.doctor.diagnosis import Diagnosis, DiagnosisItem
    from memlab.device.doctor.probes import MachineState

SCHEMA_VERSION = 1
EXIT_NOTHING_RUNS = 3
STATUS_MARKS = {"works": ("✓", "green"), "note": ("!", "yellow"), "fails": ("✗", "red")}


def doctor(as_json: options.JsonOption = False, store: options.StoreOption = None) -> None:
    """Say what works here: driver, PyCUDA, NVRTC, counters, clocks, memory, store."""
    from memlab.device.doctor.diagnosis import diagnose
    from memlab.device.doctor.probes import probe_machine

    facts = probe_machine()
    diagnosis = diagnose(facts)
    findings = (*diagnosis.findings, _store_finding(store))
    if as_json:
        print_json(_document(facts, diagnosis, findings))
    else:
        _print_table(findings, _verdict_text(diagnosis))
    if not (diagnosis.gpu_works or diagnosis.emulator_works):
        raise typer.Exit(EXIT_NOTHING_RUNS)


def _store_finding(path: Path | None) -> "DiagnosisItem":
    from memlab.device.doctor.diagnosis import DiagnosisItem
    from memlab.errors import UsageError
    from memlab.roofline.store.store import Store

    runs = Store(path)
    try:
        runs.check()
    except UsageError as error:
        # The runs themselves go on, with --no-store or --store elsewhere.
        found, _, advice = str(error).rpartition(": ")
        return DiagnosisItem("store", "note", found or str(error), advice if found else "")
    return DiagnosisItem("store", "works", f"{runs.path}, writable")


def _verdict_text(diagnosis: "Diagnosis") -> str:
    if diagnosis.gpu_works:
        emulated = "" if diagnosis.emulator_works else "; emulated devices do not"
        return f"GPU runs work here{emulated}: memlab run tiled"
    if diagnosis.emulator_works:
        return "No GPU to run on, but emulated devices work: memlab run tiled --device h200"
    return "Nothing can run here yet: mend what is marked ✗, from the bottom up"


def _document(
    facts: "MachineState", diagnosis: "Diagnosis", findings: "tuple[DiagnosisItem, ...]"
) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "schema_version": SCHEMA_VERSION,
        "gpu_works": diagnosis.gpu_works,
        "emulator_works": diagnosis.emulator_works,
        "findings": [asdict(finding) for finding in findings],
        "facts": asdict(facts),
    }


def _print_table(findings: "tuple[DiagnosisItem, ...]", verdict: str) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    from memlab.roofline.reports.parts import console

    table = Table.grid(Column(), Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for finding in findings:
        mark, style = STATUS_MARKS[finding.state]
        shown = Text(finding.found)
        if finding.advice:
            shown.append(f"\n→ {finding.advice}", style="dim")
        table.add_row(Text(mark, style=style), Text(finding.subject, style="bold"), shown)
    out = console()
    out.print(table)
    out.print()
    out.print(Text(verdict, style="bold"))
