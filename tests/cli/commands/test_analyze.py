"""`memlab analyze`: the lessons' figures, from emulation on any machine."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from memlab.cli.app import main
from memlab.device.emulation import device
from memlab.device.machine_code.disassembly import DisassemblyError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("COLUMNS", "80")


def document(words: str, capsys: Capture) -> dict[str, Any]:
    assert main(["analyze", *words.split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    found: dict[str, Any] = json.loads(out)
    return found


def ratio(words: str, capsys: Capture) -> dict[str, Any]:
    found: dict[str, Any] = document(words, capsys)["compute_to_global_memory_access_ratio"]
    return found


def test_naive_on_the_a100(capsys: Capture) -> None:
    """The lessons' 2 FLOP / 8 B = 0.25 FLOP/B x 1555 GB/s, 2% of 19.5 TFLOP/s."""
    found = ratio("naive -d a100 --width 64", capsys)
    assert found["flop_per_byte"] == 0.25
    assert found["flop_per_access"] == 1.0
    assert found["bound_flop_per_s"] == pytest.approx(388.75e9, rel=1e-12)
    assert found["fraction_of_peak"] == pytest.approx(0.02, abs=0.0005)
    assert found["region"] == "loops"

    assert main(["analyze", "naive", "-d", "a100", "--width", "64"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ratio 0.25 FLOP/B in the loops: 1 FLOP for each 4 bytes requested" in shown
    assert "bound 388.75 GFLOP/s, 2.0% of 19.5 TFLOP/s FP32" in shown


def test_the_textbook_device_needs_48_operations_an_access(capsys: Capture) -> None:
    """12 TFLOP/s over 1000 GB/s / 4 B = 250 G values a second."""
    assert ratio("naive -d pmpp --width 32", capsys)["needed_flop_per_access"] == 48.0


def test_a_narrow_listing_keeps_its_line_numbers(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["analyze", "naive", "--width", "16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= 40 for line in lines)
    assert any(line.startswith("17   ") and "M[row * k + i]" in line for line in lines)


@pytest.mark.parametrize("tile", [2, 4, 16, 32])
def test_a_tile_multiplies_the_ratio_by_its_width(tile: int, capsys: Capture) -> None:
    found = ratio(f"tiled -d a100 --width 64 --tile {tile}", capsys)
    assert found["flop_per_byte"] == 0.25 * tile


def test_boundary_checks_are_measured_against_both_multiples(capsys: Capture) -> None:
    """Width 100 in tiles of 16 launches 112 x 112 threads and multiplies 112^3 pairs."""
    found = document("tiled --width 100 --tile 16", capsys)["boundary"]
    lower, case, upper = (found[name] for name in ("lower", "case", "upper"))
    assert [launch["parameters"]["width"] for launch in (lower, case, upper)] == [96, 100, 112]
    assert [launch["threads"] for launch in (lower, case, upper)] == [96**2, 112**2, 112**2]
    assert case["flop_executed"] == upper["flop_executed"] == 2 * 112**3
    assert lower["lanes_off"] == upper["lanes_off"] == 0 < case["lanes_off"]
    # The same loops as at 112 for 100^3 / 112^3 of the work.
    assert upper["wasted_lanes_fraction"] == pytest.approx(1 - (100 / 112) ** 3, abs=0.01)
    assert document("tiled --width 96 --tile 16", capsys)["boundary"] is None


def test_lines_carry_what_they_did(capsys: Capture) -> None:
    """Transposing through 32 x 32 words: the column's read takes 32 wavefronts, 31 too many."""
    assert main(["analyze", "transpose-shared", "--width", "64", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    (load,) = (row for row in rows if "= a[" in row["text"])
    (store,) = (row for row in rows if "b[" in row["text"] and "square[threadIdx.x]" in row["text"])
    requests = 64 * 64 // 32
    for row in (load, store):
        assert int(row["global_requests"]) == requests
        assert float(row["sectors_per_request"]) == 4.0
        assert float(row["bus_utilisation"]) == 1.0
    assert int(load["shared_excessive_wavefronts"]) == 0
    assert int(store["shared_excessive_wavefronts"]) == 31 * requests
    assert sum(float(row["heat"]) for row in rows) == pytest.approx(1.0)


def accesses(line: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Sectors per request and bus utilisation, by direction and array."""
    return {
        f"{access['direction']} {access['array']}": (
            access["sectors_per_request"],
            access["bus_utilisation"],
        )
        for access in line["accesses"]
    }


def test_a_line_that_loads_and_stores_tells_them_apart(capsys: Capture) -> None:
    """Transposing: rows are read whole, of a column's sectors each gives one word of eight."""
    lines = document("transpose --width 64", capsys)["lines"]
    (line,) = (line for line in lines if "b[" in line["text"] and "a[" in line["text"])
    assert accesses(line) == {"load a": (4.0, 1.0), "store b": (32.0, 0.125)}
    assert line["sectors_per_request"] == 18.0

    assert main(["analyze", "transpose", "--width", "64"]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    requests = 64 * 64 // 32
    assert f"load a 11.1% {requests} 4 100%" in shown
    assert f"store b 88.9% {requests} 32 12.5%" in shown


def test_two_operands_in_one_line_have_figures_of_their_own(capsys: Capture) -> None:
    """Down a column 32 lanes want 32 sectors, along a row one word is for all of them."""
    lines = document("matmul-column-major --width 64", capsys)["lines"]
    (product,) = (line for line in lines if "sum +=" in line["text"])
    assert accesses(product) == {"load N": (32.0, 0.125), "load M": (1.0, 0.125)}


def test_accesses_to_different_memories_need_no_rows(capsys: Capture) -> None:
    assert main(["analyze", "transpose-shared", "--width", "64"]) == 0
    out = capsys.readouterr().out
    assert "load a" not in out
    assert "store square" not in out


def test_divergent_constants_show_their_passes(capsys: Capture) -> None:
    """Each of 16 threads begins at another tap: 16 passes a load."""
    words = "filter-constant-divergent --n 4096"
    lines = document(words, capsys)["lines"]
    (line,) = (line for line in lines if "sum +=" in line["text"])
    assert line["passes_per_request"] == 16.0
    assert line["constant_passes"] == 16 * line["constant_requests"] == 4096 * 16 // 32 * 16

    assert main(["analyze", *words.split()]) == 0
    out = capsys.readouterr().out
    assert "passes" in out
    assert main(["analyze", "filter-registers", "--n", "4096"]) == 0
    assert "passes" not in capsys.readouterr().out


def test_local_memory_has_its_share_of_the_traffic(capsys: Capture) -> None:
    """A local array of 16 words: a line for each of a warp's loads of it, as of shared memory."""
    found = document("filter-local --n 4096", capsys)
    (line,) = (line for line in found["lines"] if "sum +=" in line["text"])
    loads = 4096 * 16 // 32
    assert line["local_sectors"] == 4 * loads == found["counters"]["local_load_sectors"]
    port = 32 * (line["global_sectors"] + line["local_sectors"])
    assert line["heat"] == pytest.approx(port / found["bytes"]["l1"])


def test_flops_of_the_algorithm_and_executed_ones_stand_side_by_side(capsys: Capture) -> None:
    """Blur: ten a pixel declared, and a division by nine that takes about ten in the machine."""
    found = document("blur --width 64 --height 64", capsys)
    assert found["flop_executed"] == found["counters"]["flop_fp32"] > 1.5 * found["flop"]
    assert main(["analyze", "blur", "--width", "64", "--height", "64"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    both = f"{found['flop'] / 1e3:.1f} k of the algorithm, {found['flop_executed'] / 1e3:.1f} k"
    assert f"FLOP {both} executed" in shown
    assert main(["analyze", "naive", "--width", "64"]) == 0
    assert "of the algorithm" not in capsys.readouterr().out


def test_a_warp_on_a_partial_block_has_lanes_off(capsys: Capture) -> None:
    """Blocks of 2 x 2 threads fill 4 lanes of a warp's 32."""
    lines = document("naive --width 4 --tile 2", capsys)["lines"]
    (product,) = (line for line in lines if "sum +=" in line["text"])
    assert product["lanes_off"] == 7 * product["thread_instructions"]
    assert product["flop"] == 2 * 4**3


def test_json_keys(capsys: Capture) -> None:
    found = document("naive --width 20", capsys)
    assert found["schema_version"] == 1
    assert set(found) == {
        "schema_version",
        "kernel",
        "parameters",
        "device",
        "launch",
        "resources",
        "coverage",
        "flop",
        "flop_executed",
        "iop_executed",
        "compute_to_global_memory_access_ratio",
        "intensity_flop_per_byte",
        "bytes",
        "counters",
        "stall_clocks_per_instruction",
        "boundary",
        "lines",
        "verification",
    }
    assert set(found["intensity_flop_per_byte"]) == {"requested", "l1", "l2", "dram", "compulsory"}
    assert found["verification"]["status"] == "passed"


def test_lines_have_their_machine_code_and_where_warps_wait(capsys: Capture) -> None:
    """Each phase of a tile: 16 steps of two loads of shared memory and an FMA, and two barriers."""
    found = document("tiled --width 64 --tile 16", capsys)
    lines = {line["text"].strip(): line for line in found["lines"]}
    product = lines["sum += M_tile[ty][t] * N_tile[t][tx];"]
    warps, phases = 64 * 64 // 32, 4
    assert product["instructions_by_pipe"]["fma"] == warps * phases * 16
    # A load of 16 bytes serves four steps with elements of M.
    assert product["instructions_by_pipe"]["lsu"] == warps * phases * (16 + 4)
    barriers = [line for text, line in lines.items() if text.startswith("__syncthreads();")]
    for barrier in barriers:
        assert barrier["instructions_by_pipe"] == {"adu": warps * phases}
        assert max(barrier["stalls"], key=barrier["stalls"].get) == "barrier"
    assert lines["float sum = 0.0f;"]["stalls"] is None
    known = [line["stalls"] for line in found["lines"] if line["stalls"]]
    assert 0.9 < sum(sum(stalls.values()) for stalls in known) <= 1 + 1e-9
    assert found["stall_clocks_per_instruction"]["selected"] == 1

    assert main(["analyze", "tiled", "--width", "64", "--tile", "16", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    (row,) = (row for row in rows if row["text"].strip().startswith("sum +="))
    assert int(row["instructions_fma"]) == warps * phases * 16
    assert float(row["stall_selected"]) == pytest.approx(product["stalls"]["selected"])


def test_nothing_is_said_of_stalls_where_there_is_no_machine_code(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise DisassemblyError("no nvdisasm")

    monkeypatch.setattr(device, "read_flow_graph", unreadable)
    assert main(["analyze", "naive", "--width", "32"]) == 0
    assert "Machine code" not in capsys.readouterr().out
    found = document("naive --width 32", capsys)
    assert found["stall_clocks_per_instruction"] == {}
    assert all(line["stalls"] is line["instructions_by_pipe"] is None for line in found["lines"])


def test_the_report_fits_80_columns_without_colour(capsys: Capture) -> None:
    assert main(["analyze", "tiled", "--width", "100"]) == 0
    out = capsys.readouterr().out
    assert "Machine code by line" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    # A source line that is folded loses nothing.
    assert "N[j * n + column]" in " ".join(out.split())


def test_a_page_is_written_once(tmp_path: Path, capsys: Capture) -> None:
    assert main(["analyze", "naive", "--width", "20", "-o", "naive.html"]) == 0
    assert "wrote naive.html" in capsys.readouterr().err
    assert (tmp_path / "naive.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["analyze", "naive", "--width", "20", "-o", "naive.html"]) == 2
    assert "naive.html exists: add --overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "which kernel? for example 'memlab analyze naive'"),
        ("naiv", "unknown kernel 'naiv': did you mean 'naive'?"),
        ("naive --json --csv", "--json and --csv were both given"),
        ("naive -o naive.txt", "use .html, .json or .csv"),
        ("naive -o nowhere/naive.html", "the folder nowhere does not exist"),
        ("naive -d h20", "no datasheet 'h20': did you mean"),
        ("tiled --tile 64", "4096 threads per block; NVIDIA H200 allows 1024: use --tile 32"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["analyze", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
