"""The annotated source: figures by hand, and a page that a hostile source cannot break."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from memlab.device.measurement import (
    AccessCounters,
    Counters,
    Coverage,
    DeviceSummary,
    LineCounters,
    Region,
    Resources,
    Verification,
)
from memlab.device.properties import DeviceProperties
from memlab.roofline.analysis.analysis import Analysis, access_ratio
from memlab.roofline.analysis.listing import listing
from memlab.roofline.reports.analysis_text import compact_count, ratio_facts
from memlab.roofline.reports.page.analysis import listing_page

HOSTILE = "x = \"</td></table><script>alert(1)</script>\" & '<!-- ' /* ünïcode */;"

# 10 warps read 32 floats each, off a sector's beginning; then half of their lanes add.
LOAD = LineCounters.from_names(
    line=2,
    text=HOSTILE,
    global_requests=10,
    global_sectors=50,
    global_lines=20,
    global_used_bytes=1280,
    requested_bytes=1280,
    thread_instructions=320,
    warp_instructions=10,
)
ADD = LineCounters.from_names(
    line=3,
    text="s += a[i];",
    shared_instructions=10,
    shared_wavefronts=30,
    shared_excessive_wavefronts=20,
    flop=160,
    thread_instructions=160,
    warp_instructions=10,
)
SOURCE = f"// head\n{HOSTILE}\ns += a[i];\n"

DEVICE = DeviceProperties(
    name="<A & B>",
    compute_capability=(8, 0),
    peak_memory_bandwidth_bytes_per_s=1e12,
    multiprocessor_count=10,
    clock_rate_hz=1_000_000_000,
    fp32_lanes_per_sm=100,
    sources={},
)


@pytest.fixture
def analysis() -> Analysis:
    counters = Counters.from_names(
        flop_fp32=160,
        requested_load_bytes=1280,
        global_load_requests=10,
        global_load_sectors=50,
    )
    return Analysis(
        kernel="<kernel>",
        parameters={"width": 4},
        source=SOURCE,
        source_name="a<b>.cu",
        device=DeviceSummary("<A & B>", "emulated", (8, 0), "ab"),
        grid=(1, 1, 1),
        block=(320, 1, 1),
        resources=Resources(8, 0, 0),
        flop=160,
        compulsory_bytes=1280,
        coverage=Coverage(1, 1),
        counters=counters,
        lines=(LOAD, ADD),
        ratio=access_ratio(160, Region(160, 1280, False), counters, DEVICE),
        boundary=None,
        verification=Verification("skipped", None, None, 0, 0),
    )


def test_a_lines_figures() -> None:
    head, load, add = listing(SOURCE, (LOAD, ADD))
    assert head.counters is None
    assert head.heat == 0.0
    assert load.sectors_per_request == 5.0
    assert load.bus_utilisation == 0.8  # 128 of 160 bytes: the lesson's misaligned access
    assert load.lanes_off == 0
    # 50 sectors of 32 bytes beside 30 wavefronts of 128.
    assert (load.heat, add.heat) == (pytest.approx(1600 / 5440), pytest.approx(3840 / 5440))
    assert add.sectors_per_request is None
    assert add.bus_utilisation is None
    assert (add.lanes_off, add.lanes_off_share) == (160, 0.5)


def test_lines_are_those_of_the_compiler() -> None:
    """NVRTC takes neither a form feed nor Unicode's separators for the end of a line."""
    source = SOURCE.replace("// head", "\f// he\u2028ad \x85 \x1c")
    assert [line.text for line in listing(source, (LOAD, ADD))][1:] == [HOSTILE, "s += a[i];"]
    assert listing(source, (LOAD, ADD))[1].counters == LOAD


def test_what_no_line_owns_is_listed_only_if_it_moves_memory() -> None:
    silent = LineCounters.from_names(line=0, text="", thread_instructions=5, warp_instructions=1)
    assert [line.number for line in listing(SOURCE, (silent, LOAD))] == [1, 2, 3]
    stray = silent.replace_named(global_requests=1, global_sectors=4)
    assert [line.number for line in listing(SOURCE, (stray, LOAD))] == [1, 2, 3, 0]


def test_without_memory_heat_is_the_share_of_instructions() -> None:
    one = LineCounters.from_names(line=2, text="", thread_instructions=30, warp_instructions=1)
    two = LineCounters.from_names(line=3, text="", thread_instructions=10, warp_instructions=1)
    assert [line.heat for line in listing(SOURCE, (one, two))] == [0.0, 0.75, 0.25]


def test_the_ratio_past_the_ridge_point_is_bound_by_the_peak(analysis: Analysis) -> None:
    """2 x 100 lanes x 10 SMs x 1 GHz = 2 TFLOP/s; with 1 TB/s the ridge is 2 FLOP/B."""
    ratio = analysis.ratio
    assert ratio is not None
    assert ratio.flop_per_byte == 0.125
    assert ratio.bound_flop_per_s == 125e9
    assert ratio.needed_flop_per_access == 8.0
    rich = replace(ratio, flop_per_byte=3.0)
    assert rich.bound_flop_per_s == 2e12
    assert "past the ridge point" in dict(ratio_facts(replace(analysis, ratio=rich)))[""]


@pytest.mark.parametrize(
    ("counter", "nbytes"),
    [
        *(("flop_fp32", 4), ("flop_fp64", 8), ("flop_fp16", 2), ("flop_bf16", 2)),
        *(("flop_tensor_fp16", 2), ("flop_tensor_tf32", 4)),
    ],
)
def test_a_value_is_as_long_as_its_pipe_takes_it(counter: str, nbytes: int) -> None:
    counters = Counters.from_names(**{"flop_fp32": 1} | {counter: 2})
    ratio = access_ratio(2, Region(2, 8, False), counters, DEVICE)
    assert ratio is not None
    assert (ratio.value_bytes, ratio.flop_per_access) == (nbytes, nbytes / 4)


