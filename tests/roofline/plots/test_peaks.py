"""Measured peaks: kept, compared with the datasheet, drawn under later rooflines."""

import json
import sqlite3
from dataclasses import replace

import pytest
from example_runs import CEILINGS, ladder
from matplotlib.text import Text
from paths import DATA

from memlab.device.datasheets import loader
from memlab.device.gpu.peaks.records import theoretical_rate
from memlab.device.measurement import DeviceSummary
from memlab.errors import UsageError
from memlab.roofline.ceilings import measured_ceilings
from memlab.roofline.documents.peaks import peaks_document, peaks_from_document
from memlab.roofline.plots import peaks as peaks_plot
from memlab.roofline.plots.figure import render_figure
from memlab.roofline.plots.roofline import draw_roofline
from memlab.roofline.store.store import Store

FIRST = DeviceSummary("NVIDIA H200", "cuda", (9, 0), "cuda:0")
RESULTS = DATA / "h200-peaks.json"


@pytest.fixture(scope="module")
def peaks():
    """What an H200 gave."""
    return peaks_from_document(json.loads(RESULTS.read_text()))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite3")


def texts(figure):
    shown = (text for text in figure.findobj(Text) if text.get_visible())
    return [text.get_text() for text in shown if text.get_text()]


def test_the_document_loses_nothing(peaks):
    document = json.loads(json.dumps(peaks_document(peaks), allow_nan=False))
    assert peaks_from_document(document) == peaks
    assert document["device"]["compute_capability"] == "9.0"
    with pytest.raises(UsageError, match="schema_version 9"):
        peaks_from_document(document | {"schema_version": 9})
    with pytest.raises(UsageError, match="no 'rates'"):
        peaks_from_document({key: document[key] for key in document if key != "rates"})


def test_the_newest_peaks_of_this_very_device_are_given(store, peaks):
    assert store.peaks(FIRST) is None
    for moment in ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"):
        store.add_peaks(replace(peaks, created_at=moment))
    found = store.peaks(FIRST)
    assert found is not None
    assert found.created_at.startswith("2026-01-02")
    assert store.peaks(replace(FIRST, key="cuda:1")) is None
    assert store.peaks(replace(FIRST, name="NVIDIA A100")) is None  # another machine's cuda:0


def test_peaks_are_of_the_gpu_whose_they_are_whatever_its_number(store, peaks):
    """Two alike in one machine, of which `CUDA_VISIBLE_DEVICES` shows either as the first."""
    one, other = (replace(FIRST, uuid=f"GPU-{letter}") for letter in "ab")
    store.add_peaks(replace(peaks, device=one, driver_version="1"))
    store.add_peaks(replace(peaks, device=replace(other, key="cuda:1"), driver_version="2"))

    def version(device):
        found = store.peaks(device)
        return found and found.driver_version

    assert version(one) == version(replace(one, key="cuda:5")) == "1"
    assert version(other) == "2"
    assert version(replace(FIRST, uuid="GPU-c")) is None
    assert version(FIRST) == "1"  # the driver does not tell: by number and name
    store.add_peaks(replace(peaks, driver_version="old"))  # as they were kept before
    assert version(one) == "old"
    assert version(other) == "old"


