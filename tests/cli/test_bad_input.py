"""Bad input end to end, in a process of its own: one line, the right code, nothing left behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.cli import output
from memlab.cli.app import main
from memlab.roofline.store.database import APPLICATION_ID, SCHEMA_VERSION
from memlab.roofline.store.store import Store

MEMLAB = [sys.executable, "-c", "import sys; from memlab.cli.app import main; sys.exit(main())"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files in the way; its store is not made yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    (tmp_path / "text").write_text("not a store")
    (tmp_path / "there.json").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name, application, version in (
        ("newer", APPLICATION_ID, SCHEMA_VERSION + 1),
        ("foreign", 0, 1),
    ):
        connection = sqlite3.connect(tmp_path / name)
        connection.execute("CREATE TABLE kept (id INTEGER)")
        connection.execute(f"PRAGMA application_id = {application}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
        connection.close()
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run tiled --tile 0", "tile must be at least 1, got 0"),
        ("run tiled --tile 64", "64 x 64 = 4096 threads per block; NVIDIA H200 allows 1024"),
        ("run tiled --tile -1", "tile must be at least 1, got -1"),
        ("run tiled --tile abc", "tile must be a whole number, got 'abc'"),
        ("run aligned --n 0K", "n must be at least 1, got 0"),
        ("run tiled --width 0", "width must be at least 1, got 0"),
        ("run tiled --width 200000", "480000000000 bytes"),
        ("run tilde", "unknown kernel 'tilde': did you mean 'tiled'"),
        ("run tiled --device h20", "did you mean 'h200'"),
        ("run tiled --bogus 8", "No such option: --bogus"),
        ("run strided --tile 8", "No such option: --tile"),
        ("run tiled --counters all", "'--counters': 'all' is not one of 'emulated', 'ncu'"),
        ("run tiled --width 8 -o nowhere/run.json", "the folder nowhere does not exist"),
        ("run tiled --width 8 -o there.json", "there.json exists: add --overwrite"),
        ("run tiled --width 8 --label=", "--label is empty: use --label before, or leave it out"),
        ("run tiled --width 8 --note=", "--note is empty"),
        ("sweep tiled --width 8 --name=", "--name is empty"),
        ("run tiled --width 8 --store text", "text is not a memlab store"),
        ("run tiled --width 8 --store foreign", "foreign is not a memlab store"),
        ("run tiled --width 8 --store newer", "newer was written by a newer memlab"),
        ("run tiled --width 8 --store folder", "the store folder is a folder"),
        ("run tiled --width 8 --store nowhere/runs", "folder nowhere does not exist"),
        ("runs --store newer", "newer was written by a newer memlab"),
        ("runs show 3", "no run 3"),
        ("devicequery --device rtx307", "did you mean 'rtx3070'"),
        ("devicequery --list --all", "--list and --all do not go together"),
    ],
)
def test_wrong_usage(
    words: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(folder)

    assert main(words.split()) == 2

    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("memlab: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert contents(folder) == before


def test_a_wrong_device_from_the_environment_says_where_it_comes_from(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", "h20")

    assert main(["run", "tiled"]) == 2
    assert capsys.readouterr().err.startswith("memlab: error: MEMLAB_DEVICE=h20: no datasheet")
    assert main(["run", "tiled", "--device", "h20"]) == 2
    assert "MEMLAB_DEVICE" not in capsys.readouterr().err


def test_memory_that_runs_out_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 1.00 GiB")

    monkeypatch.setattr(memlab, "run", run_out)

    assert main(["run", "tiled"]) == 2
    assert capsys.readouterr().err == (
        "memlab: error: memory ran out (Unable to allocate 1.00 GiB): use smaller sizes\n"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="to root nothing is read-only")
def test_a_read_only_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "naive", "--width", "8", "-q"]) == 0
    capsys.readouterr()
    (folder / "runs.sqlite3").chmod(0o444)

    assert main(["run", "naive", "--width", "8"]) == 2

    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1


def test_a_gpu_that_is_not_there(folder: Path) -> None:
    """Hidden from CUDA, a GPU is as good as absent."""
    done = subprocess.run(
        [*MEMLAB, "run", "tiled", "--device", "0"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )

    assert done.returncode == 3
    assert not done.stdout
    assert "--device h200" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "runs.sqlite3").exists()


@pytest.mark.slow
def test_an_interrupt_leaves_the_store_whole(folder: Path) -> None:
    assert main(["run", "naive", "--width", "8", "-q"]) == 0
    sizes = ["--m", "16", "--n", "16", "--k", "2000000"]  # one block that runs for minutes
    long_run = [*MEMLAB, "run", "tiled", *sizes, "-o", "run.json"]

    with subprocess.Popen(long_run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(1.5)  # into the emulation
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert not out
    assert err == b"memlab: interrupted: nothing was stored or written\n"
    assert len(Store().runs()) == 1
    assert not (folder / "run.json").exists()
    assert not list(folder.glob("*.part"))


def test_an_interrupt_tells_what_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    deliver = output.deliver
    monkeypatch.setattr("memlab.cli.commands.run._print_report", interrupt)
    assert main(["run", "aligned", "--n", "32"]) == 130
    assert capsys.readouterr().err == "memlab: interrupted: run 1 is stored\n"
    assert main(["run", "aligned", "--n", "32", "--no-store"]) == 130
    assert capsys.readouterr().err == "memlab: interrupted: nothing was stored or written\n"

    def write_and_interrupt(*what: Any) -> None:
        deliver(*what)
        raise KeyboardInterrupt

    monkeypatch.setattr("memlab.cli.commands.run.deliver", write_and_interrupt)
    assert main(["run", "aligned", "--n", "32", "-o", "run.json", "-q"]) == 130
    assert capsys.readouterr().err == (
        "memlab: interrupted: run 2 is stored and run.json is written\n"
    )


def test_an_interrupt_while_modules_load_ends_the_same(folder: Path) -> None:
    with subprocess.Popen(
        [*MEMLAB, "run", "tiled"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)

    assert process.returncode in (130, 0)  # 0 where it was done already
    assert b"Traceback" not in err


@pytest.mark.parametrize("words", ["run naive --width 8 -q", "devicequery --json", "--help"])
def test_a_full_disk_behind_stdout_is_one_line(folder: Path, words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MEMLAB, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 2
    assert done.stderr == "memlab: error: cannot write to stdout (No space left on device)\n"


@pytest.mark.parametrize(
    "words",
    [
        "devicequery",  # a table by Rich
        "devicequery --json",
        "check saxpy.cu:oob --grid 1 --block 32 --arg out:f32[8]",  # a finding that nobody reads
    ],
)
def test_a_reader_who_has_left_is_no_finding(folder: Path, words: str) -> None:
    (folder / "saxpy.cu").write_text("__global__ void oob(float* x) { x[threadIdx.x] = 1; }")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*MEMLAB, *words.split()], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)

    assert done.returncode == 141
    assert not done.stderr


@pytest.mark.slow
def test_a_picture_is_drawn_without_a_word_of_matplotlibs_caches(folder: Path) -> None:
    done = subprocess.run(
        [*MEMLAB, *["occupancy", "--threads", "128", "-o", "occupancy.png"]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"MPLCONFIGDIR": str(folder / "text" / "not a folder")},
    )

    assert done.returncode == 0
    assert done.stderr == "memlab: wrote occupancy.png and occupancy.csv\n"


@pytest.mark.parametrize(
    "words", ["run naive --width 8 -q", "runs export --csv", "devicequery", "--help", "--version"]
)
def test_what_goes_to_a_closed_stdout_is_said_to_be_lost(folder: Path, words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *MEMLAB, *words.split()],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    error = "memlab: error: cannot write to stdout (Bad file descriptor)\n"
    assert done.stderr.endswith(error)  # behind the notes
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_is_no_fault_where_nothing_goes_to_it(folder: Path) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            '"$@" >&- <&-',
            "sh",
            *MEMLAB,
            *["run", "naive", "--width=8", "-q", "-o", "a.csv"],
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "naive" in Path("a.csv").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("run tiled --tile 8 --tile 16", "--tile"),
        ("run tiled --device h200 -d a100", "--device"),
        ("analyze saxpy.cu:saxpy --grid 1 --grid 2", "--grid"),
        ("devicequery -d h200 -d a100", "--device"),
        ("runs --store a --store b", "--store"),
        ("runs show 1 --store a --store b", "--store"),
        ("roofline -o a.svg --output b.svg", "--output"),
    ],
)
def test_an_option_of_one_value_is_given_once(
    folder: Path, words: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "saxpy.cu").write_text("__global__ void saxpy(float* x) {}")

    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"memlab: error: {option} is given 2 times, and it takes one value")
    assert err.count("\n") == 1
