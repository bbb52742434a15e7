import json
import sqlite3
from dataclasses import replace

import pytest

from memlab.errors import UsageError
from memlab.named_runs import find_runs
from memlab.roofline.documents.runs import run_document
from memlab.roofline.run import RunIdentity
from memlab.roofline.store.store import Store


@pytest.fixture
def store(tmp_path, make_run):
    """A store with runs 1 and 3 labelled `before`, and run 2 of the sweep `tiles`."""
    store = Store(tmp_path / "runs.sqlite3")
    for identity in (
        RunIdentity(label="before"),
        RunIdentity(sweep="tiles"),
        RunIdentity(label="before"),
    ):
        store.add(replace(make_run(), identity=identity))
    return store


@pytest.mark.parametrize(
    ("name", "ids"), [(2, [2]), ("2", [2]), ("before", [1, 3]), ("tiles", [2])]
)
def test_numbers_labels_and_sweeps_name_runs(store, name, ids):
    assert [run.id for run in find_runs(name, store.path)] == ids


def test_a_file_of_one_run_or_of_several_is_read(tmp_path, make_run):
    one, other = make_run(), make_run(kernel="naive")
    single, several = tmp_path / "one.json", tmp_path / "several"
    single.write_text(json.dumps(run_document(one)))
    several.write_text(json.dumps([run_document(one), run_document(other)]))
    assert find_runs(str(single)) == find_runs(single) == [one]
    assert find_runs(str(several)) == [one, other]  # a name with a folder is a file
    assert find_runs([one, other]) == [one, other]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"[1]", b"\xff", b"[" * 100_000, b'{"schema_version": 99}']
)
def test_a_file_without_runs_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.json") as refusal:
        find_runs(path)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_an_unknown_name_is_refused_with_the_nearest(store, tmp_path):
    with pytest.raises(UsageError, match="did you mean 'before'"):
        find_runs("befor", store.path)
    with pytest.raises(UsageError, match="no run 7"):
        find_runs(7, store.path)
    with pytest.raises(UsageError, match="cannot read"):
        find_runs(tmp_path / "none.json")
    with pytest.raises(UsageError, match="type float"):
        find_runs(1.5)


def test_a_run_that_cannot_be_read_does_not_hide_the_others(store):
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE runs SET document = '{}' WHERE id = 2")
    assert [run.id for run in find_runs("before", store.path)] == [1, 3]
