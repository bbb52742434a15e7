"""Report pages for the tests: the ladder of an H200, many runs, and runs with hostile texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from example_runs import CEILINGS, H200, ladder, measurement, run, run_of

from memlab.device.measurement import LineCounters
from memlab.roofline.comparison.compare import compare_runs
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.reports.page.chart import DeviceRoofs
from memlab.roofline.reports.page.report import ReportedRun, report_document
from memlab.roofline.sweep.objective import find_objective
from memlab.roofline.sweep.records import Sweep, SweepRow, ranked
from memlab.roofline.sweep.space import Axis, Space

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.measurement import Measurement, Time
    from memlab.roofline.run import Run

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "\"><img src=x onerror='window.hacked = 2'>",
    "<!--<script>a\u2028b</script>-->' & \\u003c",
    "\x1b[31m\x00\u202egnp.evil\u2066 ünïcode 核 🎈 " + "x" * 3000,
)

LINES = (
    (3, "  float sum = 0.0f;", {"thread_instructions": 40, "warp_instructions": 2}),
    (
        7,
        "    sum += a[i] * b[i];",
        {
            "global_requests": 9,
            "global_sectors": 288,
            "global_lines": 288,
            "global_used_bytes": 1152,
            "flop": 64,
        },
    ),
    (
        9,
        "  tile[y][x] = sum;",
        {"shared_instructions": 4, "shared_wavefronts": 128, "shared_excessive_wavefronts": 124},
    ),
)


def with_lines(measured: Measurement, text: str = "") -> Measurement:
    """Give a measurement counters of source lines, with a text in place of theirs."""
    lines = (
        LineCounters.from_names(line=number, text=text or line, **counters)
        for number, line, counters in LINES
    )
    return replace(measured, lines=tuple(lines))


def detailed_run(name: str = "tiled16", advice: str = "Conflicts are on line 9.") -> Run:
    """A run with lines, and with advice that names one."""
    return replace(run_of(with_lines(measurement(name))), advice=(advice,))


def hostile_runs() -> list[Run]:
    """Runs whose kernels, parameters, devices, labels, advice and lines are hostile texts."""
    runs = []
    for text in HOSTILE:
        measured = with_lines(measurement("tiled8"), text)
        device = replace(measured.device, name=text, key=text)
        measured = replace(measured, kernel=text, parameters={text: text}, device=device)
        made = run_of(measured)
        identity = replace(made.identity, label=text[:100])
        runs.append(replace(made, advice=(text,), identity=identity))
    return runs


def crowd(count: int) -> list[Run]:
    """Runs that are close to one another in the chart."""
    base = measurement("tiled16", "measured")
    return [
        run_of(
            replace(
                base,
                parameters={"width": 2048, "tile": 16, "unroll": number},
                time=replace(base.time, median_s=base.time.median_s * (1 + 0.03 * number)),
            )
        )
        for number in range(count)
    ]


def page_of(runs: Sequence[Run], title: str = "memlab's ladder") -> str:
    """The report page of runs, under the ceilings of the H200."""
    devices = list(dict.fromkeys(each.measurement.device for each in runs))
    roofs = [DeviceRoofs(device, CEILINGS) for device in devices]
    return report_document([ReportedRun(each) for each in runs], roofs, title, "2026-01-02")


def ladder_page() -> str:
    """Four matrix products, one of them measured, a sum of rows, and a kernel without FLOPs."""
    first, *others = ladder()
    runs = [first, *others[:-1], detailed_run("tiled32"), run("row_sum"), run("copy", "modelled")]
    return page_of([replace(each, id=number) for number, each in enumerate(runs, 1)])


def sweep_page(texts: Sequence[str] = ("float", "double")) -> str:
    """The page of a sweep over the tile width and a macro: its last point is impossible.

    Args:
        texts: The values of the macro, of which the last one is also the reason.
    """
    tiles = (8, 16, 32)
    space = Space(
        (
            Axis("kernel", "kernel", ("tiled",)),
            Axis("TYPE", "macro", tuple(texts)),
            Axis("tile", "parameter", tiles),
        )
    )
    objective, rows, runs = find_objective("time"), [], []
    for number in range(space.size):
        values = space.values(number)
        made = run_of(with_lines(measurement(f"tiled{values['tile']}")))
        time_s = made.measurement.time.median_s * (1 + number / 10)
        parameters = {**made.measurement.parameters, "defines": f"TYPE={values['TYPE']}"}
        measured = replace(
            made.measurement,
            parameters=parameters,
            time=replace(made.measurement.time, median_s=time_s),
        )
        runs.append(replace(run_of(measured), id=number + 1))
        rows.append(SweepRow(values, "done", run=runs[-1], value=time_s))
    rows[-1] = SweepRow(rows[-1].values, "impossible", texts[-1])
    swept = Sweep(
        "sweep-1",
        "2026-01-02T03:04:05+00:00",
        space.axes,
        objective,
        ranked(rows, objective),
        space.size,
        properties=H200,
    )
    roofs = [DeviceRoofs(runs[0].measurement.device, CEILINGS)]
    reported = [ReportedRun(each) for each in runs[:-1]]
    return report_document(reported, roofs, "A sweep", "2026-01-02", (), [swept])


def _with_interval(run: Run) -> Time:
    """The time of a run, known to 5%."""
    time = run.measurement.time
    ends = {"interval_low_s": 0.95 * time.median_s, "interval_high_s": 1.05 * time.median_s}
    return replace(time, **ends)


def comparison_page() -> str:
    """The page of tiled 8 and tiled 32, compared."""
    a, b = run("tiled8", "modelled"), detailed_run("tiled32")
    a, b = (
        replace(each, measurement=replace(each.measurement, time=_with_interval(each)))
        for each in (a, b)
    )
    a, b = replace(a, measurement=with_lines(a.measurement)), replace(b, advice=("New advice.",))
    compared = Comparison((compare_runs(a, b, threshold=0.01, force=True),))
    roofs = [DeviceRoofs(a.measurement.device, CEILINGS)]
    reported = [ReportedRun(each) for each in (a, b)]
    return report_document(reported, roofs, "Two", "2026-01-02", [compared])
