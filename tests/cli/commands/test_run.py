"""`memlab run`: what it asks for, what it prints or writes, and how it ends."""

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.cli.app import main
from memlab.cli.progress import progress_bar
from memlab.device.measurement import (
    Counters,
    Coverage,
    Occupancy,
    Resources,
    Time,
    Verification,
)
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.roofline.reports.parts import capacity, percent
from memlab.roofline.reports.run import run_report, time_label
from memlab.roofline.run import Run

MakeRun = Callable[..., Run]

PARAMETERS = ("width", "m", "k", "n", "tile")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def example(make_run: MakeRun) -> Run:
    """A run whose figures the tests below look for."""
    run = make_run(
        resources=Resources(37, static_shared_bytes=2048, local_bytes_per_thread=0),
        occupancy=Occupancy(6, 48, theoretical=0.75, limiter="registers", limits={}),
        coverage=Coverage(blocks_emulated=800, blocks_total=16384),
        time=Time(2.25e-3, "modelled", bounds_s={"l1": 2.0e-3}),
        verification=Verification("passed", 3.1e-6, 2.7e-5, checked=204800, total=4194304),
    )
    placement = replace(
        run.placement,
        flop_per_s=7.636e12,
        ceiling="l1",
        ceiling_flop_per_s=43.4e12,
        fraction_of_ceiling=0.18,
    )
    return replace(run, placement=placement, advice=("This is slow.", "Do that."))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, example: Run) -> dict[str, Any]:
    """Replace `memlab.run` by a function that checks the launch and answers at once.

    Returns:
        What the command asked of it; `answer` is the run that it gives.
    """
    record: dict[str, Any] = {"answer": example}

    def run(kernel: str, **options: Any) -> Run:
        parameters = {name: options.pop(name) for name in PARAMETERS if name in options}
        find_kernel(kernel).prepare(
            parameters, Limits("NVIDIA H200", total_memory_bytes=150109880320)
        )
        record.update(kernel=kernel, parameters=parameters, options=options)
        answer: Run = record["answer"]
        return answer

    monkeypatch.setattr(memlab, "run", run)
    return record


def test_words_become_a_request(asked: dict[str, Any], tmp_path: Path) -> None:
    words = "run tiled --width 2048 --n 7 --tile 32 -d a100 --seed 3 --no-store"

    assert main([*words.split(), "--store", str(tmp_path / "runs")]) == 0

    assert asked["kernel"] == "tiled"
    assert asked["parameters"] == {"width": 2048, "m": None, "k": None, "n": 7, "tile": 32}
    assert asked["options"] == {
        "device": "a100",
        "seed": 3,
        "store": tmp_path / "runs",
        "keep": False,
        "label": "",
        "note": "",
        "progress": None,
        "counters": "emulated",
        "cublas": False,
        "samples": None,
        "timeout_s": None,
        "memory_bytes": None,
    }


def test_report_fits_80_columns_and_says_that_it_is_modelled(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "tiled"]) == 0

    out, err = capsys.readouterr()
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80
    shown = " ".join(out.split())
    for fact in (
        "width 2048, tile 16",
        "128 x 128 x 1 = 16,384 blocks",
        "37 per thread",
        "75%, 6 blocks per SM, limited by registers",
        "800 of 16,384 blocks (4.9%)",
        "global loads 33,554,432 134,217,728 4.00",
        "time ~2.25 ms modelled",
        "rate ~7.64 TFLOP/s modelled",
        "18% of 43.4 TFLOP/s (L1 / shared)",
        "passed, 204,800 of 4,194,304 outputs",
        "Advice This is slow. Do that.",
    ):
        assert fact in shown


