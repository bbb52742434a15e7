"""`memlab.report_page`: runs as one HTML page, with an interactive roofline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.comparisons.comparing import compare, known_ceilings, known_properties
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
from memlab.roofline.store.sweeps import SweepStore
from memlab.roofline.sweep.records import Sweep
from memlab.roofline.sweep.stored import sweep_of_runs
from memlab.roofline.units import parameters_text, without_lists
from memlab.stored_runs import runs as stored_runs
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date, timedelta

    from memlab.device.measurement import DeviceSummary, Measurement
    from memlab.device.properties import DeviceProperties
    from memlab.named_runs import RunName
    from memlab.roofline.run import Run

MAX_RUNS = 60
"""The most stored runs that a page shows unless they are named; the newest ones."""

MAX_STORED_SWEEPS = 3
"""The most sweeps of the store that a page shows unless they are named; the newest ones."""

MAX_SOURCE_BYTES = 4 << 20
"""The longest source that is shown whole."""


def report_page(
    *results: RunName | MachineListing | Comparison | Sweep,
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
            `memlab.compare`, and sweeps, from `memlab.sweep`, with their runs; and the machine
            code of some runs, from `memlab.sass`. Two runs that are named alone are compared.
            Without any run, the newest stored run of each kernel with its parameters on each
            device, of those that the next arguments choose.
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
    conditions: dict[str, Any] = {
        "device": device,
        "kernel": kernel,
        "label": label,
        "since": since,
        "last": last,
    }
    given = [name for name, value in conditions.items() if value is not None]
    codes = tuple(result for result in results if isinstance(result, MachineListing))
    if len(codes) < len(results):
        if given:
            raise UsageError(
                f"{given[0]} chooses among the stored runs, and runs were named too: give either"
            )
        return _page(_named_contents(results, store), codes, title, store)
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
    contents = _Contents(
        distinct[-MAX_RUNS:],
        sweeps=_stored_sweeps(_with_reused(_by_sweep(stored), stored, store))[-MAX_STORED_SWEEPS:],
        left_out=len(distinct[:-MAX_RUNS]),
    )
    page = _page(contents, codes, title, store)
    if missing is not None:
        raise Incomplete(str(missing), page)
    return page


@dataclass(frozen=True)
class _Contents:
    """What a page shows: runs, and comparisons and sweeps of them."""

    runs: Sequence[Run]
    comparisons: Sequence[Comparison] = ()
    sweeps: Sequence[Sweep] = ()
    left_out: int = 0


def _named_contents(results: Sequence[Any], store: Path | str | None) -> _Contents:
    """Find the runs of results that were given or named."""
    comparisons = [result for result in results if isinstance(result, Comparison)]
    sweeps = [result for result in results if isinstance(result, Sweep)]
    records = (MachineListing, Comparison, Sweep)
    names = [result for result in results if not isinstance(result, records)]
    found = [find_runs(name, store) for name in names]
    named = [run for each in found for run in each]
    if len(results) == len(named) == 2:
        comparisons = [compare(*named)]
    runs = [run for sweep in sweeps for run in sweep.runs] + named
    runs += [run for comparison in comparisons for run in _compared_runs(comparison)]
    runs = _each_once(runs)
    if not runs:
        raise UsageError("no point of the sweep is done, so there is no run to show")
    kept = SweepStore(Store(store))
    members = {
        name: each
        for name, each in zip(names, found, strict=True)
        if isinstance(name, str) and kept.run_ids(name)
    }
    of_sweeps = [run for each in members.values() for run in each]
    members |= _by_sweep([run for run in runs if run in named and run not in of_sweeps])
    sweeps += _stored_sweeps(members)
    shown = _best_of_sweeps(runs, sweeps)
    own = [_of(runs, comparison) for comparison in comparisons]
    return _Contents(shown, own, sweeps, len(runs) - len(shown))


def _by_sweep(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by the names of the sweeps that made them, in their order."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        if run.identity.sweep:
            members.setdefault(run.identity.sweep, []).append(run)
    return members


def _with_reused(
    members: Mapping[str, list[Run]], stored: Sequence[Run], store: Path | str | None
) -> dict[str, list[Run]]:
    """Add to the runs of sweeps the stored ones that the sweeps took over from earlier sweeps."""
    kept = SweepStore(Store(store))
    whole = {}
    for name, runs in members.items():
        numbers = {*kept.run_ids(name), *(run.id for run in runs)}
        whole[name] = [run for run in stored if run.id in numbers]
    return whole


def _stored_sweeps(members: Mapping[str, Sequence[Run]]) -> list[Sweep]:
    """The sweeps of runs, by their names."""
    found = (
        sweep_of_runs(name, points, _sweep_properties(points)) for name, points in members.items()
    )
    return [sweep for sweep in found if sweep is not None]


def _sweep_properties(runs: Sequence[Run]) -> DeviceProperties | None:
    """The device of a sweep's runs, for its roofline; None where they have several."""
    first = runs[0].measurement.device
    if any(not same_device(run.measurement.device, first) for run in runs):
        return None
    return known_properties(first)


def _best_of_sweeps(runs: Sequence[Run], sweeps: Sequence[Sweep]) -> list[Run]:
    """Of more runs than a page shows, leave out those that are not the best of their sweeps."""
    if len(runs) <= MAX_RUNS or not sweeps:
        return list(runs)
    of_each = max(1, MAX_RUNS // len(sweeps))
    left_out = {id(run) for sweep in sweeps for run in sweep.runs[of_each:]}
    return [run for run in runs if id(run) not in left_out]


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
    contents: _Contents,
    codes: Sequence[MachineListing],
    title: str | None,
    store: Path | str | None,
) -> ReportPage:
    kept, runs = Store(store), contents.runs
    devices: list[DeviceSummary] = []
    for run in runs:
        if not any(same_device(run.measurement.device, device) for device in devices):
            devices.append(run.measurement.device)
    title = title or _title(runs)
    text = report_document(
        [_reported(run, codes) for run in runs],
        [_roofs(device, kept) for device in devices],
        title,
        current_time().date().isoformat(),
        contents.comparisons,
        contents.sweeps,
    )
    return ReportPage(text, title, tuple(runs), contents.left_out)


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
    # The lines of PTX refer to another file than the one that was launched.
    files = (measurement.kernel.rpartition(":")[0], measurement.code.source_name)
    texts = [kernel.source] if kernel is not None else map(_file_text, files)
    return next(
        (text for text in texts if text and sha256(text.encode()).hexdigest() == checksum), None
    )


def _file_text(file: str) -> str | None:
    """Read the file of a source; None where it cannot be read."""
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE_BYTES:
            return None
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return None
