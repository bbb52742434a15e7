"""Stored runs by filter, and their labels and notes."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

import memlab
from memlab.errors import UsageError
from memlab.named_runs import find_run, find_runs
from memlab.roofline.documents.runs import run_document
from memlab.roofline.store.store import Store
from memlab.stored_runs import run_filter

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path, monkeypatch, make_run):
    """Runs 1 to 4; the label `before` is that of 1 and 3, `other` that of 2."""
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    store = Store()
    for kernel, label in [
        ("naive", "before"),
        ("tiled", "other"),
        ("tiled", "before"),
        ("tiled", ""),
    ]:
        run = make_run(kernel=kernel)
        store.add(replace(run, identity=replace(run.identity, label=label)))
    return store


def refused(action, *expected):
    with pytest.raises(UsageError) as refusal:
        action()
    assert "\n" not in str(refusal.value)
    for part in expected:
        assert str(part) in str(refusal.value)


def ids(runs):
    return [run.id for run in runs]


def test_a_label_with_the_characters_of_patterns_is_found(store):
    memlab.annotate(4, label="a[1]*")
    assert ids(find_runs("a[1]*")) == [4]
    assert ids(memlab.runs(label="a[1]*")) == [4]
    assert ids(memlab.runs(label="bef*")) == [1, 3]
    refused(lambda: find_runs("bef*"), "'bef*'", store.path)


def test_where_one_run_is_needed_the_newest_is_taken(store, tmp_path):
    assert find_run("before").id == 3
    path = tmp_path / "two.json"
    path.write_text(json.dumps([run_document(run) for run in store.runs()[:2]]))
    refused(lambda: find_run(path), path, "holds 2 runs")


def test_a_run_is_labelled_afterwards(store):
    assert memlab.annotate("before", label=" after ", note="tile 32").id == 3
    assert find_run("after").identity.note == "tile 32"
    memlab.annotate(3, label="")
    refused(lambda: find_run("after"), "no run")
    assert find_run(3).identity.note == "tile 32"


@pytest.mark.parametrize("label", ["12", "run.json", "a/b", "a\nb", "a" * 101, "\x1b[1m"])
def test_what_could_be_mistaken_is_no_label(store, label):
    refused(lambda: memlab.annotate(1, label=label), "a label")
    refused(lambda: memlab.run("tiled", width=8, label=label), "a label")
    assert find_run(1).identity.label == "before"


def test_a_run_outside_the_store_is_not_labelled(store, make_run):
    refused(lambda: memlab.annotate(make_run(), label="x"), "not stored")
    refused(lambda: memlab.annotate("run.json", label="x"), "is a file")


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2h", NOON - timedelta(hours=2)),
        ("30 min", NOON - timedelta(minutes=30)),
        ("3d", NOON - timedelta(days=3)),
        ("1w", NOON - timedelta(days=7)),
        (timedelta(seconds=5), NOON - timedelta(seconds=5)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01 09:30", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01T09:30+02:00", datetime(2026, 11, 1, 7, 30, tzinfo=UTC)),
        (date(2026, 11, 1), datetime(2026, 11, 1, tzinfo=UTC)),
        (NOON, NOON),
    ],
)
def test_times_are_read(monkeypatch, since, expected):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(NOON.timestamp())))
    assert run_filter(since=since).since == expected


@pytest.mark.parametrize("since", ["", "yesterday", "-2h", "2", "2026-13-01", "999999999w", 3])
def test_what_is_no_time_is_refused(since):
    refused(lambda: memlab.runs(since=since), repr(since), "2h")


@pytest.mark.parametrize("last", [0, -1, 1.5, "3"])
def test_what_is_no_number_of_runs_is_refused(last):
    refused(lambda: memlab.runs(last=last), repr(last), "--last 5")
