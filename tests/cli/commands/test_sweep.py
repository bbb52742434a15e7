"""`memlab sweep`: its table, its files, its exit codes, and Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from memlab.cli.app import main
from memlab.roofline.store.store import Store

SOURCE = """\
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n + OFFSET) y[i] = 2 * x[i];
}
"""
HASH = """extern "C" __global__ void hash(int* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
  for (int k = 0; k < R; ++k) v = (v << 3) ^ (v >> 7) ^ k;
  y[i] = v;
}
"""
SCALE = (
    "scale.cu:scale --set N=1K,4K --set B=64:256:x2 -D OFFSET=0 --grid 'ceil(N/B)' --block B "
    "--arg 'f32[N]' --arg 'out:f32[N]' --arg N"
)
Sweep = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sweep:
    """Runs a command line; gives its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "scale.cu").write_text(SOURCE)

    def run(words: str) -> tuple[int, str, str]:
        code = main(["sweep", *shlex.split(words)])
        return code, *capsys.readouterr()

    return run


def test_the_table_has_all_points_at_80_columns_and_says_why_others_are_not_done(
    sweep: Sweep,
) -> None:
    code, shown, said = sweep("naive,tiled --width 32,64 --tile 8,16,64 -d h200,a100")

    assert (code, said) == (0, "")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    header = next(line for line in lines if "time" in line and "GFLOP/s" in line)
    assert header.split()[:4] == ["kernel", "device", "width", "tile"]
    rows = lines[lines.index(header) + 1 :][:16]
    assert {tuple(row.split()[:4]) for row in rows} == {
        (kernel, device, width, tile)
        for kernel in ("naive", "tiled")
        for device in ("h200", "a100")
        for width in ("32", "64")
        for tile in ("8", "16")
    }
    assert "8 points: impossible" in shown
    assert "allows 1024" in shown
    assert "stored as sweep-1" in shown


def test_integer_kernels_have_their_own_rate_and_bound(sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "hash.cu").write_text(HASH)
    words = "hash.cu:hash --set N=64K -D R=256,512 --grid N/256 --block 256 --arg out:i32[N]"
    code, shown, _ = sweep(words)

    assert code == 0
    assert "GOP/s" in shown
    assert shown.count("INT ALU") == 2
    rates = [float(line.split()[3].replace(",", "")) for line in shown.splitlines()[-2:]]
    for run, rate in zip(Store().runs(), rates, strict=True):
        measured = run.measurement
        per_s = measured.counters.iop_alu / measured.time.median_s
        assert rate == pytest.approx(per_s / 1e9, rel=0.006)


def test_files_hold_the_same_points_and_a_picture_is_drawn(sweep: Sweep, tmp_path: Path) -> None:
    code, shown, said = sweep(f"{SCALE} -o points.csv --plot picture.png")
    assert (code, shown) == (0, "")
    assert said.count("\n") == 2
    rows = list(csv.DictReader((tmp_path / "points.csv").open()))
    assert [(row["N"], row["B"], row["status"]) for row in rows] != []
    assert len(rows) == 6
    assert (tmp_path / "picture.csv").read_text() == (tmp_path / "points.csv").read_text()
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

    code, shown, _ = sweep(f"{SCALE} --json")
    document = json.loads(shown)
    assert code == 0
    assert [row["point"]["B"] for row in document["rows"]] == [int(row["B"]) for row in rows]
    assert all(row["reused"] for row in document["rows"])
    assert [row["run"]["id"] for row in document["rows"]] == [int(row["id"]) for row in rows]

    code, shown, _ = sweep(f"{SCALE} --csv --no-store --objective warp_instructions")
    counts = [float(row["value"]) for row in csv.DictReader(io.StringIO(shown))]
    assert code == 0
    assert counts == sorted(counts)
    assert len(Store().ids()) == 6


def test_a_picture_may_be_the_output(sweep: Sweep, tmp_path: Path) -> None:
    code, shown, said = sweep("tiled --width 32 --tile 8 --tile 16,32 -o tiles.svg")

    assert code == 0
    assert "3 of 3 points done" in shown
    assert said == "memlab: wrote tiles.svg and tiles.csv\n"
    assert b"<svg" in (tmp_path / "tiles.svg").read_bytes()
    assert sweep(f"{SCALE} --set N=2K -q")[1].startswith("scale.cu:scale")
    assert "9 points done" in sweep(f"{SCALE} --set N=2K -q")[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (SCALE.replace("OFFSET=0", "OFFSET=0,512").replace("(N/B)", "(N/B)+1"), 1, ""),
        ("tiled --tile 64", 2, "no point could run"),
        ("tiled --tile 64 --csv", 2, "no point could run: tile 64 needs 64 x 64"),
        ("tiled --objective energy", 3, "choose a GPU with --device 0"),
        ("tiled --scheduler nowhere", 2, "write tcp://host:8786"),
        ("tiled --scheduler http://host:8786", 2, "write tcp://host:8786"),
        ("tiled --workers two", 2, "'two' is not a whole number"),
        ("tiled --width 8:4:2", 2, "width: the range '8:4:2' has no step"),
        ("tiled -o a.png --plot b.png", 2, "both name a picture"),
        ("tiled tilde", 2, "unknown kernel 'tilde'"),
        ("--resume", 2, "to resume"),
        ("", 2, "which kernel?"),
    ],
)
def test_exit_codes(sweep: Sweep, words: str, code: int, said: str) -> None:
    found, _, message = sweep(words)

    assert found == code
    assert said in message
    assert message.count("\n") == bool(said)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_ctrl_c_keeps_what_is_done_and_resume_does_the_rest(
    sweep: Sweep, tmp_path: Path, more: list[str]
) -> None:
    words = ["sweep", "tiled", "--width", "256:768:+64", "--tile", "8,16"]
    process = subprocess.Popen(
        [sys.executable, "-m", "memlab", *words, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    deadline = time.monotonic() + 60
    while not Store().ids():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=30)

    assert (process.returncode, shown) == (130, "")
    assert said.count("\n") == 1
    kept = len(Store().ids())
    assert f"interrupted: {kept} of 18 points of sweep-1 are kept" in said
    code, shown, _ = sweep("--resume")
    assert code == 0
    assert f"18 of 18 points done, {kept} from earlier runs" in shown
    runs = [tuple(run.measurement.parameters.items()) for run in Store().runs()]
    assert len(runs) == len(set(runs)) == 18
