import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from memlab.device.measurement import DeviceSummary
from memlab.errors import UsageError
from memlab.roofline import store as store_module
from memlab.roofline.serialize import run_document
from memlab.roofline.store import Store, default_store_path


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite3")


def refused(action, *said):
    """Check that an action is refused in one line that says all this."""
    with pytest.raises(UsageError) as refusal:
        action()
    message = str(refusal.value)
    assert "\n" not in message
    for each in said:
        assert str(each) in message
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
        return [run.id for run in store.runs(**choice)]

    assert ids() == [1, 2, 3, 4]
    assert ids(limit=2) == [3, 4]
    assert ids(device="H200") == [1, 2]
    assert ids(device="cuda:0", kernel="tiled") == [3]
    assert ids(device="nvidia h200") == [1, 2, 3, 4]
    assert ids(kernel="tile") == []
    refused(lambda: store.runs(limit=0), "1 or more", "got 0")


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
        connection.execute("PRAGMA user_version = 3")
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


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (foreign_text, ["not a memlab store", "not an SQLite database", "--store"]),
        (foreign_database, ["not a memlab store", "another program's", "--store"]),
        (newer_store, ["newer memlab", "schema 3", "up to 2", "update memlab"]),
        (damaged_store, ["damaged", "--store"]),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(store, make_run, make, said):
    make(store.path)
    before = store.path.read_bytes()
    for action in (
        store.runs,
        store.check,
        lambda: store.get(1),
        lambda: store.add(make_run()),
        lambda: store.delete([1]),
    ):
        refused(action, store.path, *said)
    assert store.path.read_bytes() == before
    assert [*store.path.parent.iterdir()] == [store.path]


def test_a_path_where_no_file_can_be_is_refused(tmp_path, make_run):
    refused(lambda: Store(tmp_path).runs(), "is a folder", tmp_path / "runs.sqlite3")
    refused(lambda: Store("/dev/null").add(make_run()), "/dev/null", "not a regular file")
    lost = Store(tmp_path / "lsot" / "runs.sqlite3")
    refused(lambda: lost.add(make_run()), f"mkdir -p {tmp_path / 'lsot'}")
    refused(lost.check, f"mkdir -p {tmp_path / 'lsot'}")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_an_empty_store(store, make_run):
    """Such as a kill leaves between making the file and the first write."""
    store.path.touch()
    assert store.runs() == []
    assert store.add(make_run()).id == 1


def as_ordinary_user(action):
    """Call in a child that may not do what only root may; give back its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            action()
            os.write(writer, b"no error")
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        return said.read()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_is_read_only_can_be_read_and_says_so_on_writing(make_run, what):
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        folder = Path(name)
        store = Store(folder / "runs.sqlite3")
        store.add(make_run())
        folder.chmod(0o777 if what == "file" else 0o555)
        store.path.chmod(0o444 if what == "file" else 0o666)

        assert as_ordinary_user(lambda: store.get(1)) == "no error"
        for action in (store.check, lambda: store.add(make_run()), lambda: store.delete([1])):
            said = as_ordinary_user(action)
            assert said.startswith("UsageError: cannot write the store")
            assert "read-only" in said
            assert "\n" not in said
        assert [*folder.iterdir()] == [store.path]
        folder.chmod(0o700)


def test_a_full_disk_is_said_and_loses_nothing(store, make_run, monkeypatch):
    store.add(make_run())
    connect = sqlite3.connect

    def connect_to_small_disk(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_to_small_disk)
    long = replace(make_run(), advice=("x" * 100_000,))
    refused(lambda: store.add(long), "disk is full", "free some space")
    assert [run.id for run in store.runs()] == [1]


def test_a_lock_that_stays_is_said(store, make_run, monkeypatch):
    monkeypatch.setattr(store_module, "_LOCK_WAIT_S", 0.05)
    store.add(make_run())
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    refused(lambda: store.add(make_run()), "another process", "try again")
    refused(store.runs, "another process")
    other.close()
    assert store.add(make_run()).id == 2


def test_one_run_that_cannot_be_read_is_named_and_can_be_deleted(store, make_run):
    store.add(make_run())
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE runs SET document = '{'")
    connection.close()
    refused(store.runs, "run 1", store.path, "memlab runs delete 1")
    store.delete([1])
    assert store.runs() == []


def test_writers_that_start_a_store_together_lose_nothing(store, make_run):
    together = threading.Barrier(4)

    def write(writer):
        together.wait()
        return [store.add(make_run(tile=writer)).id for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        ids = [each for written in pool.map(write, range(4)) for each in written]
    runs = store.runs()
    assert sorted(ids) == [run.id for run in runs] == list(range(1, 21))
    assert sorted(run.measurement.tile for run in runs) == sorted(list(range(4)) * 5)


WRITE_FOREVER = """
import json, sys
from memlab.roofline.serialize import run_from_document
from memlab.roofline.store import Store

store, run = Store(sys.argv[1]), run_from_document(json.loads(sys.argv[2]))
while True:
    print(store.add(run).id, flush=True)
"""


def test_what_was_reported_as_stored_survives_a_kill(store, make_run):
    document = json.dumps(run_document(make_run()))
    reported = []
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOREVER, store.path, document],
            stdout=subprocess.PIPE,
            text=True,
        )
        reported += [int(writer.stdout.readline()) for _ in range(5)]
        writer.send_signal(signal.SIGKILL)
        reported += [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        writer.stdout.close()
    kept = [run.id for run in store.runs()]
    assert set(reported) <= set(kept)
    assert len(kept) <= len(reported) + 3  # at most one stored but not yet reported each
    assert store.add(make_run()).id == kept[-1] + 1


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
