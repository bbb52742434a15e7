"""`memlab sass`: its report, its files and its refusals. The counts are tested in `device`."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

import memlab
from memlab.cli.app import main

Capture = pytest.CaptureFixture[str]
SMALL = "tiled --width 64 --tile 16"
USER = """extern "C" __global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 3.0f;
}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("COLUMNS", "80")


def run(words: str, capsys: Capture) -> str:
    assert main(["sass", *words.split()]) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def test_machine_code_stands_beside_its_ptx_under_its_source(capsys: Capture) -> None:
    shown = run(SMALL, capsys)

    assert max(map(len, shown.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    # 4 x 4 blocks of 8 warps meet two barriers in each of 4 phases.
    assert sum(line.startswith("512 adu") and "BAR.SYNC" in line for line in lines) == 2
    assert any("LDG.E" in line and "ld.global.f32" in line for line in lines)
    assert any("M_tile[ty][tx] =" in line for line in lines)
    assert any("never executed" in line for line in lines)


def test_the_document_has_every_instruction_and_the_sums(capsys: Capture) -> None:
    document = json.loads(run(f"{SMALL} --json", capsys))

    steps = document["instructions"]
    assert sum(step["warp_executions"] for step in steps) == pytest.approx(
        document["counters"]["warp_instructions"], abs=len(steps)
    )
    loads = [step for step in steps if "LDG" in step["machine_code"]]
    # Every warp loads one element of each matrix in each phase.
    assert [step["warp_executions"] for step in loads] == [512, 512]
    assert all("ld.global" in step["ptx"] for step in loads)
    assert document["control_bits_known"]


def test_files_and_unknown_control_bits(capsys: Capture, tmp_path: Path) -> None:
    run(f"{SMALL} -o code.csv --quiet", capsys)
    with Path("code.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["pipe"] for row in rows} >= {"fma", "lsu", "cbu"}

    listing = memlab.sass("tiled", width=64, tile=16)
    without = tuple(replace(step, stall=None, waits=()) for step in listing.instructions)
    device = replace(listing.device, compute_capability=(10, 0))
    shown = memlab.report(replace(listing, instructions=without, device=device))
    assert "control bits of compute capability 10.0 are not published" in " ".join(shown.split())


def test_a_user_kernel_in_python(tmp_path: Path) -> None:
    Path("scale.cu").write_text(USER)

    listing = memlab.sass("scale.cu:scale", grid=4, block=64, args=["inout:f32[200]", 200])

    store = next(step for step in listing.instructions if step.text.startswith("STG"))
    assert (store.warps, listing.source_text(store.source_line).strip()) == (
        7,
        "if (i < n) x[i] *= 3.0f;",
    )
    assert "instructions" in repr(listing)
    assert "STG" in memlab.report(listing)
