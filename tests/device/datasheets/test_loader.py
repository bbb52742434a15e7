import json
import re
from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest
from paths import DATA, REPOSITORY

from memlab.device.datasheets import loader
from memlab.device.datasheets.plausibility import RANGES
from memlab.device.devices import open_device
from memlab.device.properties import (
    CALIBRATED_FIGURES,
    DeviceProperties,
    figure_at,
    known_figures,
    peak_bandwidth_bytes_per_s,
    peak_flop_per_s,
    provenance,
    required_compute_to_global_access_ratio,
    ridge_flop_per_byte,
)
from memlab.errors import UsageError

SHEET = """
name = "Some GPU"
[sources]
vendor = "datasheet: some page"
[figures]
compute_capability = { value = [8, 0], source = "vendor" }
"""

# What NVIDIA's product pages print: GB/s, TFLOP/s of FP32 and FP64.
PUBLISHED = {
    "h200": (4800, 67, 34),
    "h100": (3350, 67, 34),
    "a100": (1555, 19.5, 9.7),
    "rtx3070": (448, 20.3, None),
    "rtx4090": (1008, 82.6, None),
    "a6000": (768, 38.7, None),
    "l4": (300, 30.3, None),
    "t4": (320, 8.1, None),
    "pmpp": (1000, 12, None),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_peaks_match_the_vendors_figures(name):
    properties = loader.load_datasheet(name)
    bandwidth, fp32, fp64 = PUBLISHED[name]
    assert peak_bandwidth_bytes_per_s(properties) == pytest.approx(bandwidth * 1e9, rel=0.005)
    assert peak_flop_per_s(properties, "fp32") == pytest.approx(fp32 * 1e12, rel=0.006)
    if fp64 is not None:
        assert peak_flop_per_s(properties, "fp64") == pytest.approx(fp64 * 1e12, rel=0.02)


def test_every_datasheet_is_listed_and_every_figure_has_a_source():
    assert set(loader.datasheet_names()) == set(PUBLISHED)
    for name in loader.datasheet_names():
        properties = loader.load_datasheet(name)
        assert properties.sources.keys() >= known_figures(properties).keys()


def test_the_h200s_figures_match_its_driver():
    report = json.loads((DATA / "h200-attributes.json").read_text())
    attributes, properties = report["attributes"], loader.load_datasheet("h200")
    assert properties.total_memory_bytes == report["mem"]
    known = {item.name.upper() for item in fields(DeviceProperties)}
    compared = 0
    for attribute, value in attributes.items():
        for field in (attribute, attribute + "_BYTES", attribute + "_COUNT"):
            if field in known:
                assert getattr(properties, field.lower()) == value, field
                compared += 1
    assert compared > 20
    assert properties.clock_rate_hz == 1000 * attributes["CLOCK_RATE"]
    assert properties.memory_clock_rate_hz == 1000 * attributes["MEMORY_CLOCK_RATE"]
    assert properties.global_memory_bus_width_bits == attributes["GLOBAL_MEMORY_BUS_WIDTH"]
    assert properties.l2_cache_bytes == attributes["L2_CACHE_SIZE"]
    assert properties.max_grid_dim == tuple(attributes[f"MAX_GRID_DIM_{axis}"] for axis in "XYZ")


def test_the_textbooks_device_has_the_textbooks_figures():
    textbook = loader.load_datasheet("pmpp")
    assert peak_bandwidth_bytes_per_s(textbook) == 1e12
    assert peak_flop_per_s(textbook, "fp32") == 12e12
    assert required_compute_to_global_access_ratio(textbook) == 48
    assert ridge_flop_per_byte(textbook, "fp32") == 12
    assert textbook.total_memory_bytes is None
    assert peak_flop_per_s(textbook, "fp64") is None
    assert ridge_flop_per_byte(textbook, "tf32") is None


def test_tensor_peaks_are_the_dense_ones():
    assert peak_flop_per_s(loader.load_datasheet("a100"), "tf32") == 156e12
    assert peak_flop_per_s(loader.load_datasheet("t4"), "bf16") is None


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_device_can_be_emulated(name):
    """The models need these figures; without one, a run would fail only halfway."""
    properties = loader.load_datasheet(name)
    unknown = {
        item.name
        for item in fields(properties)
        if getattr(properties, item.name) is None
        and item.name.endswith(("_clocks", "_per_clock", "_per_sm", "_fraction", "_s", "_block"))
    }
    # An indexed constant load of unknown latency is taken to be as slow as shared memory.
    optional = {
        "peak_memory_bandwidth_bytes_per_s",
        "fp64_lanes_per_sm",
        "constant_latency_clocks",
        "l2_write_bytes_per_clock",  # taken to be what it gives
        "tensor_load_settling_s",  # of the clock under a load that is not known either
        *CALIBRATED_FIGURES,
    }
    assert unknown <= optional
    assert properties.l2_cache_bytes
    assert properties.multiprocessor_count
    assert properties.max_blocks_per_multiprocessor


def test_an_unknown_name_gets_the_nearest_ones():
    with pytest.raises(UsageError, match=r"'h300'.*'h\d00'"):
        loader.load_datasheet("h300")
    assert loader.load_datasheet("H200") is not None


@pytest.mark.parametrize(
    ("factors", "product"),
    [
        (("queried: driver", "queried: driver"), "queried"),
        (("queried: driver", "datasheet: guide"), "datasheet"),
        (("measured: bench", "queried: driver"), "measured"),
        (("datasheet: guide", "measured: bench"), "measured"),
        (("measured: bench", "analytic: assumed"), "analytic"),
    ],
)
def test_a_derived_figure_has_the_weakest_provenance_of_its_factors(factors, product):
    sources = dict(zip(("multiprocessor_count", "clock_rate_hz"), factors, strict=True))
    device = replace(loader.load_datasheet("h200"), sources=sources)
    assert provenance(device, *sources) == provenance(device, *reversed(sources)) == product


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("compute_capability", "computecapability"), "lacks compute_capability"),
        (("[8, 0]", "8.0"), "compute_capability must be a list of 2 int, got 8.0"),
        (('"vendor" }', '"seller" }'), "names the source 'seller'"),
        (('"datasheet: some page"', '"some page"'), "must start with a provenance"),
        (("[figures]", "price = 1\n[figures]"), "source 'price' must start"),
        (("[sources]", "price = 1\n[sources]"), "it holds 'price'"),
        (("[figures]", "[figure]"), r"it lacks \[figures\]; it holds 'figure'"),
        (("value =", "amount ="), "must be { value"),
        (("name =", "name :"), "is not TOML"),
    ],
)
def test_the_error_of_a_malformed_datasheet_names_the_place(change, message):
    with pytest.raises(UsageError, match=message.replace("{", r"\{")):
        loader.parse_datasheet(SHEET.replace(*change), "some.toml")


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("l2_cache_byte = 1", "unknown figure 'l2_cache_byte': did you mean 'l2_cache_bytes'"),
        ("l2_cache_bytes = 1.5", "l2_cache_bytes must be int, got 1.5"),
        ("l2_cache_bytes = true", "l2_cache_bytes must be int, got True"),
        ("ecc_enabled = 1", "ecc_enabled must be bool"),
        ("peak_clock_hz = true", "peak_clock_hz must be float"),
        ("max_block_dim = [1, 2]", "max_block_dim must be a list of 3 int"),
        ('tensor_flop_per_s = { tf32 = "fast" }', "tensor_flop_per_s must be a table of numbers"),
        (
            "gpcs_by_sms = { all = 1 }",
            "gpcs_by_sms must have keys of whole numbers like 8, got 'all'",
        ),
        ("l2_merged_later_reads = { 1x4 = 1 }", "like 4x1x16, got '1x4'"),
        (
            "l2_merged_later_reads = { 1x4x4 = 2, 1x4x32 = 3, 2x4x4 = 2 }",
            "all combinations of the numbers in its keys, got none for 2x4x32: add it",
        ),
        ("l2_merged_later_reads = { 1x0x4 = 1 }", "like 4x1x16, got '1x0x4'"),
    ],
)
def test_a_figure_of_another_type_is_refused(figure, message):
    field, value = figure.split(" = ", 1)
    line = f'{field} = {{ value = {value}, source = "vendor" }}\n'
    with pytest.raises(UsageError, match=message):
        loader.parse_datasheet(SHEET + line, "some.toml")


