"""`memlab run --counters ncu`: hardware's figures beside the emulated ones, or why not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memlab import hardware
from memlab.cli.app import main
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.nvidia_tools.ncu import ProfilerError
from memlab.launching import PreparedLaunch
from memlab.roofline.documents.runs import run_document, run_from_document
from memlab.roofline.reports.run import difference_text
from memlab.roofline.run import Run

RUN = ("run", "tiled", "--width", "16", "--device", "h200", "--no-store")
HARDWARE = {"global_load_requests": 33554432, "l2_read_sectors": 110000000, "duration_s": 2.1e-3}


@pytest.fixture
def nsight_compute(monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., Run]) -> None:
    """Let every launch give the same measurement, and Nsight Compute count `HARDWARE`."""
    measurement = make_run().measurement
    monkeypatch.setattr(EmulatedDevice, "run", lambda *_, **__: measurement)
    monkeypatch.setattr(hardware, "hardware_counters", lambda _: HARDWARE)


@pytest.mark.usefixtures("nsight_compute")
def test_both_stand_side_by_side_with_the_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--counters", "ncu"]) == 0

    out, err = capsys.readouterr()
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80
    shown = " ".join(out.split())
    assert "Counters emulated Nsight Compute difference" in shown
    assert "load requests 33,554,432 33,554,432 none" in shown
    assert "L2 reads 113,966,300 110,000,000 +3.6%" in shown
    assert "time ~2.25 ms modelled 2.10 ms +7.1%" in shown
    assert "DRAM read B" not in shown, "what was not counted is not shown"


@pytest.mark.usefixtures("nsight_compute")
def test_json_has_them_and_null_where_nobody_asked(capsys: pytest.CaptureFixture[str]) -> None:
    main([*RUN, "--counters", "ncu", "--json"])
    assert json.loads(capsys.readouterr().out)["counters_ncu"] == HARDWARE

    main([*RUN, "--json"])
    assert json.loads(capsys.readouterr().out)["counters_ncu"] is None


@pytest.mark.usefixtures("nsight_compute")
def test_without_counters_the_run_goes_on_and_one_line_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(prepared: PreparedLaunch) -> None:
        raise ProfilerError("the driver lets only administrators read hardware counters")

    monkeypatch.setattr(hardware, "hardware_counters", refuse)

    assert main([*RUN, "--counters", "ncu", "--json"]) == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["counters_ncu"] is None
    assert err == (
        "memlab: no hardware counters: the driver lets only administrators read hardware counters\n"
    )


@pytest.mark.parametrize(("body", "code", "counted"), [("x[0] = 1;", 0, 1), ("__trap();", 1, 0)])
def test_only_a_launch_that_ended_is_counted(
    body: str,
    code: int,
    counted: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[float] = []

    def count(prepared: PreparedLaunch) -> dict[str, float]:
        asked.append(prepared.settings.timeout_s)
        return HARDWARE

    monkeypatch.setattr(hardware, "hardware_counters", count)
    source = tmp_path / "one.cu"
    source.write_text(f'extern "C" __global__ void one(float* x) {{ {body} }}')
    words = f"run {source}:one --grid 1 --block 1 --arg out:f32[1] --device h200 --no-store"

    assert main([*words.split(), "--counters", "ncu", "--timeout", "7", "--quiet"]) == code
    assert capsys.readouterr().err.count("\n") == code
    assert asked == [7] * counted


def test_an_emulated_device_has_no_hardware_to_count(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run tiled --width 16 --device h200 --no-store --counters ncu --json"

    assert main(words.split()) == 0
    assert "h200 is emulated: choose a GPU with --device 0" in capsys.readouterr().err


def test_they_are_kept_with_the_run(make_run: Callable[..., Run]) -> None:
    run = make_run(counters_ncu=HARDWARE)

    assert run_from_document(json.loads(json.dumps(run_document(run)))) == run
    older = run_document(run)
    del older["counters_ncu"]
    without = replace(run.measurement, counters_ncu=None)
    assert run_from_document(older).measurement == without


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (5, 5, "none"),
        (0, 0, "none"),
        (1012, 1000, "+1.2%"),
        (0, 12, "-100.0%"),
        (12, 0, "all"),
        (100001, 100000, "+<0.1%"),
        (99999, 100000, "-<0.1%"),
    ],
)
def test_no_difference_reads_as_none_unless_it_is(ours: float, theirs: float, text: str) -> None:
    assert difference_text(ours, theirs) == text