@pytest.mark.parametrize(
    ("operations", "bound", "says"),
    [
        (0, "", "the kernel only moves data, so memory alone limits it"),
        # 64 lanes x 10 SMs x 1 GHz: 6.4 us; the 1.28 kB take 1.28 ns.
        (4_096_000, "640 GOP/s, the peak of the INT ALU", "5,000 times as long"),
        (409, "memory, 1,000 GB/s: the kernel moves data rather", "take 50% of the time"),
    ],
)
def test_a_kernel_of_integers_is_not_told_that_it_only_moves_data(
    analysis: Analysis, operations: int, bound: str, says: str
) -> None:
    device = replace(DEVICE, pipe_lanes_per_clock_per_sm={"alu": 64})
    counters = analysis.counters.replace_named(
        flop_fp32=0, iop_alu=operations, requested_load_bytes=1280, requested_store_bytes=0
    )
    ratio = access_ratio(0, Region(0, 1280, False), counters, device)
    facts = list(ratio_facts(replace(analysis, flop=0, counters=counters, ratio=ratio)))
    assert any(says in text for _, text in facts)
    assert bound in dict(facts).get("bound", "")
    unknown = access_ratio(0, Region(0, 1280, False), counters, DEVICE)
    facts = list(ratio_facts(replace(analysis, flop=0, counters=counters, ratio=unknown)))
    assert dict(facts).get("bound", "unknown").startswith("unknown")


def test_local_memory_shares_the_port() -> None:
    local = LineCounters.from_names(line=1, text="", local_sectors=30)  # 960 of 1600 + 960 bytes
    assert listing(SOURCE, (local, LOAD))[0].heat == 960 / 2560


def test_padding_is_no_merit() -> None:
    """Of 400 FLOPs executed, all in the loop, the algorithm has 100."""
    counters = Counters.from_names(flop_fp32=400)
    ratio = access_ratio(100, Region(400, 200, True), counters, DEVICE)
    assert ratio is not None
    assert ratio.flop_per_byte == 0.5


def test_without_bandwidth_or_accesses_nothing_is_guessed(analysis: Analysis) -> None:
    unknown = replace(DEVICE, peak_memory_bandwidth_bytes_per_s=None)
    ratio = access_ratio(160, Region(160, 1280, False), analysis.counters, unknown)
    assert ratio is not None
    assert (ratio.bound_flop_per_s, ratio.needed_flop_per_access) == (None, None)
    assert access_ratio(160, Region(160, 0, False), analysis.counters, DEVICE) is None


class _Tags(HTMLParser):
    """Collects a page's tags, and what a reader sees of its code."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.code: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)
        if ("class", "code") in attrs:
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.code and self.open and self.open[-1] == "td" and not self.code[-1]:
            self.code[-1] = data


def test_the_page_is_escaped_whole_and_self_contained(analysis: Analysis) -> None:
    text = listing_page(analysis)
    tags = _Tags()
    tags.feed(text)
    assert not tags.open  # every tag is closed, in order
    assert "script" not in tags.seen
    assert not tags.links
    assert "url(" not in text
    assert "@import" not in text
    assert HOSTILE in tags.code
    assert "&lt;kernel&gt;" in text
    assert "&lt;A &amp; B&gt;" in text
    assert "a&lt;b&gt;.cu" in text


def test_an_access_has_its_row_only_where_figures_mix(analysis: Analysis) -> None:
    one = LineCounters.from_names(
        line=2, text="", global_requests=5, global_sectors=20, global_lines=5
    )
    two = LineCounters.from_names(
        line=2, text="", global_requests=5, global_sectors=30, global_lines=15
    )
    stray = LineCounters.from_names(line=2, text="", shared_instructions=1, shared_wavefronts=1)
    accesses = (
        AccessCounters("global", "load", "<a>", one),
        AccessCounters("global", "store", "", two),
        AccessCounters("shared", "load", "tile", stray),
    )
    listed = listing(SOURCE, (LOAD, ADD), accesses)
    assert [access.text for access in listed[1].mixed_accesses] == [
        "load <a>",
        "store global memory",
    ]
    assert [access.sectors_per_request for access in listed[1].mixed_accesses] == [4.0, 6.0]
    # 20 sectors of 32 bytes of the 5440 bytes of all lines.
    assert listed[1].mixed_accesses[0].heat == pytest.approx(640 / 5440)
    assert listed[2].mixed_accesses == ()

    text = listing_page(replace(analysis, accesses=accesses))
    tags = _Tags()
    tags.feed(text)
    assert "    load <a>" in tags.code
    assert not any("tile" in text for text in tags.code)


def test_figures_stay_on_a_narrow_screen(analysis: Analysis) -> None:
    """Source lines fold, and on a telephone each figure carries its column's name."""
    text = listing_page(analysis)
    assert "white-space: pre-wrap" in text
    assert '<td class="" data-name="sectors">5</td>' in text
    assert "content: attr(data-name)" in text


def test_the_page_turns_no_words_round(analysis: Analysis) -> None:
    source = SOURCE.replace("// head", "\t/* \u202e } \u2066if (admin)\x1b */")
    text = listing_page(replace(analysis, source=source, kernel="\u202euc.live"))
    assert "\t/* \\u202e } \\u2066if (admin)\\x1b */" in text
    assert not {"\u202e", "\u2066", "\x1b"} & set(text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (7, "7"), (999, "999"), (1000, "1.00k"), (8_388_608, "8.39M")]
)
def test_counts_are_compact(count: int, text: str) -> None:
    assert compact_count(count) == text
