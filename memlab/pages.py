"""`memlab.report_page`: runs as one HTML page, with an interactive roofline."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.comparisons.comparing import compare, known_ceilings
from memlab.device.machine_code.listing import MachineListing
from memlab.errors import Incomplete, UsageError
from memlab.kernels.catalog import CATALOG
from memlab.launching import current_time
from memlab.named_runs import find_runs
from memlab.results import ReportPage
from memlab.roofline.analysis.listing import listing
from memlab.roofline.ceilings import measured_ceilings
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.reports.page.chart import DeviceRoofs
from memlab.roofline.reports.page.report import ReportedRun, report_document
from memlab.roofline.reports.page.run import SourceText
from memlab.roofline.store.store import Store, same_device
from memlab.roofline.units import parameters_text, without_lists
from memlab.stored_runs import runs as stored_runs
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, timedelta

    from memlab.device.measurement import DeviceSummary, Measurement
    from memlab.named_runs import RunName
    from memlab.roofline.run import Run

MAX_RUNS = 60
"""The most stored runs that a page shows unless they are named; the newest ones."""

MAX_SOURCE_BYTES = 4 << 20
"""The longest source that is shown whole."""


def report_page(
    *results: RunName | MachineListing | Comparison,
    device: str | int | None = None,
    kernel: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    since: str | date | timedelta | None = None,
    last: int | None = None,
    title: str | None = None,
    store: Path | str | None = None,
) -> ReportPage:
    """Write runs as one HTML page: an interactive roofline, their figures, source and advice.

    The page is one file that needs no network and no other file.

    Examples:
        memlab.report_page(memlab.run("naive"), memlab.run("tiled")).save("report.html")
        memlab.report_page(12, "before", "colleague.json")
        memlab.report_page(memlab.run("tiled", width=512), memlab.sass("tiled", width=512))

    Args:
        *results: Runs, or their numbers, labels, sweeps or JSON files; comparisons, from
            `memlab.compare`, with their runs; and the machine code of some runs, from
            `memlab.sass`. Two runs that are named alone are compared. Without any run, the newest
            stored run of each kernel with its parameters on each device, of those that the next
            arguments choose.
        device: As for `memlab.runs`; so are `kernel`, `label`, `since` and `last`.
        kernel: Only runs of this kernel, or of these.
        label: Only runs with this label or of this sweep, or with one of these.
        since: Only runs made since then.
        last: The most stored runs that are considered; of more, the newest.
        title: The title of the page; None makes one from the runs.
        store: The file of the stored runs and of measured peaks; None takes `MEMLAB_STORE` from the
            environment, else a file in the user's data folder. It is only read.

    Returns:
        The page: `html` is its text, `save(path)` writes it; a notebook shows it.

    Raises:
        UsageError: There is no such run, or none at all; runs are both named and chosen; or a store
            or file cannot be read.
        Incomplete: Some stored runs cannot be read; its `result` is the page of the others.
    """
    codes = [result for result in results if isinstance(result, MachineListing)]
    comparisons = [result for result in results if isinstance(result, Comparison)]
    names = [result for result in results if not isinstance(result, MachineListing | Comparison)]
    conditions: dict[str, Any] = {
        "device": device,
        "kernel": kernel,
        "label": label,
        "since": since,
        "last": last,
    }
    given = [name for name, value in conditions.items() if value is not None]
    if names or comparisons:
        if given:
            raise UsageError(
                f"{given[0]} chooses among the stored runs, and runs were named too: give either"
            )
        named = [run for name in names for run in find_runs(name, store)]
        if len(names) == len(named) == 2 and not comparisons:
            comparisons = [compare(*named)]
        compared = [run for result in comparisons for run in _compared_runs(result)]
        return _page(_each_once(named + compared), codes, title, store, comparisons)
    try:
        stored, missing = stored_runs(**conditions, store=store), None
    except Incomplete as error:
        stored, missing = error.result, error
    if not stored:
        raise missing or UsageError(
            f"no {'such ' if given else ''}runs in {Store(store).path}: "
            "'memlab run' makes them, 'memlab runs' lists them"
        )
    distinct = newest_of_each(stored)
    page = _page(distinct[-MAX_RUNS:], codes, title, store)
    page = replace(page, left_out=len(distinct[:-MAX_RUNS]))
    if missing is not None:
        raise Incomplete(str(missing), page)
    return page


def newest_of_each(runs: Iterable[Run]) -> list[Run]:
    """Keep the newest of runs with the same kernel, parameters, device and provenance of the time.

    Args:
        runs: Oldest first.

    Returns:
        Oldest first.
    """
    newest: dict[object, Run] = {}
    for run in runs:
        measurement, device = run.measurement, run.measurement.device
        key = (
            measurement.kernel,
            tuple(measurement.parameters.items()),
            device.uuid or (device.key, device.name),
            measurement.time.provenance,
            run.identity.label,
        )
        newest.pop(key, None)  # so that it moves to the end
        newest[key] = run
    return list(newest.values())


def _each_once(runs: Iterable[Run]) -> list[Run]:
    """Leave out a run that was named twice."""
    found: list[Run] = []
    for run in runs:
        if run not in found:
            found.append(run)
    return found


def _page(
    runs: Sequence[Run],
    codes: Sequence[MachineListing],
    title: str | None,
    store: Path | str | None,
    comparisons: Sequence[Comparison] = (),
) -> ReportPage:
    kept = Store(store)
    devices: list[DeviceSummary] = []
    for run in runs:
        if not any(same_device(run.measurement.device, device) for device in devices):
            devices.append(run.measurement.device)
    reported = [_reported(run, codes) for run in runs]
    title = title or _title(runs)
    date = current_time().date().isoformat()
    roofs = [_roofs(device, kept) for device in devices]
    text = report_document(reported, roofs, title, date, [_of(runs, each) for each in comparisons])
    return ReportPage(text, title, tuple(runs))


def _compared_runs(comparison: Comparison) -> list[Run]:
    pairs = [run for pair in comparison.pairs for run in (pair.a, pair.b)]
    return [*pairs, *comparison.only_a, *comparison.only_b]


def _of(runs: Sequence[Run], comparison: Comparison) -> Comparison:
    """Let a comparison refer to the very records of the page, where it has equal ones."""

    def record(run: Run) -> Run:
        return next(each for each in runs if each == run)

    pairs = (replace(pair, a=record(pair.a), b=record(pair.b)) for pair in comparison.pairs)
    return replace(comparison, pairs=tuple(pairs))


def _title(runs: Sequence[Run]) -> str:
    first = runs[0].measurement
    if len(runs) == 1:
        return f"{first.kernel}, {parameters_text(without_lists(first.parameters))}".rstrip(", ")
    kernels = list(dict.fromkeys(run.measurement.kernel for run in runs))
    if len(kernels) <= 3:
        return f"{', '.join(kernels)}: {len(runs)} runs"
    return f"{len(runs)} {plural(len(runs), 'run')} of {len(kernels)} kernels"


def _roofs(device: DeviceSummary, store: Store) -> DeviceRoofs:
    """Find the ceilings of a device, and the rates that were measured on it."""
    try:
        peaks = store.peaks(device)
    except UsageError:  # a page of a file's runs needs no store
        peaks = None
    reached = measured_ceilings(peaks) if peaks else ()
    return DeviceRoofs(device, known_ceilings(device), reached)


def _reported(run: Run, codes: Sequence[MachineListing]) -> ReportedRun:
    measurement = run.measurement
    code = next((code for code in codes if _is_code_of(code, measurement)), None)
    if code is not None:
        lines = listing("\n".join(code.source) + "\n", measurement.lines)
        return ReportedRun(run, SourceText(code.source_name, lines), code)
    source = known_source(measurement)
    if source is None:
        return ReportedRun(run)
    name = measurement.code.source_name or measurement.kernel
    return ReportedRun(run, SourceText(name, listing(source, measurement.lines)))


def _is_code_of(code: MachineListing, measurement: Measurement) -> bool:
    return (
        code.kernel == measurement.kernel
        and code.parameters == measurement.parameters
        and code.device.compute_capability == measurement.device.compute_capability
    )


def known_source(measurement: Measurement) -> str | None:
    """Find the whole source that a run executed, since a run holds only lines with counters.

    A run may be another person's, and name any file: only a source with the checksum that the run
    recorded is taken.

    Returns:
        The text; None where the source has changed, or is not here.
    """
    kernel, checksum = CATALOG.get(measurement.kernel), measurement.code.source_sha256
    text = kernel.source if kernel is not None else _file_text(measurement.kernel)
    if not checksum or text is None or sha256(text.encode()).hexdigest() != checksum:
        return None
    return text


def _file_text(kernel: str) -> str | None:
    """Read the file of a user kernel; None where it cannot be read."""
    path = Path(kernel.rpartition(":")[0])
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE_BYTES:
            return None
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return None
