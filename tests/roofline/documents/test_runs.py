import csv
import io
import json
import math
import re
from dataclasses import asdict, fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.access_counts import AccessCounts
from memlab.device.measurement import (
    Counters,
    Coverage,
    DeviceSummary,
    LineCounters,
    Measurement,
    Time,
    Verification,
)
from memlab.errors import UsageError
from memlab.roofline.documents.runs import (
    ROW_COLUMNS,
    run_document,
    run_from_document,
    run_row,
    runs_csv,
)
from memlab.roofline.run import Run

capabilities = st.tuples(st.integers(1, 20), st.integers(0, 9))
devices = st.builds(DeviceSummary, compute_capability=capabilities)
counts = {name: st.integers(0) for name in Counters.names()}
lines = {name: st.integers(0) for name in LineCounters.names()} | {"text": st.text()}
measurements = st.builds(
    Measurement,
    device=devices,
    counters=st.builds(Counters.from_names, **counts),
    lines=st.lists(st.builds(LineCounters.from_names, **lines), max_size=3).map(tuple),
)
runs = st.builds(Run, measurement=measurements)


def believable(value):
    """A record with its numbers such as launches have; the error of an output may be any."""
    if isinstance(value, float):
        return min(abs(value), 1e30) if math.isfinite(value) else 1.0
    if isinstance(value, int) and not isinstance(value, bool):
        return min(abs(value), 2**62)
    if isinstance(value, dict):
        return {key: believable(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(believable, value))
    if not is_dataclass(value):
        return value
    parts = {field.name: believable(getattr(value, field.name)) for field in fields(value)}
    match value:
        case Measurement():
            parts["tile"] = value.tile and abs(value.tile) % 1024
        case Coverage():
            parts["blocks_total"] += 1
        case Time():
            parts["median_s"] += 1e-9
        case Verification(relative_error=float(error)):
            parts["relative_error"] = error if math.isnan(error) else abs(error)
    return replace(value, **parts)


@given(runs.map(believable))
def test_everything_in_a_run_survives_strict_json(run):
    restored = run_from_document(json.loads(json.dumps(run_document(run), allow_nan=False)))
    # By repr, to which NaN equals itself, and 1 and (1, 2) differ from 1.0 and [1, 2].
    assert repr(asdict(restored)) == repr(asdict(run))


def test_text_that_reads_like_a_number_stays_text(make_run):
    run = make_run(kernel="Infinity", lines=(LineCounters(line=1, text="NaN"),))
    assert run_from_document(run_document(run)) == run


def test_an_error_that_is_not_a_number_survives(make_run):
    verification = replace(make_run().measurement.verification, relative_error=math.nan)
    document = run_document(make_run(verification=verification))
    assert document["verification"]["relative_error"] == "NaN"
    restored = run_from_document(json.loads(json.dumps(document, allow_nan=False)))
    assert math.isnan(restored.measurement.verification.relative_error)


def test_numbers_of_numpy_become_numbers_of_json(make_run):
    counters = Counters.from_names(dram_read_bytes=np.int64(2**40), flop_fp64=np.uint32(7))
    time = replace(make_run().measurement.time, median_s=np.float32(0.5))
    document = json.loads(json.dumps(run_document(make_run(counters=counters, time=time))))
    assert document["counters"]["dram_read_bytes"] == 1099511627776
    assert document["time"]["median_s"] == 0.5


def test_the_document_has_the_agreed_keys(make_run):
    """The keys that other tools read, as the interface states them."""
    agreed = {
        "device": "name kind compute_capability",
        "launch": "grid block dynamic_shared_bytes",
        "resources": "registers_per_thread static_shared_bytes local_bytes_per_thread",
        "occupancy": "theoretical blocks_per_sm limiter",
        "coverage": "blocks_emulated blocks_total",
        "counters": "global_load_requests global_load_sectors global_store_requests "
        "global_store_sectors shared_load_instructions shared_load_wavefronts "
        "shared_store_instructions shared_store_wavefronts shared_excessive_wavefronts "
        "local_load_sectors local_store_sectors l2_read_sectors l2_write_sectors "
        "dram_read_bytes dram_write_bytes flop_fp32 flop_fp64 thread_instructions",
        "time": "median_s provenance",
        "roofline": "flop_per_s intensity_flop_per_byte bound ceiling_flop_per_s "
        "fraction_of_ceiling",
        "verification": "status relative_error checked",
    }
    document = run_document(make_run())
    assert document["schema_version"] == 1
    assert document["kernel"] == "tiled"
    assert document["parameters"] == {"width": 2048, "tile": 16}
    assert document["device"]["compute_capability"] == "9.0"
    assert document["launch"]["grid"] == [128, 128, 1]
    assert isinstance(document["advice"], list)
    for group, keys in agreed.items():
        assert set(keys.split()) <= set(document[group]), group
    levels = {"requested", "l1", "l2", "dram", "compulsory"}
    assert levels <= set(document["roofline"]["intensity_flop_per_byte"])


@pytest.mark.parametrize(("ran", "estimated"), [(800, True), (16384, False)])
def test_a_sample_that_followed_data_stays_an_estimate(make_run, ran, estimated):
    """Early documents told whether data decides the accesses, also where all blocks ran."""
    document = run_document(make_run())
    del document["coverage"]["estimated"]
    document["coverage"] |= {"blocks_emulated": ran, "data_dependent": True}
    assert run_from_document(document).measurement.coverage.estimated is estimated


def test_a_document_of_a_neighbouring_version_is_read(make_run):
    document = run_document(make_run())
    document["colour"] = "blue"
    document["counters"]["a_counter_to_come"] = 3
    del document["counters"]["warp_instructions"]
    restored = run_from_document(document).measurement.counters
    assert restored == replace(make_run().measurement.counters, warp_instructions=0)


@pytest.mark.parametrize(
    ("group", "name", "value", "bound"),
    [
        ("time", "median_s", 0, "from 1e-15 to"),
        ("time", "minimum_s", "NaN", "from 0 to"),
        ("coverage", "blocks_total", 0, "from 1 to"),
        ("roofline", "fraction_of_ceiling", "Infinity", "to 3.40282e+38"),
        ("counters", "flop_fp32", 2**200, "to 3.40282e+38"),
        ("counters", "flop_fp32", -1, "from 0 to"),
        ("verification", "relative_error", -0.5, "from 0 to inf"),
        ("device", "compute_capability", "-1.0", "from 0 to"),
        ("roofline", "bound", "x" * 1001, "1000 at most"),
        ("device", "name", "x" * 10**7, "1000 at most"),
        ("occupancy", "limits", {"x" * 1001: 1}, "1000 at most"),
        ("verification", "worst", "x" * (2**20 + 1), "1048576 at most"),
    ],
)
def test_what_no_launch_gives_is_refused_in_one_short_line(make_run, group, name, value, bound):
    document = json.loads(json.dumps(run_document(make_run())))
    document[group][name] = value
    with pytest.raises(UsageError, match=re.escape(bound)) as refusal:
        run_from_document(document)
    assert name in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_a_number_that_a_frame_or_the_store_cannot_hold_is_refused(make_run):
    for name in ("tile", "id"):
        for least in (2**31 if name == "tile" else 2**63, 2**100):
            document = run_document(make_run()) | {name: least}
            with pytest.raises(UsageError, match=f"{name} is .* must be from 0 to"):
                run_from_document(document)


def test_names_that_people_chose_are_read_however_long(make_run):
    run = make_run(kernel="k" * 2**20, parameters={"args": "f32=1" * 10**5})
    assert run_from_document(run_document(run)) == run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version 2; this memlab reads 1"),
        ({"time": {}}, "median_s"),
        ({"launch": {"grid": [1, 1]}}, "malformed"),
        (
            {"launch": {"grid": [1, 1], "block": [1, 1, 1], "dynamic_shared_bytes": 0}},
            "grid has a value of another type",
        ),
        ({"device": None}, "malformed"),
        ({"time": {"median_s": True, "provenance": "measured"}}, "another type"),
        ({"advice": None}, "malformed"),
    ],
)
def test_what_is_not_a_run_is_refused_in_one_line(make_run, change, message):
    with pytest.raises(UsageError, match=message) as refusal:
        run_from_document(run_document(make_run()) | change)
    assert "\n" not in str(refusal.value)


