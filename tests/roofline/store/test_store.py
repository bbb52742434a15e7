import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memlab.device.measurement import DeviceSummary
from memlab.errors import Incomplete, UsageError
from memlab.roofline.run import RunIdentity
from memlab.roofline.store import database
from memlab.roofline.store.database import StoreFile, default_store_path
from memlab.roofline.store.run_filter import RunFilter
from memlab.roofline.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite3")


def refused(action, *expected):
    """Check that an action is refused in one line that says all this."""
    with pytest.raises(UsageError) as refusal:
        action()
    message = str(refusal.value)
    assert "\n" not in message
    for part in expected:
        assert str(part) in message
    return message


def test_a_run_comes_back_as_it_was(store, make_run):
    stored = store.add(make_run())
    assert stored == replace(make_run(), id=1)
    assert Store(store.path).get(1) == stored
    assert store.runs() == [stored]


def test_runs_are_chosen_by_device_and_kernel_newest_last(store, make_run):
    gpu = DeviceSummary("NVIDIA H200", "cuda", (9, 0), "cuda:0")
    for kernel, device in [("naive", None), ("tiled", None), ("tiled", gpu), ("naive", gpu)]:
        store.add(make_run(kernel=kernel, **({"device": device} if device else {})))

    def ids(**choice):
        return [run.id for run in store.runs(RunFilter(**choice))]

    assert ids() == [1, 2, 3, 4]
    assert ids(device="H200") == [1, 2]
    assert ids(device="cuda:0", kernels=("tiled",)) == [3]
    assert ids(device="nvidia h200") == [1, 2, 3, 4]
    assert ids(kernels=("tile",)) == []


def test_runs_are_chosen_by_label_time_and_number(store, make_run):
    """The time zone of a run counts, and names may be patterns."""
    for number, (kernel, label, created) in enumerate(
        [
            ("naive", "before", "2026-11-01T09:00:00Z"),
            ("tiled", "after-1", "2026-11-01T10:00:00+02:00"),  # 08:00 UTC
            ("tiled", "after-2", "2026-11-02T00:00:00"),
            ("tiled-dynamic", "", "2026-11-03T00:00:00Z"),
        ],
        start=1,
    ):
        run = replace(make_run(kernel=kernel), created_at=created)
        identity = replace(run.identity, label=label, sweep="widths" if number == 4 else "")
        store.add(replace(run, identity=identity))

    def ids(**choice):
        chosen = RunFilter(**choice)
        assert store.ids(chosen) == [run.id for run in store.runs(chosen)]
        return store.ids(chosen)

    assert ids(labels=("before",)) == [1]
    assert ids(labels=("after-*",)) == [2, 3]
    assert ids(labels=("widths", "before")) == [1, 4]
    assert ids(labels=("After-1",)) == []
    assert ids(since=datetime(2026, 11, 1, 9, tzinfo=UTC)) == [1, 3, 4]
    assert ids(since=datetime(2026, 11, 1, 9, 0, 1, tzinfo=UTC)) == [3, 4]
    assert ids(kernels=("tiled*",), last=2) == [3, 4]
    assert ids(kernels=("naive", "tiled")) == [1, 2, 3]
    assert ids(kernels=("tiled",), since=datetime(2026, 11, 1, 9, tzinfo=UTC), last=5) == [3]
    assert store.labels() == {"before", "after-1", "after-2", "widths"}


def test_a_label_and_a_note_are_changed_and_the_rest_is_kept(store, make_run):
    store.add(make_run())
    first = replace(make_run(), identity=RunIdentity("before", "slow", "ab" * 20, False))
    store.add(first)
    with closing(sqlite3.connect(store.path)) as connection:  # as a newer memlab might write it
        connection.execute("UPDATE runs SET document = json_set(document, '$.new', 7)")
        connection.commit()

    assert store.annotate(2, label="after", note=None).identity.label == "after"
    expected = replace(first, id=2, identity=replace(first.identity, label="after"))
    assert store.get(2) == expected
    store.annotate(2, label=None, note="")
    assert store.get(2) == replace(expected, identity=replace(expected.identity, note=""))
    assert store.get(1).identity == RunIdentity()
    with closing(sqlite3.connect(store.path)) as connection:
        new = connection.execute("SELECT json_extract(document, '$.new') FROM runs").fetchall()
    assert new == [(7,), (7,)]
    refused(lambda: store.annotate(3, label="x", note=None), "no run 3")


def test_reading_makes_nothing(tmp_path):
    Store(tmp_path / "runs.sqlite3").check()
    store = Store(tmp_path / "no" / "such" / "runs.sqlite3")
    assert store.runs() == []
    refused(lambda: store.get(1), store.path, "no run 1")
    refused(lambda: store.delete([1]), "no run 1")
    assert list(tmp_path.iterdir()) == []