def test_an_integer_is_accepted_for_a_float():
    line = 'peak_clock_hz = { value = 2_000_000_000, source = "vendor" }\n'
    assert isinstance(loader.parse_datasheet(SHEET + line, "some.toml").peak_clock_hz, float)


HAND_WRITTEN = """
name = "NVIDIA GeForce RTX 3080"
based_on = "rtx3070"
[sources]
page = "datasheet: NVIDIA's product page"
[figures]
compute_capability = { value = [8, 6], source = "page" }
multiprocessor_count = { value = 68, source = "page" }
clock_rate_hz = { value = 1_710_000_000, source = "page" }
peak_memory_bandwidth_bytes_per_s = { value = 7.603e11, source = "page" }
"""


@pytest.fixture
def hand_written(tmp_path):
    def write(text):
        path = tmp_path / "My-GPU.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_users_file_is_a_device(hand_written, monkeypatch):
    path = hand_written(HAND_WRITTEN)
    opened = open_device(path)
    assert (opened.kind, opened.key) == ("emulated", path)
    monkeypatch.setenv("MEMLAB_DEVICE", path)
    assert open_device().properties.multiprocessor_count == 68


def test_the_documented_datasheet_is_one(hand_written):
    page = (REPOSITORY / "docs" / "datasheets.md").read_text("utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert loader.read_datasheet(hand_written(text)).multiprocessor_count == 68


def test_figures_that_a_file_does_not_give_are_assumed(hand_written):
    card = loader.read_datasheet(hand_written(HAND_WRITTEN))
    lender = loader.load_datasheet("rtx3070")
    assert card.l1_latency_clocks == lender.l1_latency_clocks
    assert provenance(card, "l1_latency_clocks") == "analytic"
    assert provenance(card, "clock_rate_hz") == "datasheet"
    assert peak_bandwidth_bytes_per_s(card) == 7.603e11
    assert (card.pci_bus_id, card.uuid) == (None, None)  # another machine's
    assert card.sources.keys() >= known_figures(card).keys() - {"warp_size"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("based_on", "# "), "lacks l2_cache_bytes, which the cache model needs: add it"),
        (('"rtx3070"', '"rtx3071"'), "based_on must name a datasheet.*'rtx3070'"),
        (("1_710_000_000", "1710"), "clock_rate_hz must be from .* got 1710: it is in Hz"),
        (("7.603e11", "760.3"), "got 760.3: it is in bytes per second"),
        (("= 68", "= 0"), "multiprocessor_count must be from 1 to 10000, got 0"),
        (("= 68", "= nan"), "multiprocessor_count must be int, got nan"),
        (("7.603e11", "nan"), "got nan: it is in bytes per second"),
        (
            ("multiprocessor_count = { value = 68", "l1_queued_store_lines = { value = -28.0"),
            "from 1 to 65536, got -28: it is the number of lines",
        ),
        (
            ("multiprocessor_count = { value = 68", "pace_deviation = { value = -1.0"),
            "from 0 to 10, got -1: it is over the time",
        ),
        (
            ("multiprocessor_count = { value = 68", "tensor_type_loads = { value = { tf32 = 0 }"),
            "tensor_type_loads, tf32, must be from 0.001 to 1000, got 0: it is the load",
        ),
        (
            ("multiprocessor_count = { value = 68", "l2_merged_apart_share = { value = 54.0"),
            "l2_merged_apart_share must be from 0 to 1, got 54: it is a share: 54% are 0.54",
        ),
        (("clock_rate_hz", "clock_hz"), "unknown figure 'clock_hz'.*clock_rate_hz"),
    ],
)
def test_the_error_of_a_users_file_names_file_figure_value_and_next_step(
    hand_written, change, message
):
    assert change[0] in HAND_WRITTEN
    with pytest.raises(UsageError, match=rf"My-GPU\.toml.*{message}") as caught:
        loader.read_datasheet(hand_written(HAND_WRITTEN.replace(*change)))
    assert "\n" not in str(caught.value)


