"""A store that fails after the work: the result comes all the same, one line says why, exit 2."""

from __future__ import annotations

import csv
import io
import json
import resource
import sqlite3
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from paths import DATA

import memlab
from memlab import drawing, running
from memlab.cli.app import main
from memlab.device.gpu.peaks import measure
from memlab.device.measurement import Verification
from memlab.device.properties import DeviceProperties
from memlab.errors import Incomplete
from memlab.roofline.documents.peaks import peaks_from_document
from memlab.roofline.documents.runs import run_from_document
from memlab.roofline.store import database
from memlab.roofline.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlab.launching import PreparedLaunch
    from memlab.roofline.run import Run

RESULTS = DATA / "h200-peaks.json"
NOT_STORED = "memlab: error: the run is not stored: cannot write the store "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a store of one run on another device."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    memlab.run("naive", device="t4", keep=True, width=8)
    return tmp_path


@contextmanager
def full_disk() -> Iterator[None]:
    """Let this process write to no file, as a disk or a quota that is full: root's neither."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def busy_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another process writes to the store, for longer than memlab waits; reading goes on."""
    monkeypatch.setattr(database, "_LOCK_WAIT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("words", ["", "--json", "--csv", "-o run.json", "-o run.csv"])
def test_a_run_on_a_full_disk_is_printed(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with full_disk():
        code = main(["run", "naive", "--width", "8", "-q", *words.split()])

    out, err = capsys.readouterr()
    assert code == 2
    if "json" in words:
        run = run_from_document(json.loads(out))
        assert (run.id, run.measurement.kernel) == (None, "naive")
    elif "csv" in words:
        (row,) = csv.DictReader(io.StringIO(out))
        assert (row["id"], row["kernel"]) == ("", "naive")
    else:
        assert "not stored" in out
        assert "passed, " in out
    not_stored, *not_written = err.splitlines()
    assert not_stored.startswith(NOT_STORED)
    assert [line.startswith("memlab: error: cannot write run.") for line in not_written] == (
        [True] if "-o" in words else []
    )
    assert [run.measurement.device.key for run in Store().runs()] == ["t4"]
    assert {path.name for path in folder.iterdir()} == {"runs.sqlite3"}


def test_a_run_that_is_written_to_a_file_and_not_to_the_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with busy_store(folder / "runs.sqlite3", monkeypatch):
        assert main(["run", "naive", "--width", "8", "-q", "-o", "run.json"]) == 2

    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(NOT_STORED)
    assert "another process" in err
    assert err.count("\n") == 1
    assert run_from_document(json.loads(Path("run.json").read_text())).id is None


def test_a_store_that_becomes_read_only_during_the_work(
    open_folder: Path,
    as_ordinary_user: Callable[[Callable[[], object]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = running.run_prepared

    def and_meanwhile(prepared: PreparedLaunch, **choices: Any) -> Run:
        run = work(prepared, **choices)
        (open_folder / "own").chmod(0o555)
        return run

    def attempt() -> None:
        (open_folder / "own").mkdir()
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            words = "run naive --width 8 --device h200 --json --store"
            code = main([*words.split(), str(open_folder / "own" / "runs.sqlite3")])
        (open_folder / "own").chmod(0o755)
        assert code == 2
        assert json.loads(out.getvalue())["verification"]["status"] == "passed"
        assert err.getvalue().startswith(NOT_STORED)
        assert "read-only" in err.getvalue()
        assert list((open_folder / "own").iterdir()) == []

    memlab.run("naive", device="h200", width=8)  # what it imports root may read
    monkeypatch.setattr(running, "run_prepared", and_meanwhile)
    assert as_ordinary_user(attempt) == "no error"


def test_a_wrong_result_is_said_too(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make_run: Callable[..., Run],
) -> None:
    wrong = make_run(verification=Verification("failed", 0.5, 2.7e-5, 9, 9))
    monkeypatch.setattr(running, "run_prepared", lambda *_, **__: wrong)
    with full_disk():
        assert main(["run", "naive", "--width", "8"]) == 2

    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith(NOT_STORED)
    assert err[1].startswith("memlab: verification failed")


def test_peaks_on_a_full_disk_are_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gpu:
        key, kind = "cuda:0", "cuda"
        properties = DeviceProperties("NVIDIA H200", (9, 0))

    known = peaks_from_document(json.loads(RESULTS.read_text()))
    monkeypatch.setattr("memlab.querying.open_device", lambda name: Gpu())
    monkeypatch.setattr(measure, "measure_peaks", lambda index, properties, progress: known)
    with full_disk():
        assert main(["peaks", "--json"]) == 2

    out, err = capsys.readouterr()
    assert peaks_from_document(json.loads(out)).rates == known.rates
    assert err.startswith("memlab: error: the peaks are not stored: cannot write the store ")
    assert err.count("\n") == 1


@pytest.fixture
def short_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (("naive", {"width": 32}), ("tiled", {"width": 32, "tile": 8}))
    monkeypatch.setattr(drawing, "DEFAULT_LADDER", steps)


@pytest.mark.usefixtures("short_ladder")
def test_a_roofline_is_drawn_of_runs_that_are_not_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with busy_store(folder / "runs.sqlite3", monkeypatch):
        assert main(["roofline", "-q"]) == 2
        with pytest.raises(Incomplete) as notebook:
            drawing.record_roofline()

    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("memlab: error: 2 runs are not stored: cannot write the store ")
    assert "another process" in err
    assert err.count("\n") == 1
    assert (folder / "roofline.png").read_bytes().startswith(b"\x89PNG")
    assert "tiled" in (folder / "roofline.csv").read_text()
    assert len(notebook.value.result.frame()) == 2


@pytest.fixture
def damaged(folder: Path, make_run: Callable[..., Run]) -> Store:
    """Runs 1 to 4, of which a newer memlab has written 3."""
    store = Store()
    for kernel in ("naive", "tiled", "copy"):
        store.add(make_run(kernel=kernel))
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(
            "UPDATE runs SET document = json_set(document, '$.schema_version', 2) WHERE id = 3"
        )
        connection.commit()
    return store


@pytest.mark.parametrize("words", ["runs", "runs --json", "runs export --csv"])
def test_a_run_that_cannot_be_read_is_named_and_the_others_are_given(
    words: str, damaged: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2

    out, err = capsys.readouterr()
    assert "naive" in out
    assert "copy" in out
    assert "tiled" not in out
    (message,) = (line for line in err.splitlines() if not line.startswith("~"))
    assert message.startswith(f"memlab: error: run 3 in {damaged.path} cannot be read")
    assert "'memlab runs delete 3'" in message
    assert main([*words.split(), "--kernel", "naive"]) == 0


def test_a_roofline_is_drawn_of_the_runs_that_can_be_read(
    damaged: Store, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", "-q"]) == 2

    assert "run 3 in" in capsys.readouterr().err
    data = (folder / "roofline.csv").read_text()
    assert "copy" in data
    assert "tiled" not in data


def test_all_are_deleted_also_those_that_cannot_be_read(damaged: Store) -> None:
    assert main(["runs", "delete", "--all", "--yes", "-d", "h200"]) == 0
    assert damaged.ids() == [1]
    assert main(["runs", "delete", "--all", "--yes"]) == 0
    assert damaged.ids() == []