def test_a_fraction_above_the_roof_is_flagged(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = asked["answer"]
    asked["answer"] = replace(run, placement=replace(run.placement, fraction_of_ceiling=1.07))

    main(["run", "tiled"])

    assert "107% of 43.4 TFLOP/s" in (out := capsys.readouterr().out)
    assert "invalid: above a physical limit" in out


def test_a_run_that_was_not_counted_shows_its_time_and_the_reason(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], make_run: MakeRun
) -> None:
    asked["answer"] = make_run(
        coverage=Coverage(0, 16384, not_counted="the emulator cannot call f"),
        counters=Counters(),
        flop=0,
    )

    assert main(["run", "tiled"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "not counted the emulator cannot call f" in shown
    assert "Global memory" not in shown
    assert "of the ceiling" not in shown


def test_failed_verification_is_reported_and_ends_with_1(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], make_run: MakeRun
) -> None:
    asked["answer"] = make_run(verification=Verification("failed", float("nan"), 2.7e-5, 9, 9))

    assert main(["run", "tiled", "--json"]) == 1

    out, err = capsys.readouterr()
    assert json.loads(out)["verification"]["status"] == "failed"
    assert err == ("memlab: verification failed: relative error nan, tolerance 2.7e-05\n")


@pytest.mark.parametrize("words", ["--json", "--output out.json", "--json -o out.dat -q"])
def test_json_is_the_document(
    words: str,
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:

    assert main(["run", "tiled", *words.split()]) == 0

    out, err = capsys.readouterr()
    written = list(folder.iterdir())
    assert bool(out) != bool(written)
    assert bool(err) == ("--output" in words)
    document = json.loads(out or written[0].read_text())
    assert document["kernel"] == "tiled"
    assert document["time"]["median_s"] == 2.25e-3


@pytest.mark.parametrize(("blocks", "clusters"), [(8, 30), (2, 132), (1, None)])
def test_the_clusters_that_are_active_at_once_are_those_of_an_h200(
    folder: Path, capsys: pytest.CaptureFixture[str], blocks: int, clusters: int | None
) -> None:
    """`cudaOccupancyMaxActiveClusters` of 1024 threads: tests/data/h200-active-clusters.csv."""
    Path("k.cu").write_text(
        "__global__ void k(int* x) { x[blockIdx.x * 1024 + threadIdx.x] = threadIdx.x; }"
    )
    cluster = f"--cluster {blocks}" if blocks > 1 else ""
    words = f"run k.cu --grid 16 --block 1024 {cluster} --arg out:i32[16384] -d h200 --no-store"
    assert main(words.split()) == 0
    shown = capsys.readouterr().out
    assert f"{16 // blocks} clusters, {clusters} at once" in shown or clusters is None
    assert ("at once" in shown) == (clusters is not None)
    assert main([*words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["occupancy"]["active_clusters"] == clusters


def test_csv_is_a_header_and_a_row(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "tiled", "--csv"]) == 0

    [row] = csv.DictReader(capsys.readouterr().out.splitlines())
    assert row["kernel"] == "tiled"
    assert float(row["median_s"]) == 2.25e-3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tile 0", "tile must be at least 1, got 0"),
        ("--tile -1", "tile must be at least 1, got -1"),
        ("--tile 64", "4096 threads per block; NVIDIA H200 allows 1024: use --tile 32 or less"),
        ("--tile abc", "tile must be a whole number, got 'abc'"),
        ("--width 0", "width must be at least 1, got 0"),
        ("--width 1.5", "width must be a whole number, got '1.5'"),
        (
            "--width 200000",
            "480000000000 bytes (447.0 GiB) of memory; NVIDIA H200 has 150109880320",
        ),
        ("--seed -1", "seed must be a whole number, 0 or more, got '-1'"),
        ("--json --csv", "--json and --csv were both given"),
        ("--json -o run.csv", "--json was given, and run.csv is named as CSV"),
        ("-o run.png", "cannot tell the format of run.png"),
        ("-o nowhere/run.json", "the folder nowhere does not exist"),
        ("-o there.json", "there.json exists: add --overwrite"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    words: str,
    message: str,
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    (folder / "there.json").write_text("mine")

    assert main(["run", "tiled", *words.split()]) == 2

    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("memlab: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert "kernel" not in asked, "no work may start"
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]


def test_measured_times_carry_no_mark() -> None:
    assert time_label(Time(1.8585e-3, "measured", samples=30)) == "1.86 ms"
    assert time_label(Time(1.8585e-3, "modelled")) == "~1.86 ms"


def test_formats() -> None:
    assert [capacity(size) for size in (0, 968, 8192, 232448, 150109880320)] == [
        "0 B",
        "968 B",
        "8 KiB",
        "227 KiB",
        "139.8 GiB",
    ]
    assert [percent(share) for share in (0, 1e-6, 0.049, 0.5, 1)] == [
        "0%",
        "<0.1%",
        "4.9%",
        "50%",
        "100%",
    ]


@pytest.mark.parametrize(
    ("drift", "clock"),
    [(0.0, ", steady"), (0.0076, ", moved by 0.8%"), (0.12, ", but moved by 12%: the time is not")],
)
def test_report_of_a_gpu_tells_how_sure_the_time_is(
    make_run: MakeRun, drift: float, clock: str
) -> None:
    from rich.console import Console

    time = Time(
        1.858e-3,
        "measured",
        30,
        lower_quartile_s=1.842e-3,
        upper_quartile_s=1.874e-3,
        interval_low_s=1.856e-3,
        interval_high_s=1.860e-3,
        outliers=1,
        clock_hz=1.98e9,
        clock_drift=drift,
        warm_samples=31,
        warm_median_s=1.811e-3,
        event_pair_s=1.28e-6,
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(run_report(make_run(time=time)))

    shown = " ".join(console.export_text().split())
    for fact in (
        "time 1.86 ms measured, median of 30, caches cold",
        "1.84 ms to 1.87 ms, half of the samples; 1 outlier",
        "\N{PLUS-MINUS SIGN}0.1%, 95% confidence of the median",
        "caches warm 1.81 ms, median of 31",
        f"SM clock 1980 MHz{clock}",
    ):
        assert fact in shown
    assert "~" not in shown
    assert "events" not in shown  # 1.28 us would be less than a thousandth


@pytest.mark.parametrize(
    ("samples", "fact"),
    [
        (1, "a single sample, so its variation is not known"),
        (3, "3.50 \N{MICRO SIGN}s to 3.80 \N{MICRO SIGN}s, the smallest and largest of 3"),
    ],
)
def test_report_of_a_few_samples_claims_no_confidence(
    make_run: MakeRun, samples: int, fact: str
) -> None:
    from rich.console import Console

    figures = {"minimum_s": 3.5e-6, "lower_quartile_s": 3.55e-6, "upper_quartile_s": 3.7e-6}
    time = Time(3.6e-6, "measured", samples, maximum_s=3.8e-6, **figures)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(run_report(make_run(time=time)))

    shown = " ".join(console.export_text().split())
    assert fact in shown
    assert "confidence" not in shown
    assert "half of the samples" not in shown


def test_report_tells_what_two_events_add_to_a_short_time(make_run: MakeRun) -> None:
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(run_report(make_run(time=Time(14.2e-6, "measured", 30, event_pair_s=1.28e-6))))

    shown = " ".join(console.export_text().split())
    assert "1.28 \N{MICRO SIGN}s of it is the two events" in shown


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--samples 0", "samples must be 1 or more, got 0"),
        ("--samples -1", "samples must be 1 or more, got -1"),
        ("--samples 99999999999999999999", "samples must be 1000000 or fewer, got 9999"),
        ("--timeout 0", "timeout must be more than 0 seconds and finite, got 0"),
        ("--timeout nan", "timeout must be more than 0 seconds and finite, got nan"),
        ("--samples many", "samples must be a whole number, got 'many'"),
        ("--timeout long", "timeout must be seconds, got 'long'"),
    ],
)
def test_no_samples_and_no_time_are_wrong_usage(
    words: str, named: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "naive", "--store", str(folder / "runs"), *words.split()]) == 2

    out, err = capsys.readouterr()
    assert not out
    assert named in err
    assert err.count("\n") == 1
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("patience_s", "drawn"), [(3600.0, False), (-1.0, True)])
def test_progress_is_drawn_once_patience_is_over(
    patience_s: float, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr("memlab.cli.progress.BAR_DELAY_S", patience_s)
    with progress_bar() as report:
        assert report is not None
        report("emulating blocks", 0.25)

    assert ("emulating blocks" in terminal.getvalue()) == drawn
    with progress_bar(quiet=True) as report:
        assert report is None
