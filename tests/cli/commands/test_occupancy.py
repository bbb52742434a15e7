"""`memlab occupancy`: for kernels and for bare numbers, in text, JSON and pictures."""

import json
from pathlib import Path

import pytest

from memlab.cli.app import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: str, capsys: Capture) -> str:
    """Run the command, and give what it shows as one line."""
    assert main(["occupancy", *words.split()]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80
    return " ".join(out.split())


def test_the_lesson_of_the_rtx_3070(capsys: Capture) -> None:
    """1536 threads and 65536 registers: 42 by division, 40 by granularity."""
    shown = run("--device rtx3070 --threads 256", capsys)
    for fact in (
        "registers 40 per thread (the most at this occupancy)",
        "6 blocks per SM, 48 of 48 warps",
        "limited by warps and registers",
        "Up to 40 per thread keep 48 warps resident, full occupancy.",
        "Division gives 65,536 / 1,536 = 42, but a warp gets registers in units of 256 "
        "(8 per thread), so 42 take 48",
    ):
        assert fact in shown


def test_thresholds_are_said_in_words(capsys: Capture) -> None:
    shown = run("-d rtx3070 --threads 256 --registers 48", capsys)
    for fact in (
        "registers 5 65,536 per SM, 12,288 per block ◀ binds",
        "registers at 40 registers per thread, 1 more block (6): 100%",
        "at 49 registers per thread, 1 fewer block (4): 66.7%",
        "block size at 192 threads, 1 more block (6): 75%",
    ):
        assert fact in shown


def test_the_ends_of_a_range_have_no_threshold_beyond(capsys: Capture) -> None:
    """1024 threads are the most and 0 bytes the least; fewer than 32 registers bring nothing."""
    shown = run("-d h200 --threads 1024 --registers 32", capsys)
    assert "block size at 672 threads, 1 more block (3): 98.4% registers at 33" in shown
    assert shown.count("smaller values allow no more blocks") == 1
    assert "larger values cost no block" not in shown
    assert "Up to 32 per thread keep 64 warps resident, full occupancy." in shown
    assert "Division" not in shown  # it gives 32 too
    assert "1 block per SM" in run("-d h200 --threads 32 --shared 232448", capsys)


def test_where_no_block_fits_any_more_it_says_so(capsys: Capture) -> None:
    shown = run("-d h200 --threads 1024 --registers 64 --shared 200000", capsys)
    assert "at 65 registers per thread, no block fits any more" in shown
    assert "larger values cost no block" in shown


def test_a_kernel_is_compiled_for_the_device(capsys: Capture) -> None:
    documents = {}
    for words in ("tiled --tile 32 -d a100", "-d a100 tiled-dynamic --tile 32", "naive -d t4"):
        assert main(["occupancy", *words.split(), "--json"]) == 0
        documents[words] = json.loads(capsys.readouterr().out)
    static, dynamic, naive = documents.values()
    assert static["kernel"] == "tiled"
    assert static["parameters"]["tile"] == 32
    assert static["device"]["compute_capability"] == [8, 0]
    # Two tiles of 32 x 32 x 4 bytes, fixed or chosen at launch.
    assert static["block"]["shared_bytes_per_block"] == 8192
    assert dynamic["block"]["shared_bytes_per_block"] == 8192
    assert static["block"]["threads_per_block"] == 1024
    assert 0 < static["block"]["registers_per_thread"] <= 64
    assert naive["device"]["name"] == "Tesla T4"
    assert naive["allocation"]["shared_bytes_per_block"] == 0


def test_json_of_bare_numbers(capsys: Capture) -> None:
    assert (
        main(["occupancy", "-d", "rtx3070", "--threads", "256", "--registers", "48", "--json"]) == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["kernel"] is None
    assert document["occupancy"]["blocks_per_sm"] == 5
    assert document["occupancy"]["limits"]["warps"] == 6
    below = document["thresholds"]["registers_per_thread"]["below"]
    assert (below["value"], below["occupancy"]["blocks_per_sm"]) == (40, 6)
    assert document["thresholds"]["shared_bytes_per_block"]["below"] is None
    assert document["register_budget"] == {
        "registers_per_thread": 40,
        "by_division": 42,
        "warps_per_sm": 48,
    }


def test_curves_go_to_a_picture_with_its_data(folder: Path, capsys: Capture) -> None:
    assert (
        main(["occupancy", "-o", "curves.svg", "--threads", "256", "--registers", "32", "-q"]) == 0
    )
    assert capsys.readouterr().err == ""
    assert (folder / "curves.svg").read_text().startswith("<?xml")
    assert (folder / "curves.csv").read_text().startswith("resource,first,last,current")

    assert main(["occupancy", "--output", "curves.svg", "tiled"]) == 0
    (folder / "curves.svg").write_text("mine")
    capsys.readouterr()
    assert main(["occupancy", "--output", "curves.svg", "tiled"]) == 2
    out, err = capsys.readouterr()
    assert "per SM" in out  # the report comes first
    assert "curves.svg exists: add --overwrite" in err
    assert main(["occupancy", "--output", "curves.svg", "--overwrite", "tiled", "--tile", "8"]) == 0
    assert "wrote curves.svg and curves.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "",
            "there is no kernel and no block size: name a kernel or give numbers: "
            "'memlab occupancy tiled' or",
        ),
        ("--registers 32", "--registers and --shared need the block's size: add --threads"),
        ("--threads 0", "0 threads per block; NVIDIA H200 allows 1 to 1024: use --threads 1"),
        (
            "--threads 1025",
            "1025 threads per block; NVIDIA H200 allows 1 to 1024: use --threads 1024",
        ),
        ("--threads abc", "--threads"),
        (
            "--threads 32 --registers 0",
            "0 registers per thread; NVIDIA H200 allows 1 to 255: use --registers 1",
        ),
        (
            "--threads 32 --registers 256",
            "256 registers per thread; NVIDIA H200 allows 1 to 255: use --registers 255",
        ),
        (
            "--threads 32 --shared -1",
            "-1 bytes of shared memory per block; NVIDIA H200 allows 0 to 232448: use --shared 0",
        ),
        (
            "--threads 32 --shared 232449",
            "232449 bytes of shared memory per block; NVIDIA H200 allows 0 to 232448: "
            "use --shared 232448",
        ),
        (
            "--threads 1024 --registers 65",
            "65 registers per thread need 73728 for 1024 threads; NVIDIA H200 allows 255 per "
            "thread and 65536 per block",
        ),
        ("tild", "unknown kernel 'tild': did you mean 'tiled'"),
        ("--tile 16", "--tile belongs to a kernel, and none stands before it: name one, as in"),
        ("--threads 32 tiled", "tiled and numbers were both given"),
        ("tiled --registers 32", "tiled and numbers were both given"),
        (
            "tiled --tile 64",
            "4096 threads per block; NVIDIA H200 allows 1024: use --tile 32 or less",
        ),
        ("--threads 32 -o curves.gif", "a picture cannot be saved as 'gif'"),
        ("--threads 32 -o nowhere/curves.png", "the folder nowhere does not exist"),
        ("--threads 32 -d h20", "no datasheet 'h20': did you mean"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    words: str, message: str, folder: Path, capsys: Capture
) -> None:
    assert main(["occupancy", *words.split()]) == 2

    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("memlab: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not list(folder.iterdir())


def test_a_device_may_stand_before_the_kernel(capsys: Capture) -> None:
    """A device before the kernel's name holds, one behind it wins."""
    for words in ("-d t4 naive", "-d h200 naive -d t4"):
        assert main(["occupancy", *words.split(), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["device"]["name"] == "Tesla T4"


def test_clusters_on_the_device_are_those_that_an_h200_counts(
    folder: Path, capsys: Capture
) -> None:
    """`cudaOccupancyMaxActiveClusters` gives 30, not the 33 by division."""
    Path("k.cu").write_text(
        "__global__ void __cluster_dims__(8) k(int* x) { x[blockIdx.x * 1024 + threadIdx.x] = 1; }"
    )
    words = "k.cu --grid 1056 --block 1024"
    shown = run(words, capsys)
    assert "30 clusters of 8 blocks on the device at once, 240 blocks; the grid is 4.40" in shown
    clusters = {"cluster_blocks": 8, "active_clusters": 30, "resident_blocks": 240, "waves": 4.4}
    assert main(["occupancy", *words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clusters"] == clusters
    assert main(["occupancy", "tiled", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["clusters"] is None
    assert "on the device at once" not in run("tiled", capsys)
