"""Documents of a foreign store: they are read, shown and drawn, or refused."""

from __future__ import annotations

import functools
import io
import json
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unicodedata import category
from xml.etree import ElementTree

import pytest
from fuzzing import ODD, TIMES, cases
from hypothesis import given
from hypothesis import strategies as st
from paths import DATA

from memlab.device.datasheets import loader
from memlab.device.measurement import Time, flop_by_pipe
from memlab.errors import UsageError
from memlab.roofline.ceilings import ceilings, measured_ceilings
from memlab.roofline.comparison.compare import compare_runs
from memlab.roofline.comparison.conditions import (
    judge_comparison,
    parse_condition,
    regressions,
)
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.documents.comparison import comparison_csv, comparison_document
from memlab.roofline.documents.comparison_markdown import comparison_markdown
from memlab.roofline.documents.frames import picture_csv
from memlab.roofline.documents.gates import junit_xml, sarif_document
from memlab.roofline.documents.peaks import peaks_document, peaks_from_document
from memlab.roofline.documents.runs import run_document, run_from_document, runs_csv
from memlab.roofline.plots.comparison import draw_comparison
from memlab.roofline.plots.figure import render_figure
from memlab.roofline.plots.roofline import MAX_RUNS, draw_roofline
from memlab.roofline.reports.comparison import comparison_report
from memlab.roofline.reports.parts import console, rendered_text
from memlab.roofline.reports.run import run_report
from memlab.roofline.reports.runs import runs_table
from memlab.roofline.run import Ceiling, Run
from memlab.roofline.store.store import Store

RESULTS = DATA / "h200-peaks.json"
H200 = loader.load_datasheet("h200")
ROOFS = ceilings(H200)

ABSURD = (0, -1, float("nan"), "Infinity", 2**200)
GONE = object()
"""Marks a removed part."""
STRANGE = st.one_of(
    st.sampled_from([None, True, 0.5, 1e-320, 1e308, 10**400, "-Infinity", [], [[]], {}, GONE]),
    ODD,
)


@pytest.fixture(scope="module")
def document(make_run: Callable[..., Run]) -> Any:
    """A run with all parts that a document can have."""
    time = Time(2e-3, "measured", 30, 1e-3, 1e-3, 3e-3, {"l1": 1e-3}, 1e-3, 3e-3, 1, 1e9, 0.01)
    time = replace(time, warm_samples=9, warm_median_s=1e-3, warm_lower_quartile_s=1e-3)
    beside = {"counters_ncu": {"l2_read_sectors": 7.0, "duration_s": 2e-3}}
    run = make_run(time=time, library_time={"cublas": time}, dynamic_shared_bytes=8, **beside)
    return json.loads(json.dumps(run_document(run)))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All positions in a document, outermost first."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, (dict, list)):
            yield from places(part, (*path, key))
        else:
            yield (*path, key)


def changed(document: Any, place: tuple[Any, ...], value: object) -> Any:
    """The document with a different value at one position."""
    other = json.loads(json.dumps(document))
    around = functools.reduce(operator.getitem, place[:-1], other)
    if value is GONE:
        del around[place[-1]]
    else:
        around[place[-1]] = value
    return other


def accepted(document: Any, read: Callable[[Any], Any]) -> Any:
    """The content of a document; None if it is refused with one line."""
    said = ""
    try:
        return read(document)
    except UsageError as error:
        said = str(error)
    assert 0 < len(said) < 300
    return None


def show(run: Run) -> None:
    """Print a run like the commands, and check that it contains no control characters."""
    screen = io.StringIO()
    with redirect_stdout(screen):
        console().print(run_report(run))
        console().print(runs_table([run], 80))
    assert not [
        character
        for character in screen.getvalue()
        if category(character) == "Cc" and character != "\n"
    ]


