"""What was reported as stored is there: after kills, among writers, on a full disk, for ever.

A kill leaves the system and its caches alive. What these tests can show is that no moment of a
write leaves a file that does not open or that lacks a reported run; that the data had also reached
the disk itself, for the power to go, they take from SQLite's `synchronous = EXTRA`.
"""

import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from paths import DATA, REPOSITORY

from memlab.errors import Incomplete, UsageError
from memlab.roofline.documents.runs import run_document
from memlab.roofline.store.database import SCHEMA_VERSION
from memlab.roofline.store.run_filter import RunFilter
from memlab.roofline.store.store import Store

WRITER = REPOSITORY / "tests" / "support" / "store_writer.py"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite3")


@pytest.fixture
def ask(tmp_path, make_run):
    """Ask of the process in `store_writer.py`, and give its answer."""
    document = tmp_path / "run.json"
    document.write_text(json.dumps(run_document(make_run())))
    with subprocess.Popen(
        [sys.executable, WRITER, document], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def answer(path, **asked):
            process.stdin.write(json.dumps({"path": str(path), **asked}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield answer
        process.stdin.close()


def rows(path):
    """Read the file with SQLite alone: `[(id, tile)]`, once it is found whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT id, document FROM runs ORDER BY id").fetchall()
    return [(run_id, json.loads(document)["tile"]) for run_id, document in found]


@pytest.mark.slow
def test_a_reported_run_survives_a_kill_at_any_moment(tmp_path, ask, make_run):
    """200 kills: 20 files, the writer that makes the file among those that are killed."""
    chance = random.Random(5)
    seen = Counter()
    for name in range(20):
        store, reported = Store(tmp_path / f"{name}.sqlite3"), []
        for kill in range(10):
            # The first has the tables to make, and mostly dies over them.
            runs, delay_s = (0, 0.006) if kill == 0 else (chance.randrange(4), 0.012)
            new = ask(store.path, runs=runs, delay_s=chance.uniform(0, delay_s))
            seen["halfway"] += Path(f"{store.path}-journal").exists()
            seen["before any"] += not (new or reported)
            reported += [tuple(line) for line in new]

            readable = store.ids()  # memlab is the first to open it again
            kept = rows(store.path) if reported or readable else []
            assert readable == [run_id for run_id, _ in kept]
            assert set(reported) <= set(kept)
            # At most one is stored and not yet reported, of each writer.
            assert len(kept) <= len(reported) + 1
            added = store.add(make_run(tile=kill))
            assert added.id == max([0, *readable]) + 1
            reported = [*kept, (added.id, kill)]
    # Else the kills missed what they were for.
    assert seen["halfway"] >= 5
    assert seen["before any"] >= 1


KILLED_HALFWAY = """
import os, signal, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # so that changes reach the file before COMMIT
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE runs SET document = hex(randomblob(100000))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_write_that_was_killed_halfway_is_undone_by_the_next_reader(store, make_run):
    for _ in range(5):
        store.add(make_run())
    before = store.path.read_bytes()
    subprocess.run([sys.executable, "-c", KILLED_HALFWAY, store.path], check=False)
    assert store.path.read_bytes() != before
    assert len([*store.path.parent.iterdir()]) == 2  # the journal that undoes it
    assert [run.id for run in store.runs()] == [1, 2, 3, 4, 5]
    assert store.path.read_bytes() == before


def test_a_write_waits_for_the_disk(store, make_run, monkeypatch):
    """What a power cut needs, which no test here can make."""
    settings = []  # and trusts nothing that a file declares

    class Watched(sqlite3.Connection):
        def close(self):
            asked = ("synchronous", "journal_mode", "trusted_schema")
            settings.append([self.execute(f"PRAGMA {name}").fetchone()[0] for name in asked])
            super().close()

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **named: connect(*given, factory=Watched, **named)
    )
    store.add(make_run())
    assert settings == [[3, b"delete", 0]]  # 3 is EXTRA


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 20])
def test_eight_processes_at_once_lose_nothing(tmp_path, ask, runs):
    """They start together on a file that none has made yet."""
    for name in range(8 if runs == 1 else 1):
        path = tmp_path / f"{name}.sqlite3"
        reported = ask(path, writers=8, runs=runs)
        assert sorted(number for _, number in reported) == list(range(8 * runs))
        assert sorted(map(tuple, reported)) == rows(path)
        assert [run_id for run_id, _ in rows(path)] == list(range(1, 8 * runs + 1))


@contextmanager
def file_size_limit(size):
    """Let no file of this process grow beyond a size, bytes; it holds for root too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_at_any_length_loses_nothing(store, make_run):
    """A quota looks like this: from the first byte on, a write is refused at some length."""
    kept = [store.add(make_run()) for _ in range(3)]
    long = replace(make_run(), advice=("x" * 60_000,))
    outcomes = set()
    for size in range(0, 140_000, 6_500):
        failure = None
        with file_size_limit(size):
            try:
                kept.append(store.add(long))
                outcomes.add("stored")
            except Incomplete as error:
                failure = error
                outcomes.add("refused")
        if failure:
            assert failure.result == long
            assert str(failure).startswith("the run is not stored: cannot write the store")
            assert "\n" not in str(failure)
        assert store.runs() == kept
        assert [run_id for run_id, _ in rows(store.path)] == [run.id for run in kept]
        assert [*store.path.parent.iterdir()] == [store.path]
    assert outcomes == {"stored", "refused"}


def test_runs_are_added_all_or_none(store, make_run):
    few = [make_run(tile=number) for number in range(3)]
    many = [replace(run, advice=("x" * 60_000,)) for run in few]
    assert [run.id for run in store.add_all(few)] == [1, 2, 3]
    with file_size_limit(100_000), pytest.raises(Incomplete) as failure:
        store.add_all(many)
    assert failure.value.result == many
    assert store.ids() == [1, 2, 3]


def test_a_store_that_never_was_is_not_made_by_a_write_that_fails(store, make_run):
    with file_size_limit(0), pytest.raises(Incomplete):
        store.add(make_run())
    assert store.runs() == []
    assert store.add(make_run()).id == 1


FILL = """
import json, sys
from pathlib import Path
from memlab.errors import Incomplete
from memlab.roofline.documents.runs import run_from_document
from memlab.roofline.store.store import Store