def test_deleting_is_all_or_nothing_and_an_id_is_never_reused(store, make_run):
    for _ in range(3):
        store.add(make_run())
    refused(lambda: store.delete([2, 9, 2**80]), f"no runs 9, {2**80}", store.path)
    assert len(store.runs()) == 3
    store.delete([3, 2, 3])
    assert [run.id for run in store.runs()] == [1]
    assert store.add(make_run()).id == 4
    refused(lambda: store.get(2**80), f"no run {2**80}")
    refused(lambda: store.delete(range(11, 23)), "no runs 11, 12,", "19, 20 and 2 more")
    refused(lambda: store.delete(range(11, 21)), "no runs 11, 12,", "19, 20: ")


def test_the_file_is_found_by_argument_then_environment_then_data_folder(
    tmp_path, monkeypatch, make_run
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MEMLAB_STORE", raising=False)
    assert Store().path == default_store_path() == tmp_path / "data/memlab/runs.sqlite3"
    assert Store().add(make_run()).id == 1  # makes its own folder
    monkeypatch.setenv("MEMLAB_STORE", "~/lab.sqlite3")
    assert Store().path == Path.home() / "lab.sqlite3"
    assert Store("other.sqlite3").path == Path("other.sqlite3")


def test_any_file_name_is_a_file_name(tmp_path, make_run):
    path = tmp_path / "50% ä?mode=ro#1.sqlite3"
    Store(path).add(make_run())
    assert [*tmp_path.iterdir()] == [path]


def foreign_text(path):
    path.write_text("kernel,time\nnaive,3.2\n" * 100)


def foreign_database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    connection.close()


def newer_store(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE experiments (id INTEGER)")
        connection.execute(f"PRAGMA application_id = {0x6D6C6162}")
        connection.execute("PRAGMA user_version = 5")
    connection.close()


def damaged_store(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
        connection.execute(f"PRAGMA application_id = {0x6D6C6162}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(content)


def store_and(*statements):
    """A store of ours in which someone has made something of their own."""

    def make(path):
        with StoreFile(path).open_for_writing() as connection:
            for statement in statements:
                connection.execute(statement)

    return make


# A view like these may also be WITH RECURSIVE, and never end.
VIEW = "CREATE VIEW runs AS SELECT 1 AS id, 'naive' AS kernel, '{}' AS document"
TRIGGER = "CREATE TRIGGER lose AFTER INSERT ON runs BEGIN DELETE FROM runs; END"
GENERATED = "ALTER TABLE runs ADD COLUMN more TEXT AS (upper(document)) VIRTUAL"
CHECKED = "CREATE TABLE runs (id INTEGER, document TEXT CHECK (length(document) < 9))"

# A view that is named like a table of statistics.
DISGUISED = (
    "CREATE VIEW seen AS SELECT 1",
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_schema SET name = 'sqlite_stat9', tbl_name = 'sqlite_stat9',"
    " sql = replace(sql, 'seen', 'sqlite_stat9') WHERE name = 'seen'",
)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (store_and("DROP TABLE runs", VIEW), ["not a memlab store", "view runs"]),
        (store_and(TRIGGER), ["not a memlab store", "trigger lose"]),
        (store_and(GENERATED), ["not a memlab store", "table runs"]),
        (store_and("DROP TABLE runs", CHECKED), ["not a memlab store", "table runs"]),
        (store_and("DROP TABLE peaks"), ["not a memlab store", "table peaks"]),
        (store_and("PRAGMA user_version = -1"), ["not a memlab store", "makes no schema -1"]),
        (store_and("PRAGMA user_version = 0"), ["not a memlab store", "makes no schema 0"]),
        (store_and(*DISGUISED), ["not a memlab store", "view sqlite_stat9"]),
        (foreign_text, ["not a memlab store", "not an SQLite database", "--store"]),
        (foreign_database, ["not a memlab store", "another program's", "--store"]),
        (newer_store, ["newer memlab", "schema 5", "up to 4", "update memlab"]),
        (damaged_store, ["damaged", "--store"]),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(store, make_run, make, expected):
    make(store.path)
    before = store.path.read_bytes()
    for action in (
        store.runs,
        store.check,
        lambda: store.get(1),
        lambda: store.add(make_run()),
        lambda: store.delete([1]),
    ):
        refused(action, store.path, *expected)
    assert store.path.read_bytes() == before
    assert [*store.path.parent.iterdir()] == [store.path]


def test_statistics_that_sqlite_made_do_no_harm(store, make_run):
    store.add(make_run())
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("ANALYZE")
    assert store.add(make_run()).id == 2
    assert len(store.runs()) == 2


def test_what_could_not_be_read_again_is_not_said_to_be_stored(store, make_run):
    run = make_run(kernel="k" * (2**20 + 1))
    with pytest.raises(Incomplete, match=r"not stored: .*kernel has 1048577 characters") as failure:
        store.add(run)
    assert failure.value.result == run
    assert "--output" in str(failure.value)
    assert store.runs() == []


def test_a_path_where_no_file_can_be_is_refused(tmp_path, make_run):
    refused(lambda: Store(tmp_path).runs(), "is a folder", tmp_path / "runs.sqlite3")
    refused(lambda: Store("/dev/null").add(make_run()), "/dev/null", "not a regular file")
    refused(lambda: Store(f"{tmp_path}/a\0b").add(make_run()), "NUL")
    refused(Store("~nobody-here/runs.sqlite3").check, "folder ~nobody-here does not exist")
    lost = Store(tmp_path / "lsot" / "runs.sqlite3")
    refused(lambda: lost.add(make_run()), f"mkdir -p {tmp_path / 'lsot'}")
    refused(lost.check, f"mkdir -p {tmp_path / 'lsot'}")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_an_empty_store(store, make_run):
    """Such as a kill leaves between making the file and the first write."""
    store.path.touch()
    assert store.runs() == []
    assert store.add(make_run()).id == 1


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_is_read_only_can_be_read_and_says_so_on_writing(
    make_run, what, as_ordinary_user, open_folder
):
    store = Store(open_folder / "runs.sqlite3")
    store.add(make_run())
    open_folder.chmod(0o777 if what == "file" else 0o555)
    store.path.chmod(0o444 if what == "file" else 0o666)

    assert as_ordinary_user(lambda: store.get(1)) == "no error"
    for action in (store.check, lambda: store.add(make_run()), lambda: store.delete([1])):
        message = as_ordinary_user(action)
        assert message.startswith(("UsageError: ", "Incomplete: the run is not stored: "))
        assert "cannot write the store" in message
        assert "read-only" in message
        assert "\n" not in message
    assert [*open_folder.iterdir()] == [store.path]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # Extended codes: the low byte is the primary code.
        (sqlite3.SQLITE_READONLY_DIRECTORY, ["read-only", "change the permissions"]),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, ["read-only"]),
        (sqlite3.SQLITE_PERM, ["read-only"]),
        (sqlite3.SQLITE_BUSY_RECOVERY, ["another process has held its lock", "try again"]),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, ["another process"]),
        (sqlite3.SQLITE_FULL, ["the disk is full"]),
        (sqlite3.SQLITE_IOERR_WRITE, ["fault 17", "quota"]),
        (sqlite3.SQLITE_CORRUPT_VTAB, ["damaged: fault 17", "restore it"]),
        (sqlite3.SQLITE_NOTADB, ["not an SQLite database"]),
        (sqlite3.SQLITE_TOOBIG, ["fault 17", "check its disk,"]),
        (None, ["fault 17", "check its disk,"]),
    ],
)
def test_each_error_of_sqlite_has_its_next_step(store, make_run, monkeypatch, code, expected):
    def failing(*_):
        error = sqlite3.OperationalError("fault 17")
        if code is not None:
            error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(StoreFile, "_connect", failing)
    refused(lambda: store.add(make_run()), store.path, "--store", *expected)


