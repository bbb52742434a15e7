"""`memlab peaks`: what it prints, writes and keeps, and how it says no."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from paths import DATA

from memlab.cli.app import main
from memlab.device.gpu.peaks import measure
from memlab.device.properties import DeviceProperties
from memlab.roofline.ceilings import measured_ceilings
from memlab.roofline.documents.peaks import peaks_from_document
from memlab.roofline.store.store import Store

RESULTS = DATA / "h200-peaks.json"


class Gpu:
    """Stands for a GPU where there is none."""

    key, kind = "cuda:0", "cuda"
    properties = DeviceProperties("NVIDIA H200", (9, 0))


@pytest.fixture
def found(monkeypatch, tmp_path):
    """Make `peaks` find what an H200 gave; the current folder is empty."""
    known = peaks_from_document(json.loads(RESULTS.read_text()))
    monkeypatch.setattr("memlab.querying.open_device", lambda name: Gpu())
    monkeypatch.setattr(measure, "measure_peaks", lambda index, properties, progress: known)
    monkeypatch.chdir(tmp_path)
    return known


def test_an_emulated_device_has_none(capsys):
    assert main(["peaks", "--device", "a100"]) == 3
    message = capsys.readouterr().err
    assert "a100 is emulated" in message
    assert "--device 0" in message
    assert message.count("\n") == 1


def test_the_table_fits_and_says_what_it_is_of(found, capsys):
    assert main(["peaks", "--store", "s.sqlite3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    (write,) = (line for line in lines if line.startswith("DRAM write"))
    assert write.split()[2:] == ["4.71", "TB/s", "1980", "MHz", "97.9%", "97.9%"]
    (tensor,) = (line for line in lines if line.startswith("FP16 tensor, wgmma"))
    assert tensor.split()[-2:] == ["82.6%", "99.9%"]
    (far,) = (line for line in lines if line.startswith("L2, far"))
    assert far.split()[2:] == ["455.4", "230", "ns"]
    kept = Store(Path("s.sqlite3")).peaks(found.device)
    assert kept is not None
    assert kept.rates == found.rates
    assert kept.created_at != ""


def test_picture_and_data_are_written_together_or_not_at_all(found, capsys):
    assert main(["peaks", "--no-store", "--json", "-q", "-o", "p.png"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["rates"][0]["key"] == "dram_read"
    assert Path("p.json").read_text() == printed
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    assert main(["peaks", "--no-store", "-o", "p.png"]) == 0  # both are memlab's own
    capsys.readouterr()
    Path("p.png").unlink()
    Path("p.json").write_text("[]")
    assert main(["peaks", "--no-store", "-o", "p.png"]) == 2
    out, err = capsys.readouterr()
    assert "DRAM" in out  # what took minutes is printed first
    assert "p.json exists: add --overwrite" in err
    assert not Path("p.png").exists()
    assert main(["peaks", "-o", "p.bmp"]) == 2


@pytest.mark.parametrize(("excess", "invalid"), [(1.02, True), (1.0004, False)])
@pytest.mark.parametrize("key", ["dram_read", "fp32_fma", "fp16_wgmma"])
def test_what_exceeds_a_physical_limit_is_invalid_and_no_roof(
    found, monkeypatch, capsys, key, excess, invalid
):
    rates = tuple(
        replace(rate, value=rate.theoretical_at_clock * excess) if rate.key == key else rate
        for rate in found.rates
    )
    (wrong,) = (rate for rate in rates if rate.key == key)
    monkeypatch.setattr(
        measure, "measure_peaks", lambda index, properties, progress: replace(found, rates=rates)
    )
    assert main(["peaks", "--store", "s.sqlite3"]) == 0
    output = capsys.readouterr().out
    assert (f"{wrong.label} is invalid, 102.0% of what is possible" in output) is invalid
    assert all(len(line) <= 80 for line in output.splitlines())

    ceilings = {
        ceiling.key: ceiling.value for ceiling in measured_ceilings(replace(found, rates=rates))
    }
    others = [rate.value for rate in found.rates if rate.limit == wrong.limit and rate.key != key]
    assert ceilings.get(wrong.limit) == (max(others, default=None) if invalid else wrong.value)

    assert main(["peaks", "--no-store", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [rate["key"] for rate in document["rates"] if rate["invalid"]] == [key] * invalid


@pytest.mark.parametrize(("major", "noted"), [(9, False), (10, True), (12, False)])
def test_a_tensor_rate_that_is_not_the_peak_says_so(found, monkeypatch, capsys, major, noted):
    device = replace(found.device, compute_capability=(major, 0))
    monkeypatch.setattr(
        measure, "measure_peaks", lambda index, properties, progress: replace(found, device=device)
    )
    assert main(["peaks", "--no-store"]) == 0
    output = capsys.readouterr().out
    assert ("those of mma.sync and not the peak" in output) is noted
    assert all(len(line) <= 80 for line in output.splitlines())
