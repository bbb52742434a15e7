"""`memlab trace`: its report, its files and its refusals. The steps are tested in `device`."""

import json
import re
from pathlib import Path

import pytest

from memlab.cli.app import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("COLUMNS", "80")


def run(words: str, capsys: Capture) -> str:
    """Run the command; its output as one line."""
    assert main(["trace", *words.split()]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80
    return " ".join(out.split())


def test_the_steps_of_the_lesson(capsys: Capture) -> None:
    shown = run("naive --width 4 --tile 2 --block 0,1 --thread 1,1", capsys)
    for fact in (
        "block (0, 1) thread (1, 1)",
        "1 17 M[12] * N[1] M[3][0] * N[0][1]",
        "4 17 M[15] * N[13] M[3][3] * N[3][1]",
        "write P[13] write P[3][1]",
        "M 16 8, 2 times each 16, 4 times each",
        "N 16 8, 2 times each 16, 4 times each",
    ):
        assert fact in shown


def test_the_phases_table(capsys: Capture) -> None:
    shown = run("tiled --width 4 --tile 2", capsys)
    for fact in (
        "Phase 1 of 2",
        "thread (1, 0) M[0][1] → M_tile[0][1] M_tile[0][0] * N_tile[0][1] "
        "N[0][1] → N_tile[0][1] + M_tile[0][1] * N_tile[1][1]",
        "M 16 8, once each 16, 2 times each",
        "the grid reads each element 2 times where it would be 4 times without shared memory, "
        "2 times as often",
    ):
        assert fact in shown


def test_phases_without_the_followed_thread_are_shown(tmp_path: Path, capsys: Capture) -> None:
    source = """__global__ void sum(const float* a, float* b) {
      __shared__ float s[4];
      int t = threadIdx.x;
      s[t] = a[t];
      __syncthreads();
      for (int d = 2; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
      }
      if (t == 0) b[0] = s[0];
    }"""
    (tmp_path / "sum.cu").write_text(source)
    words = "sum.cu:sum --grid 1 --block 4 --arg f32[4] --arg out:f32[1] --thread 3"
    shown = run(words, capsys)
    assert "Phase 1 of 3" in shown
    assert "Phase 3 of 3 into shared memory reads and computes thread (0, 0) computed → s[0]" in (
        shown
    )
    assert main(["trace", *words.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["phases"]
    assert [len(thread["phases"]) for thread in found] == [3, 3, 3, 3]


def test_staging_that_saves_no_read_says_so(capsys: Capture) -> None:
    shown = run("transpose-shared --width 64", capsys)
    assert "read once there, which saves no read of global memory." in shown


def test_shared_reads_without_arithmetic_are_shown(capsys: Capture) -> None:
    shown = run("bank-stride --n 64 --stride 2 --thread 3", capsys)
    assert "a[3] → words[3] write b[3] = words[6]" in shown
    assert "Thread 3, 0 writes b[3] = words[6]." in shown
    # 1024 words are stored, 64 of them read.
    assert "No more than 6.25% of what is stored in shared memory is read there." in shown


def test_matrix_products_belong_to_the_warp(capsys: Capture) -> None:
    shown = run("tensor-bf16 --width 32 --tile 64", capsys)
    assert "N[0][1] → N_tile[0][1]" in shown
    assert "32 of M_tile[0…63] × N_tile[0…15][0…7]" in " ".join(
        re.sub(r"[NM]\[\d+\]\S+ → \S+", "", shown).split()
    )
    assert "A × is a product of matrices by the thread's whole warp" in shown


def test_the_seed_decides_what_is_read(capsys: Capture) -> None:
    first = run("scattered --n 64 --thread 3 --seed 0", capsys)
    assert first == run("scattered --n 64 --thread 3", capsys)
    assert first != run("scattered --n 64 --thread 3 --seed 1", capsys)


def test_many_steps_are_abridged(capsys: Capture) -> None:
    shown = run("naive --width 512 --thread 3,2", capsys)
    assert "… 481 more …" in shown
    assert "512 17 M[1535] * N[261635] M[2][511] * N[511][3]" in shown
    assert "The grid is too large to be run whole: take smaller sizes." in shown


def test_a_thread_without_work_is_reported(capsys: Capture) -> None:
    shown = run("naive --width 5 --tile 4 --block 1,1 --thread 3,3", capsys)
    assert "Thread (3, 3) touches no memory: it has no element to compute." in shown


def test_json_keys(capsys: Capture) -> None:
    assert (
        main(["trace", "tiled", "--width", "4", "--tile", "2", "--thread", "1,0,0", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["schema_version"], found["block_index"], found["thread"]) == (
        1,
        [0, 0, 0],
        [1, 0, 0],
    )
    assert found["steps"][0] == {
        "kind": "load",
        "line": found["steps"][0]["line"],
        "phase": None,
        "space": "global",
        "array": "M",
        "index": 1,
        "subscripts": [0, 1],
        "name": "M[0][1]",
    }
    first = found["phases"][1]["phases"][0]
    assert first["staged"][1]["to"] == "N_tile[0][1]"
    assert first["staged"][1]["from"] == "N[0][1]"
    assert found["arrays"][0]["grid_reads"] == [{"reads": 2, "elements": 16}]
    assert found["shared_reads_per_store"] == 2.0


def test_a_picture_comes_with_its_data(tmp_path: Path, capsys: Capture) -> None:
    words = ["trace", "naive", "--width", "4", "--tile", "2", "--plot", "walk.svg"]
    assert main(words) == 0
    assert "wrote walk.svg and walk.csv" in capsys.readouterr().err
    assert (tmp_path / "walk.svg").read_text().startswith("<?xml")
    assert (tmp_path / "walk.csv").read_text().startswith("array,index,row,column,")
    assert main(words) == 0  # memlab replaces what it made
    assert "wrote walk.svg and walk.csv" in capsys.readouterr().err
    assert main([*words, "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["walk.svg", "walk.csv"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_report_is_printed_before_a_picture_is_refused(
    name: str, form: list[str], tmp_path: Path, capsys: Capture
) -> None:
    words = ["trace", "naive", "--width", "4", "--tile", "2", *form]
    assert main(words) == 0
    report = capsys.readouterr().out
    (tmp_path / name).write_text("mine\n")
    assert main([*words, "--plot", "walk.svg"]) == 2
    out, err = capsys.readouterr()
    assert out == report
    assert f"{name} exists: add --overwrite to replace it, or choose another file" in err
    assert "with --plot" in err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine\n")]
    assert main([*words, "--plot", "walk.svg", "--overwrite"]) == 0
    assert (tmp_path / name).read_text() != "mine\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "which kernel? for example 'memlab trace naive"),
        ("naive --block 1;2", "--block takes whole numbers x,y or x,y,z, got '1;2'"),
        ("naive --block 1,", "--block takes whole numbers x,y or x,y,z, got '1,'"),
        ("naive --thread 1,2,3,4", "--thread takes whole numbers x,y or x,y,z, got '1,2,3,4'"),
        ("naive --width 4 --tile 2 --block 2,0", "2 x 2 x 1 blocks: give --block-index 1,0"),
        ("naive --width 4 --tile 2 --thread=-1,0", "2 x 2 x 1 threads: give --thread-index 0,0"),
        ("naive --plot a.gif", "a picture cannot be saved as 'gif'"),
        ("naive --plot nowhere/a.png", "the folder nowhere does not exist"),
        ("naive --width 0", "width must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["trace", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