def test_a_store_of_the_first_schema_is_read_and_brought_up(store, peaks, make_run):
    run = store.add(make_run())
    with sqlite3.connect(store.path) as connection:  # as memlab 0.1.0 wrote it
        for table in ("peaks", "sweeps", "sweep_points"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()

    assert store.runs() == [run]
    assert store.peaks(FIRST) is None
    store.add_peaks(peaks)
    assert store.peaks(FIRST) == peaks
    assert store.add(make_run()).id == 2
    assert store.get(1) == run


def test_damaged_peaks_are_one_line_that_says_what_to_do(store, peaks):
    store.add_peaks(peaks)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE peaks SET document = '{'")
    connection.close()
    with pytest.raises(UsageError, match="memlab peaks") as refusal:
        store.peaks(FIRST)
    assert "\n" not in str(refusal.value)
    assert store.peaks(replace(FIRST, key="cuda:1")) is None


def test_peaks_of_a_device_are_found_behind_damaged_ones_of_others(store, peaks):
    store.add_peaks(peaks)
    with sqlite3.connect(store.path) as connection:
        for key in ("CAST('cuda:1' AS TEXT)", "CAST(x'ff' AS TEXT)"):
            connection.execute(
                "INSERT INTO peaks (device, device_name, document)"
                f" SELECT {key}, device_name, '{{' FROM peaks WHERE id = 1"
            )
    connection.close()
    assert store.peaks(FIRST) == peaks


@pytest.mark.parametrize(
    ("limit", "clock", "expected"),
    [
        ("dram", None, 4814.3e9),
        ("dram", 1.0e9, 4814.3e9),  # has a clock of its own
        ("l1", None, 128 * 132 * 1.98e9),
        ("shared", 0.99e9, 64 * 132 * 1.98e9),
        ("fp32", None, 66.9e12),
        ("fp64", 0.99e9, 33.45e12 / 2),
        ("fp16_fma", None, 133.8e12),
        ("tf32", None, 494.7e12),
        ("bf16", 1.83e9 / 2, 989.4e12 / 2),  # the datasheet's tensor peaks assume 1830 MHz
        ("l2", None, None),
        ("constant", None, None),
    ],
)
def test_limits_by_the_datasheet_and_by_the_clock(limit, clock, expected):
    value = theoretical_rate(limit, loader.load_datasheet("h200"), clock)
    assert value == (None if expected is None else pytest.approx(expected, rel=1e-3))


def test_measured_ceilings_are_the_best_of_each(peaks):
    values = {rate.key: rate.value for rate in peaks.rates}
    ceilings = {ceiling.key: ceiling for ceiling in measured_ceilings(peaks)}
    assert ceilings["dram"].value == max(values["dram_read"], values["dram_write"])
    assert ceilings["l1"].value == max(values["l1_read"], values["shared_read"])
    assert ceilings["l2"].value == values["l2_read"]  # not the reads that serve several at once
    assert ceilings["fp16"].value == values["fp16_wgmma"]
    assert {ceiling.provenance for ceiling in ceilings.values()} == {"measured"}
    known = {ceiling.key for ceiling in CEILINGS}
    assert set(ceilings) <= known | {"tf32", "fp16", "bf16", "fp64", "fp16_fma"}
    assert ceilings["fp16_fma"].value == values["fp16_fma"] < ceilings["fp16"].value


def test_a_roofline_draws_them_next_to_the_datasheet(peaks):
    with_peaks = draw_roofline(ladder(), CEILINGS, "NVIDIA H200", "2026", measured_ceilings(peaks))
    without = draw_roofline(ladder(), CEILINGS, "NVIDIA H200", "2026")
    assert len(with_peaks.axes[0].lines) == len(without.axes[0].lines) + 4  # L1, L2, DRAM, FP32
    assert with_peaks.axes[0].get_xlim() == without.axes[0].get_xlim()
    (label,) = (text for text in texts(with_peaks) if text.startswith("DRAM  "))
    assert label.endswith("4.71 measured")
    assert not any(text.endswith(" measured") for text in texts(without.axes[0]))


def test_the_hierarchy_shows_every_figure_within_the_picture(peaks):
    too_fast = replace(peaks.rates[0], value=peaks.rates[0].theoretical * 1.02)
    figure = peaks_plot.draw_peaks(replace(peaks, rates=(too_fast, *peaks.rates[1:])))
    assert render_figure(figure, "png").startswith(b"\x89PNG")
    shown = texts(figure)
    for rate in peaks.rates:
        assert rate.label in shown
    assert [text for text in shown if "invalid" in text] == ["4.91 TB/s  102.0% invalid"]
    for name in ("L1", "L2", "DRAM"):
        assert shown.count(name) == 2  # a band of both charts
    figure.canvas.draw()
    frame = figure.bbox
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            assert frame.x0 <= box.x0, text
            assert box.x1 <= frame.x1, text
    band = figure.axes[0].patches
    # An H200's L1 is 256 KiB less what shared memory keeps; its L2 is 60 MiB.
    edges = sorted({round(patch.get_extents().x1) for patch in band})
    left, right = figure.axes[0].transData.inverted().transform([(x, 0) for x in edges[:2]])[:, 0]
    assert 128 * 2**10 < left < 256 * 2**10
    assert 32 * 2**20 < right < 128 * 2**20


def test_figures_from_an_h200_meet_what_is_expected_of_them(peaks):
    fractions = {rate.key: rate.fraction for rate in peaks.rates if rate.fraction is not None}
    assert all(fraction <= 1 for fraction in fractions.values())
    least = {
        "dram_read": 0.958,
        "dram_write": 0.97,
        "dram_triad": 0.909,
        "l1_read": 0.98,
        "shared_read": 0.97,
        "fp32_fma": 0.94,
    }
    assert all(fractions[key] >= fraction for key, fraction in least.items())
