"""`memlab check`: what it prints and writes, and what it leaves with."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted import FOLDER

from memlab import inspection
from memlab.cli.app import main
from memlab.device.checking.findings import TOOLS, CheckFinding, SourceLocation
from memlab.device.measurement import Coverage
from memlab.device.nvidia_tools.sanitizer import SanitizerReport

Capture = pytest.CaptureFixture[str]

PAST_THE_END = (
    "past_the_end.cu:difference --grid 4 --block 256 "
    "--arg in:f32[1000] --arg out:f32[1000] --arg i32=1000"
)
PRODUCT = "--arg in:f32[{0},{0}] --arg in:f32[{0},{0}] --arg out:f32[{0},{0}] --arg i32={0}"
NO_BOUNDS = f"tiled_no_bounds.cu --grid 3,3 --block 16,16 {PRODUCT.format(40)}"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (*FOLDER.glob("*.cu"), FOLDER / "reference.py"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("COLUMNS", "80")


def document(words: str, capsys: Capture, code: int) -> dict[str, Any]:
    assert main(["check", *words.split(), "--json"]) == code
    out, err = capsys.readouterr()
    assert not err
    found: dict[str, Any] = json.loads(out)
    assert found["schema_version"] == 1
    return found


def test_a_finding_says_what_where_and_who(capsys: Capture) -> None:
    """Thread 231 of the last of 4 blocks of 256 is the last of 1000: it reads a[1000]."""
    found = document(PAST_THE_END, capsys, code=1)

    (finding,) = found["findings"]
    assert (finding["tool"], finding["kind"]) == ("memcheck", "out of bounds")
    assert (finding["element"], finding["count"]) == ("a[1000] of 1000 elements", 1)
    assert finding["at"]["line"] == 9
    assert finding["at"]["text"].startswith("if (i < n) b[i] = a[i + 1] - a[i];")
    assert (finding["at"]["block"], finding["at"]["thread"]) == ([3, 0, 0], [231, 0, 0])
    assert found["coverage"]["blocks_emulated"] == found["coverage"]["blocks_total"] == 4


def test_the_report_reads_as_a_compilers(capsys: Capture) -> None:
    assert main(["check", *PAST_THE_END.split()]) == 1
    out, err = capsys.readouterr()
    assert not err
    lines = [line.rstrip() for line in out.splitlines()]
    assert all(len(line) <= 80 for line in lines)
    start = lines.index("past_the_end.cu:9: memcheck: out of bounds")
    assert lines[start + 1].startswith("    9 | if (i < n) b[i] = a[i + 1] - a[i];")
    where = "at a[1000] of 1000 elements, by thread (231,0,0) of block (3,0,0)"
    assert lines[start + 3].strip() == where
    assert lines[-1] == "1 finding: 1 memcheck"


def test_a_clean_kernel_leaves_with_0_and_says_what_that_covers(capsys: Capture) -> None:
    assert main(["check", "tiled", "--width", "20"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("no findings in all 4 blocks; output verified")

    assert main(["check", *PAST_THE_END.split(), "-D", "FIXED"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.rstrip() == "no findings in all 4 blocks; output not verified: no reference"


def test_a_race_names_both_accesses(capsys: Capture) -> None:
    words = f"tiled_no_first_barrier.cu --grid 2,2 --block 16,16 {PRODUCT.format(32)}"
    first, second = document(words, capsys, code=1)["findings"]

    places = [(race["kind"], race["at"]["line"], race["other"]["line"]) for race in (first, second)]
    assert places == [("RAW", 22, 16), ("RAW", 22, 17)]
    assert first["element"].startswith("Mds[0][1] of 16 x 16")
    assert second["element"].startswith("Nds[1][0] of 16 x 16")
    # 4 blocks, 2 phases: each of 256 threads reads 16 elements, of which it wrote one itself.
    assert first["count"] == second["count"] == 4 * 2 * 256 * 15

    assert main(["check", *words.split()]) == 1
    out = capsys.readouterr().out
    assert "Mds[ty][tx] = M[Row * Width + ph * TILE + tx];" in out
    assert "against thread (1,0,0) of block (0,0,0)" in out


def test_only_the_tools_asked_for_are_used(capsys: Capture) -> None:
    found = document(f"{NO_BOUNDS} --tool racecheck --tool synccheck", capsys, code=1)
    assert found["tools"] == ["racecheck", "synccheck"]
    assert {finding["tool"] for finding in found["findings"]} == {"racecheck"}

    assert document(f"{NO_BOUNDS} --tool synccheck", capsys, code=0)["findings"] == []

    assert main(["check", *NO_BOUNDS.split(), "--tool", "memchek"]) == 2
    assert "did you mean 'memcheck'" in capsys.readouterr().err


def test_a_wrong_result_is_a_finding(capsys: Capture) -> None:
    words = (
        f"int_accumulator.cu --grid 2,2 --block 16,16 {PRODUCT.format(32)} "
        "--reference reference.py:product"
    )
    assert document(words, capsys, code=1)["verification"]["status"] == "failed"

    assert main(["check", *words.split()]) == 1
    out = capsys.readouterr().out
    assert "int_accumulator.cu: verification: failed" in out
    assert out.rstrip().endswith("1 finding: 1 verification")


def test_names_and_source_drive_no_terminal(capsys: Capture, tmp_path: Path) -> None:
    hostile = tmp_path / "[bold]\x1b[31m.cu"
    text = (FOLDER / "past_the_end.cu").read_text()
    hostile.write_text(text.replace("// BUG memcheck", "// [red]\x1b]0;title\x07"))

    words = PAST_THE_END.split()[1:]
    assert main(["check", f"{hostile.name}:difference", *words]) == 1

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]\\x1b[31m.cu:9: memcheck" in out
    assert "[red]" in out


def test_an_endless_kernel_ends_in_one_line(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "endless.cu").write_text(
        "__global__ void spin(volatile int* a) { while (a[threadIdx.x] < 1) {} }"
    )
    words = "endless.cu --grid 1 --block 32 --arg inout:i32[32]=zeros --timeout 1"

    assert main(["check", *words.split()]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("memlab: error: the emulator's limit of 1 s is reached")
    assert err.count("\n") == 1


def test_a_document_is_written_whole_and_over_nothing(capsys: Capture, tmp_path: Path) -> None:
    words = ["check", *PAST_THE_END.split(), "-o", "found.json"]
    assert main(words) == 1
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "found.json").read_text())["findings"]

    assert main(words) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_file_that_is_named_otherwise_is_refused_before_the_work(capsys: Capture) -> None:
    for words in ("-o found.csv", "--json -o found.csv"):
        assert main(["check", *PAST_THE_END.split(), *words.split()]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "CSV" in err
    assert not Path("found.csv").exists()


def test_a_check_that_the_time_limit_stopped_says_so_beside_its_document(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = inspection.check_prepared
    partly = Coverage(3, 16, timed_out=True)
    monkeypatch.setattr(
        inspection, "check_prepared", lambda *arguments: replace(check(*arguments), coverage=partly)
    )
    main(["check", *PAST_THE_END.split(), "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["coverage"]["blocks_emulated"] == 3
    assert "stopped at the time limit: 3 of 16 blocks" in err


def test_without_a_gpu_compute_sanitizer_is_left_out_in_one_line(capsys: Capture) -> None:
    assert main(["check", *PAST_THE_END.split(), "--with", "compute-sanitizer"]) == 1
    out, err = capsys.readouterr()
    assert "out of bounds" in out
    assert err.startswith("memlab: no compute-sanitizer: it runs on a GPU")
    assert err.count("\n") == 1


def test_both_verdicts_stand_side_by_side(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(*lines: int) -> None:
        places = [SourceLocation(line, "its line", (0, 0, 0), (1, 0, 0)) for line in lines]
        found = [
            CheckFinding("memcheck", "out of bounds", "Invalid", "global", "", p) for p in places
        ]
        report = SanitizerReport("2026.3", TOOLS, tuple(found), ("memcheck: a note",))
        monkeypatch.setattr("memlab.hardware.sanitizer_report", lambda *_, **__: report)

    with_both = f"{PAST_THE_END} --with compute-sanitizer"
    theirs(9, 7)
    found = document(with_both, capsys, code=1)
    assert found["side_by_side"] == [
        {
            "tool": "memcheck",
            "lines": [7],
            "memlab": None,
            "compute_sanitizer": "out of bounds",
        },
        {
            "tool": "memcheck",
            "lines": [9],
            "memlab": "out of bounds",
            "compute_sanitizer": "out of bounds",
        },
    ]
    assert main(["check", *with_both.split()]) == 1
    out = capsys.readouterr().out
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    assert "past_the_end.cu:7: compute-sanitizer: memcheck: out of bounds" in out
    assert "memcheck: a note" in out
    assert out.rstrip().endswith("2 findings: 1 memcheck, 1 by compute-sanitizer alone")
    rows = [line.split() for line in out.splitlines() if "memcheck, line" in line]
    assert rows == [
        ["memcheck,", "line", "7", "-", "out", "of", "bounds"],
        ["memcheck,", "line", "9", "out", "of", "bounds", "out", "of", "bounds"],
    ]

    # What it alone finds is a finding too; neither finding anything is none.
    theirs(7)
    assert document(f"{with_both} -D FIXED", capsys, code=1)["findings"] == []
    theirs()
    document(f"{with_both} -D FIXED", capsys, code=0)