def compare_all(base: Run, runs: Sequence[Run]) -> None:
    """Compare runs with another one, both ways, in all forms but pictures."""
    conditions = [parse_condition(text) for text in ("time>+3%", "dram_read_bytes>0%", "tile>+1")]
    for pair in (pair for run in runs for pair in ((base, run), (run, base))):
        for force in (False, True):
            compared = Comparison((compare_runs(*pair, force=force),), forced=force)
            judged = (*judge_comparison(compared, conditions), *regressions(compared))
            compared = replace(compared, conditions=judged)
            text = rendered_text(comparison_report(compared, everything=force), 80)
            assert all(len(line) <= 80 for line in text.splitlines())
            comparison_csv(compared)
            comparison_markdown(compared)
            ElementTree.fromstring(junit_xml(compared))
            json.dumps([comparison_document(compared), sarif_document(compared)], allow_nan=False)


def draw_comparisons(base: Run, runs: Sequence[Run]) -> None:
    """Draw the comparisons of runs with another one."""
    for run in runs:
        compared = Comparison((compare_runs(base, run),))
        render_figure(draw_comparison(compared, ROOFS, H200.name), "svg")


def draw_all(runs: Sequence[Run], measured: Sequence[Ceiling] = ()) -> None:
    """Draw runs, each one of them: as many in a picture as it takes."""
    for start in range(0, len(runs), MAX_RUNS):
        apart = []
        for number, run in enumerate(runs[start : start + MAX_RUNS]):
            parameters = {**run.measurement.parameters, "case": number}
            apart.append(replace(run, measurement=replace(run.measurement, parameters=parameters)))
        render_figure(draw_roofline(apart, ROOFS, H200.name, "2026", measured), "svg")


def test_every_number_of_a_run_that_is_absurd(document: Any) -> None:
    seen: dict[str, Run] = {}
    drawn: dict[str, Run] = {}
    for place in places(document):
        for value in ABSURD:
            run = accepted(changed(document, place, value), run_from_document)
            if run is None or repr(asdict(run)) in seen:
                continue
            seen[repr(asdict(run))] = run
            show(run)
            measured = run.measurement
            looks = (
                run.placement,
                measured.tile,
                measured.parameters,
                flop_by_pipe(measured.counters),
            )
            drawn[repr(looks)] = run
    assert 40 < len(seen) < 200
    runs_csv(seen.values())
    picture_csv(seen.values(), ROOFS)
    draw_all([*drawn.values()])
    base = run_from_document(document)
    compare_all(base, [*seen.values()])
    draw_comparisons(base, [*drawn.values()])


def test_every_number_of_measured_peaks_that_is_absurd(make_run: Callable[..., Run]) -> None:
    known = json.loads(RESULTS.read_text())
    for name in ("rates", "latencies", "footprints"):
        known[name] = known[name][:1]
    drawn = {}
    for place in places(known):
        for value in ABSURD:
            peaks = accepted(changed(known, place, value), peaks_from_document)
            if peaks is not None:
                peaks_document(peaks)
                drawn[repr(measured_ceilings(peaks))] = measured_ceilings(peaks)
    assert drawn
    for measured in drawn.values():
        draw_all([make_run()], measured)


@given(data=st.data())
@cases(60)
def test_a_part_that_is_strange(document: Any, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(list(places(document))))
    run = accepted(changed(document, place, data.draw(STRANGE)), run_from_document)
    if run is not None:
        show(run)
        runs_csv([run])


def test_a_file_whose_bytes_are_damaged(tmp_path: Path, make_run: Callable[..., Run]) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    store.add_all([make_run()] * 3)
    sound, chance = store.path.read_bytes(), random.Random(5)
    said = []
    for _ in range(100 * (TIMES or 1)):
        damaged = bytearray(sound)
        for _ in range(chance.choice((1, 3, 20))):
            damaged[chance.randrange(chance.choice((100, 4096, len(sound))))] = chance.randrange(
                256
            )
        store.path.write_bytes(damaged)
        for use in (store.runs, store.ids, lambda: store.add(make_run())):
            try:
                use()
            except UsageError as error:
                said.append(str(error))
    assert said
    assert not [message for message in said if "\n" in message]