def test_a_missing_part_is_named(make_run):
    document = run_document(make_run())
    del document["roofline"]
    with pytest.raises(UsageError, match="no 'roofline'"):
        run_from_document(document)


def test_the_row_is_flat_and_of_stable_columns(make_run):
    run = make_run()
    intensities = run.placement.intensity_flop_per_byte | {"dram": None}
    run = replace(run, placement=replace(run.placement, intensity_flop_per_byte=intensities))
    row = run_row(run)
    assert tuple(row) == ROW_COLUMNS
    assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    assert row["parameters"] == "width=2048 tile=16"
    assert row["grid"] == "128x128x1"
    assert row["median_s"] == 2.25e-3
    assert row["intensity_dram_flop_per_byte"] is None
    counters = run.measurement.counters.by_name()
    assert {name: row[name] for name in counters} == counters


def test_csv_holds_any_text_and_a_header_without_runs(make_run):
    run = replace(make_run(tile=None), advice=('A "tile" of 32,', "says\nhe."))
    (row,) = csv.DictReader(io.StringIO(runs_csv([run])))
    assert row["advice"] == 'A "tile" of 32, says\nhe.'
    assert row["tile"] == ""
    assert runs_csv([]).strip().split(",") == list(ROW_COLUMNS)


def test_flat_names_and_the_table_of_accesses_are_two_views():
    counters = Counters.from_names(global_load_sectors=8, shared_load_wavefronts=3, flop_fp64=1)
    loads = AccessCounts(sectors=8)
    assert counters.accesses == {
        ("global", "load"): loads,
        ("shared", "load"): AccessCounts(wavefronts=3),
    }
    assert counters.total("global") == counters.total("global", "load") == loads
    assert counters.total("global", "store") == counters.total("local") == AccessCounts()
    assert Counters.from_names(**counters.by_name()) == counters
    changed = counters.replace_named(global_load_sectors=0)
    assert (changed.global_load_sectors, changed.shared_load_wavefronts) == (0, 3)
    with pytest.raises(TypeError, match="colour"):
        Counters.from_names(colour=1)


def test_figures_without_a_flat_name_are_dropped_as_a_document_drops_them():
    detailed = AccessCounts(requests=1, sectors=4, used_bytes=128)
    counters = Counters.from_table({("global", "atomic"): detailed}, flop_fp32=2)
    assert counters.accesses == {("global", "atomic"): AccessCounts(requests=1, sectors=4)}
    assert counters.flop_fp32 == 2
