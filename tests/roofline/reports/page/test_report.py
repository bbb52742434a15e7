"""The text of the report page: escaped, self-contained, small, and whole without scripts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from example_runs import measurement, run, run_of
from report_pages import HOSTILE, crowd, detailed_run, hostile_runs, ladder_page, page_of

from memlab.roofline.reports.page.chart import DeviceRoofs, chart_data, chart_runs, device_names
from memlab.roofline.reports.page.run import costly_lines, known_lines
from memlab.roofline.run import RunIdentity

VOID = ("meta", "br", "input", "img", "link")
MAX_PAGE_BYTES = 300_000


class Page(HTMLParser):
    """The tags of a page with their attributes, its texts, and the data of its script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open[-1:] == ["script"] and not self.data:
            self.data = data


@pytest.fixture(scope="module")
def ladder():
    return Page(ladder_page())


def test_the_page_is_well_formed_and_loads_nothing(ladder):
    assert not ladder.open
    loaded = [
        value
        for tag, attributes in ladder.tags
        for name, value in attributes.items()
        if name in ("src", "srcset", "data") or (name == "href" and not value.startswith("#"))
    ]
    assert not loaded
    ids = [attributes["id"] for _, attributes in ladder.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"].removeprefix("#") for _, a in ladder.tags if "href" in a}
    assert targets <= set(ids)


def test_the_tables_hold_the_figures_of_the_chart(ladder):
    """They are its accessible form: what the script draws is in the tables as text."""
    words = " ".join(" ".join(ladder.texts).split())
    for figure in ("~3.18 ms", "1.86 ms", "9.24 TFLOP/s", "L1 / shared", "✓ passed"):
        assert figure in words
    # naive: 2 * 2048^3 FLOPs over 8 bytes each; row_sum: 0.25 FLOP/B at DRAM nearly.
    assert "0.250 (68.7 GB)" in words


def test_hostile_texts_stay_texts():
    page = Page(page_of(hostile_runs(), HOSTILE[0]))
    plain = Page(ladder_page())
    assert not page.open
    assert sum(tag == "script" for tag, _ in page.tags) == sum(t == "script" for t, _ in plain.tags)
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    whole = "".join(page.texts)
    assert HOSTILE[1] in whole
    assert not {"\u202e", "\u2066", "\u2028"} & set(whole)
    kernels = [each["kernel"] for each in json.loads(page.data)["runs"]]
    assert kernels[:2] == list(HOSTILE[:2])


def test_the_security_policy_allows_the_own_script_alone():
    text = ladder_page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[\w+/]{43}='", policy)
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_the_page_is_small():
    assert len(page_of([run("naive")]).encode()) < MAX_PAGE_BYTES
    data = len(page_of(crowd(2)).encode()) - len(page_of(crowd(1)).encode())
    assert data < 20_000  # of each run more


def test_every_run_has_a_name_of_its_own():
    base = measurement("tiled16")
    elsewhere = replace(base, device=replace(base.device, key="a100", name="A100"))
    runs = [
        run_of(base),
        run_of(base),
        run_of(elsewhere),
        replace(run_of(base), identity=RunIdentity(label="before")),
    ]
    devices = [DeviceRoofs(each, ()) for each in (base.device, elsewhere.device)]
    named = chart_runs(runs, devices)
    assert len({each.label for each in named}) == 4
    assert "a100" in named[2].label
    assert "before" in named[3].label
    assert [each.device for each in named] == [0, 0, 1, 0]
    # Numbers of the store name runs in the page's address, if each run has one of its own.
    assert [each.key for each in named] == ["n1", "n2", "n3", "n4"]
    stored = [replace(each, id=10 + place) for place, each in enumerate(runs)]
    assert [each.key for each in chart_runs(stored, devices)] == ["10", "11", "12", "13"]


def test_two_gpus_of_one_name_are_told_apart():
    base = measurement("tiled16")
    gpu = replace(base.device, kind="cuda", key="cuda:0")
    other = replace(gpu, key="cuda:1", uuid="GPU-00000000-0")
    first, second = (replace(gpu, uuid=f"GPU-{digit * 8}-5") for digit in "12")
    roofs = [DeviceRoofs(each, ()) for each in (first, second, other)]
    names = device_names(roofs)
    assert names[0].endswith("cuda:0, GPU-11111111")
    assert names[1].endswith("cuda:0, GPU-22222222")
    assert names[2].endswith("cuda:1")
    page = page_of([run_of(replace(base, device=each)) for each in (first, second, other)])
    assert re.findall("<option [^>]*>(.*?)</option>", page) == names
    keys = [device["key"] for device in chart_data([], roofs)["devices"]]
    assert len(set(keys)) == 3  # they stand in the page's address


def test_a_run_without_counters_has_its_time_alone():
    base = run("naive", "measured")
    coverage = replace(base.measurement.coverage, not_counted="the emulator lacks an instruction")
    bare = replace(base, measurement=replace(base.measurement, coverage=coverage))
    page = Page(page_of([bare]))
    assert json.loads(page.data)["runs"][0]["levels"] == {}
    assert "the emulator lacks an instruction" in " ".join(page.texts)


def test_the_costliest_lines_are_named_once_each():
    """Line 7 moves 288 sectors and uses 1152 bytes; line 9 has 128 wavefronts, 124 by conflicts."""
    source = known_lines(detailed_run())
    assert costly_lines(source) == [
        "line 9: 64% of the traffic through the L1; 124 wavefronts by bank conflicts",
        "line 7: 12.5% of its bytes are used",
    ]
    assert costly_lines([]) == []
