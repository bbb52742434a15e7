"""`memlab run --cublas`: the baseline of a kernel, and the message where there is none."""

import json
from dataclasses import replace

import pytest

import memlab
from memlab import hardware
from memlab.cli.app import main
from memlab.device.measurement import Time
from memlab.errors import DeviceError
from memlab.roofline.documents.runs import run_document, run_from_document
from memlab.roofline.reports.parts import console
from memlab.roofline.reports.run import run_report
from memlab.roofline.store.store import Store

BAR = {"cublas": Time(0.5e-3, "measured", samples=30)}


def test_without_a_gpu_one_line_says_so_and_the_run_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "run register-tiled-2d --width 64 --device h200 --no-store --json --cublas"
    assert main(words.split()) == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["library_time"] == {}
    assert err.splitlines() == [
        "memlab: no cuBLAS: it runs on a GPU, and h200 is emulated: choose a GPU with --device 0"
    ]


def test_a_kernel_that_is_no_such_product_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "corner-turning", "--device", "h200", "--no-store", "--cublas"]) == 2
    assert "leave out --cublas" in capsys.readouterr().err


def test_the_bar_is_kept_with_the_run_and_shown_as_a_share(make_run, capsys) -> None:
    run = make_run(library_time=BAR)
    slower = replace(run.measurement.time, median_s=2e-3, provenance="measured")
    run = replace(run, measurement=replace(run.measurement, time=slower))

    assert run_from_document(run_document(run)) == run
    console().print(run_report(run))
    shown = " ".join(capsys.readouterr().out.split())
    assert "cublas 500 µs measured; this kernel reaches 25% of its rate" in shown


def test_the_bar_reaches_the_store(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "cublas_time", lambda _: BAR["cublas"])
    store = tmp_path / "runs.sqlite3"
    run = memlab.run("tiled", width=32, device="h200", cublas=True, keep=True, store=store)
    assert Store(store).get(run.id).measurement.library_time == BAR


def test_a_gpu_that_is_not_there_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("no GPU here")

    monkeypatch.setattr("memlab.launching.open_device", refuse)
    assert main(["run", "tiled", "--device", "0", "--no-store", "--cublas"]) == 3
    assert capsys.readouterr().err.splitlines() == ["memlab: error: no GPU here"]
