"""`memlab calibrate`: what it prints and writes, and how it says no."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memlab.cli.app import main
from memlab.device.datasheets import loader
from memlab.device.gpu.calibration import calibrate
from memlab.device.gpu.calibration.records import Calibration, Failure, RawSample

H200 = replace(loader.load_datasheet("h200"), dram_latency_clocks=701.5)
SAMPLES = (RawSample("chase_clocks", "dram", 701.5),)
FAILURES = (Failure("ports", "the kernel took too long"),)


class Gpu:
    """Stands for a GPU where there is none."""

    key, kind, properties = "cuda:0", "cuda", H200


@pytest.fixture(params=[(), FAILURES], ids=["all measured", "a part failed"])
def found(request, monkeypatch, tmp_path):
    """Make `calibrate` find some figures; the current folder is empty."""
    calibration = Calibration(H200, ("dram_latency_clocks",), SAMPLES, request.param, 61.0)
    monkeypatch.setattr("memlab.querying.open_device", lambda name: Gpu())
    monkeypatch.setattr(calibrate, "calibrate_gpu", lambda *_: calibration)
    monkeypatch.chdir(tmp_path)
    return calibration


def test_an_emulated_device_is_not_calibrated(capsys, tmp_path):
    assert main(["calibrate", "-d", "a100", "-o", str(tmp_path / "x.toml")]) == 3
    message = capsys.readouterr().err
    assert "a100 is emulated" in message
    assert message.count("\n") == 1
    assert not (tmp_path / "x.toml").exists()


def test_the_file_is_a_device_for_the_next_command(found, capsys):
    options = ["-o", "my.toml", "--samples", "my.csv", "--json"]
    assert main(["calibrate", *options]) == (1 if found.failures else 0)
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["measured"] == ["dram_latency_clocks"]
    assert document["device"]["figures"]["dram_latency_clocks"]["value"] == 701.5
    assert [failed["benchmark"] for failed in document["failures"]] == [
        failure.benchmark for failure in found.failures
    ]
    assert ("not measured: ports" in printed.err) == bool(found.failures)
    assert Path("my.csv").read_text("utf-8") == "series,key,value\nchase_clocks,dram,701.5\n"
    assert loader.read_datasheet("my.toml").dram_latency_clocks == 701.5


def test_a_file_in_the_way_is_refused_before_the_work(found, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "calibrate_gpu", lambda *_: pytest.fail("measured"))
    Path("my.toml").write_text("mine")
    assert main(["calibrate", "-o", "my.toml"]) == 2
    assert main(["calibrate", "-o", "new.toml", "--samples", "my.toml"]) == 2
    assert main(["calibrate", "-o", "new.txt"]) == 2
    assert "--overwrite" in capsys.readouterr().err