def test_a_whole_number_may_have_an_exponent(hand_written):
    text = HAND_WRITTEN.replace("1_710_000_000", "1.71e9")
    clock_hz = loader.read_datasheet(hand_written(text)).clock_rate_hz
    assert (clock_hz, type(clock_hz)) == (1_710_000_000, int)
    with pytest.raises(UsageError, match=r"clock_rate_hz must be int, got 1710000000\.5"):
        loader.read_datasheet(hand_written(text.replace("1.71e9", "1710000000.5")))


def test_every_figure_with_a_fraction_has_a_range():
    """The time is computed from them: one in another unit would make it wrong without a word."""
    hints = get_type_hints(DeviceProperties)
    computed = [name for name, kind in hints.items() if float in get_args(kind)]
    assert {"l2_merged_apart_share", "l2_merged_reads_by_sms"} <= set(computed)
    endings = tuple(limit.ending for limit in RANGES)
    assert [name for name in computed if not name.endswith(endings)] == []


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the datasheet .*none.toml.*No such file"):
        open_device(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match="cannot read the datasheet"):
        open_device(str(tmp_path / "folder.toml"))
    for content, problem in ((b"\xff", "is not UTF-8"), (bytes(2**20 + 1), "is no datasheet")):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UsageError, match=problem):
            open_device(str(tmp_path / "bad.toml"))


def test_a_figure_by_a_number_is_interpolated():
    table = {"8": 29.0, "32": 77.0, "1": 15.0}
    found = [figure_at(table, warps) for warps in (1, 4.5, 8, 20, 32, 64, 0)]
    assert found == [15, 22, 29, 53, 77, 77, 15]
    assert figure_at({}, 1) is None


def test_the_h100s_figures_are_those_that_one_measured():
    """But for a latency that depends on the half of the L2, and a time that a profiler gave."""
    known = loader.load_datasheet("h100")
    path = REPOSITORY / "docs" / "results" / "h100-calibrate.toml"
    measured = loader.read_datasheet(str(path))
    other = {"global_atomic_latency_clocks", "shortest_kernel_s", "total_memory_bytes"}
    compared = 0
    for name, value in known_figures(measured).items():
        listed = getattr(known, name)
        if name in other or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        assert listed == pytest.approx(value, rel=0.01), name
        compared += 1
    assert compared > 60