run, store = run_from_document(json.load(sys.stdin)), Store(sys.argv[1])
other = Path(sys.argv[1] + ".other")
other.write_bytes(bytes(20_000))
stored = []
while len(stored) < 1000:
    try:
        stored.append(store.add(run))
    except Incomplete as failure:
        print(failure)
        break
print(store.runs() == stored, len(stored) > 2)
other.unlink()
print(store.add(run).id == len(stored) + 1)
"""


def test_a_disk_that_is_full_is_said_and_loses_nothing(tmp_path, make_run):
    """A real one, of 64 KiB, where a user may mount one."""
    mount = f"mount -t tmpfs -o size=96k tmpfs {tmp_path}"
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*alone, mount], check=False).returncode:
        pytest.skip("no file system may be mounted here")
    fill = [sys.executable, "-c", FILL, tmp_path / "runs.sqlite3"]
    done = subprocess.run(
        [*alone, f'{mount} && exec "$@"', "sh", *fill],
        input=json.dumps(run_document(make_run())),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    message, *outcome = done.stdout.splitlines()
    assert "the run is not stored: cannot write the store" in message
    assert "the disk is full" in message
    assert "free some space" in message
    assert outcome == ["True True", "True"]


@pytest.fixture
def old(store):
    """The store that the first memlab to have one made: schema 1, its run 2 and 3 deleted."""
    with closing(sqlite3.connect(store.path)) as connection:
        connection.executescript((DATA / "store-schema-1.sql").read_text())
    return store


def user_version(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_an_older_store_is_read_as_it_is(old):
    before = old.path.read_bytes()
    (run,) = old.runs()
    assert run == old.get(1)
    assert run.measurement.parameters == {"m": 2048, "k": 2048, "n": 2048, "tile": 16}
    assert run.measurement.counters.global_load_sectors == 134217728
    assert run.measurement.library_time == {}
    assert old.peaks(run.measurement.device) is None
    old.check()
    assert old.path.read_bytes() == before
    assert user_version(old.path) == 1


def test_an_older_store_that_is_read_only_is_read(old, as_ordinary_user, open_folder):
    path = open_folder / "runs.sqlite3"
    shutil.copy(old.path, path)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    assert as_ordinary_user(lambda: Store(path).get(1)) == "no error"
    assert "read-only" in as_ordinary_user(Store(path).check)
    assert path.read_bytes() == old.path.read_bytes()


def test_an_older_store_is_brought_up_by_a_write(old, make_run):
    (first,) = old.runs()
    assert old.add(make_run(kernel="naive")).id == 4  # the numbers of deleted runs stay theirs
    assert [run.id for run in old.runs()] == [1, 4]
    assert old.get(1) == first
    assert user_version(old.path) == SCHEMA_VERSION > 1
    tables_query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    with closing(sqlite3.connect(old.path)) as connection:
        tables = {name for (name,) in connection.execute(tables_query)}
    assert tables == {"runs", "peaks", "sweeps", "sweep_points", "sqlite_sequence"}


def test_an_older_store_that_cannot_be_brought_up_stays_as_it_is(old, make_run):
    before = old.path.read_bytes()
    with file_size_limit(8192), pytest.raises(Incomplete):
        old.add(make_run())
    assert old.runs()
    assert old.path.read_bytes() == before


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("'{'", "cannot be read"),
        ("json_set(document, '$.schema_version', 2)", "schema_version 2; this memlab reads 1"),
        ("json_remove(document, '$.counters')", "no 'counters'"),
        ("CAST(x'7bff' AS TEXT)", "'utf-8' codec can't decode"),
        ("x'00'", "cannot be read"),
    ],
)
def test_a_run_that_cannot_be_read_hides_no_other(store, make_run, document, message):
    for kernel in ("naive", "tiled", "naive"):
        store.add(make_run(kernel=kernel))
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"UPDATE runs SET document = {document} WHERE id = 2")
        connection.commit()
    with pytest.raises(Incomplete, match=r"run 2 in .*memlab runs delete 2") as damage:
        store.runs()
    assert message in str(damage.value)
    assert "\n" not in str(damage.value)
    assert [run.id for run in damage.value.result] == [1, 3]
    assert [run.id for run in store.runs(RunFilter(kernels=("naive",)))] == [1, 3]
    assert store.get(3).id == 3
    with pytest.raises(UsageError, match="run 2"):
        store.get(2)
    assert store.add(make_run()).id == 4
    assert store.ids() == [1, 2, 3, 4]
    store.delete([2])
    assert [run.id for run in store.runs()] == [1, 3, 4]


def test_any_name_of_a_kernel_and_of_a_file_is_kept(tmp_path, make_run):
    """Such as a file name that is not UTF-8, which Linux allows."""
    store = Store(tmp_path / os.fsdecode(b"runs \xff.sqlite3"))
    name = os.fsdecode(b"caf\xe9.cu:f")
    store.add(make_run(kernel=name))
    assert [run.measurement.kernel for run in store.runs(RunFilter(kernels=(name,)))] == [name]