def test_a_folder_that_another_process_makes_meanwhile_is_used(tmp_path, monkeypatch, make_run):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MEMLAB_STORE", raising=False)
    folder, mkdir = tmp_path / "memlab", Path.mkdir

    def late(path, **options):
        mkdir(path)  # the other process
        mkdir(path, **options)

    monkeypatch.setattr(Path, "mkdir", late)
    assert Store().add(make_run()).id == 1
    assert folder.is_dir()


def test_making_folders_leaves_no_file_open(tmp_path, monkeypatch, make_run):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MEMLAB_STORE", raising=False)
    Store(tmp_path / "other.sqlite3").add(make_run())
    before = sorted(Path("/proc/self/fd").iterdir())
    Store().add(make_run())
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_lock_that_stays_is_said(store, make_run, monkeypatch):
    monkeypatch.setattr(database, "_LOCK_WAIT_S", 0.05)
    connect, waits_s = sqlite3.connect, []

    def spy(*arguments, **options):
        if options.get("uri"):  # the store itself, not the schema that it is compared with
            waits_s.append(options["timeout"])
        return connect(*arguments, **options)

    monkeypatch.setattr(database.sqlite3, "connect", spy)
    store.add(make_run())
    other = connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    refused(lambda: store.add(make_run()), "another process", "try again")
    refused(store.runs, "another process")
    assert set(waits_s) == {0.05}  # SQLite waits 5 s by itself
    other.close()
    assert store.add(make_run()).id == 2


def test_threads_that_start_a_store_together_lose_nothing(store, make_run):
    together = threading.Barrier(4)

    def write(writer):
        together.wait()
        return [store.add(make_run(tile=writer)).id for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        ids = [run_id for written in pool.map(write, range(4)) for run_id in written]
    runs = store.runs()
    assert sorted(ids) == [run.id for run in runs] == list(range(1, 21))
    assert sorted(run.measurement.tile for run in runs) == sorted(list(range(4)) * 5)
