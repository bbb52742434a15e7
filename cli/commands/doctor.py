"""`memlab doctor`: the parts of memlab that work on this machine, and remedies for the rest."""

from typing import TYPE_CHECKING

import typer

import memlab
from memlab.cli import options
from memlab.cli.output import print_json

if TYPE_CHECKING:
    from memlab.results import DoctorReport

SCHEMA_VERSION = 1
EXIT_NOTHING_RUNS = 3


def doctor(as_json: options.JsonOption = False, store: options.StoreOption = None) -> None:
    """Show what works here: driver, PyCUDA, NVRTC, nvcc, counters, clocks, memory, store."""
    report = memlab.doctor(store)
    if as_json:
        print_json(_document(report))
    else:
        from memlab.roofline.reports.doctor import doctor_report
        from memlab.roofline.reports.parts import console

        console().print(
            doctor_report(
                report.items, gpu_works=report.gpu_works, emulator_works=report.emulator_works
            )
        )
    if not (report.gpu_works or report.emulator_works):
        raise typer.Exit(EXIT_NOTHING_RUNS)


def _document(report: "DoctorReport") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "schema_version": SCHEMA_VERSION,
        "gpu_works": report.gpu_works,
        "emulator_works": report.emulator_works,
        "findings": [asdict(item) for item in report.items],
        "facts": asdict(report.machine),
    }
