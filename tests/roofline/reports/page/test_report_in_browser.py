"""The report page in a real browser: what is seen, pointed at, typed, shared, printed and saved."""

from __future__ import annotations

import html
import math
from itertools import combinations
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from browser import chromium
from example_runs import CEILINGS, run
from report_pages import (
    HOSTILE,
    comparison_page,
    crowd,
    hostile_runs,
    ladder_page,
    page_of,
    sweep_page,
)

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

WIDTHS = (375, 1400)
SCHEMES = ("light", "dark")
NAIVE, TILED32, ROW_SUM, COPY = "1", "4", "5", "6"


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "ladder.html"
    path.write_text(ladder_page(), encoding="utf-8")
    return path


@pytest.fixture
def visit(browser: Browser, ladder: Path):
    """Open the ladder, or another page, in a window; a fault of the page fails the test."""
    faults: list[str] = []
    contexts = []

    def open_page(address: str = "", path: Path | None = None, width: int = 1400, **how) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **how)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else 0)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda r: r.url.startswith("file:") or faults.append(r.url))
        page.goto((path or ladder).as_uri() + address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not [fault for fault in faults if not fault.startswith("blob:")]


def point(page: Page, key: str, level: str) -> Locator:
    return page.locator(f'a.run[data-key="{key}"] .point[data-level="{level}"] .mark')


def centre(part: Locator) -> tuple[float, float]:
    box = part.bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def tick(page: Page, text: str, anchor: str) -> Locator:
    return page.locator(f'.grid text[text-anchor="{anchor}"]').get_by_text(text, exact=True)


def axes(page: Page):
    """Functions from FLOP/B and FLOP/s to pixels, calibrated with the labels of the axes."""
    (one, _), (hundred, _) = (centre(tick(page, text, "middle")) for text in ("1", "100"))
    (_, tera), (_, tens) = (centre(tick(page, text, "end")) for text in ("1 T", "10 T"))
    return (
        lambda x: one + (hundred - one) * math.log10(x) / 2,
        lambda y: tera + (tens - tera) * (math.log10(y) - 12),
    )


def shown_runs(page: Page) -> set[str]:
    keys = page.locator("a.run").evaluate_all("links => links.map((each) => each.dataset.key)")
    return set(keys)


def shown_roofs(page: Page) -> set[str]:
    return set(page.locator(".roof[data-roof]").evaluate_all("e => e.map((r) => r.dataset.roof)"))


def axis_labels(page: Page) -> list[str]:
    return page.locator(".grid text").all_text_contents()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_its_window_and_has_no_fault(visit, width: int, scheme: str) -> None:
    page = visit(width=width, color_scheme=scheme)
    assert page.locator("a.run").count() == 5
    page.locator("#unfold").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 31)"}[scheme]


@pytest.mark.parametrize("level", ["requested", "l1", "l2", "dram", "compulsory"])
def test_points_are_where_the_counters_place_them(visit, level: str) -> None:
    page = visit()
    page.get_by_role("radio", name={"l1": "L1 / shared"}.get(level, level)).check(force=True)
    to_x, to_y = axes(page)
    for key, name in ((NAIVE, "naive"), (TILED32, "tiled32"), (ROW_SUM, "row_sum")):
        placed = run(name).placement
        x, y = centre(point(page, key, level))
        assert x == pytest.approx(to_x(placed.intensity_flop_per_byte[level]), abs=1.5)
        assert y == pytest.approx(to_y(placed.flop_per_s), abs=2.5)
    assert page.locator(f'.point:not([data-level="{level}"])').count() == 0


def test_roofs_are_where_the_datasheet_places_them(visit) -> None:
    page = visit()
    to_x, to_y = axes(page)
    for ceiling in CEILINGS[:4]:
        line = page.locator(f'.roof[data-roof="{ceiling.key}"]').bounding_box()
        if ceiling.kind == "compute":
            assert line["y"] == pytest.approx(to_y(ceiling.value), abs=3)
        else:  # its left end is at the axis
            left = page.locator(".grid .axis").bounding_box()["x"]
            low = 10 ** ((left - to_x(1)) / (to_x(10) - to_x(1)))
            bottom = line["y"] + line["height"]
            assert bottom == pytest.approx(to_y(low * ceiling.value), abs=3)


def test_pointing_at_a_run_shows_its_figures(visit) -> None:
    page = visit()
    card = page.locator("#card")
    assert card.is_hidden()
    page.mouse.move(*centre(point(page, TILED32, "l2")))
    text = " ".join(card.inner_text().split())
    for figure in ("tiled 32", "width 2048, tile 32", "1.86 ms measured", "9.24 TFLOP/s"):
        assert figure in text
    for figure in ("of L1 / shared", "bound by", "passed", "DRAM", "45.8 MB", "375"):
        assert figure in text
    covered = point(page, TILED32, "l2").bounding_box(), card.bounding_box()
    assert not overlap(*covered)
    assert page.locator("#runs tr.active").first.get_attribute("data-key") == TILED32
    page.keyboard.press("Escape")
    assert card.is_hidden()
    page.mouse.move(*centre(point(page, NAIVE, "l1")))
    assert "~3.18 ms modelled" in " ".join(card.inner_text().split())
    page.mouse.move(5, 5)
    assert card.is_hidden()


def test_the_keyboard_reaches_moves_and_opens(visit) -> None:
    page = visit()
    page.locator("[data-do=png]").focus()
    page.keyboard.press("Tab")
    active = page.locator("a.run:focus")
    assert page.locator("#card").is_visible()
    visited = set()
    for _ in range(5):
        visited.add(active.get_attribute("data-key"))
        page.keyboard.press("ArrowRight")
    assert len(visited) == 5
    before = axis_labels(page)
    page.keyboard.press("+")
    zoomed = axis_labels(page)
    assert zoomed != before
    assert active.count() == 1  # the focus survives
    page.keyboard.press("Shift+ArrowRight")
    assert axis_labels(page) != zoomed
    page.keyboard.press("0")
    assert axis_labels(page) == before
    key = active.get_attribute("data-key")
    page.keyboard.press("Enter")
    assert page.locator(f"#run-{key}").evaluate("details => details.open")
    assert page.locator(f"#run-{key} > summary").evaluate("e => e === document.activeElement")
    page.go_back()
    assert "at=" not in page.evaluate("location.hash")


def test_roofs_and_runs_are_switched_and_isolated(visit) -> None:
    page = visit()
    assert shown_roofs(page) == {"dram", "l2", "l1", "fp32"}
    page.get_by_role("button", name="1 more").click()  # FP64, which no run used
    page.get_by_role("button", name="FP64", exact=True).click()
    page.get_by_role("button", name="L2", exact=True).click()
    assert shown_roofs(page) == {"dram", "l1", "fp32", "fp64"}
    page.get_by_role("button", name="Show the roof of DRAM only").click()
    assert shown_roofs(page) == {"dram"}
    page.get_by_role("button", name="Show the roof of DRAM only").click()
    assert shown_roofs(page) == {"dram", "l2", "l1", "fp32"}

    page.get_by_label("Show naive 16", exact=True).uncheck()
    assert shown_runs(page) == {"2", "3", "4", "5"}
    page.get_by_role("button", name="Show tiled 8 only").click()
    assert shown_runs(page) == {"2"}
    page.get_by_role("button", name="Show tiled 8 only").click()
    assert len(shown_runs(page)) == 5
    page.get_by_label("Filter").fill("TILED 204 tile 8")
    assert shown_runs(page) == {"2"}
    assert page.locator("table.runs tbody tr:visible").count() == 1
    assert page.locator("details.run:visible").count() == 1
    page.get_by_label("Filter").fill("no such kernel")
    assert "No run is selected" in page.locator("#note").inner_text()
    page.get_by_role("button", name="Show all").click()
    assert len(shown_runs(page)) == 5


def test_a_kernel_without_flops_is_named_below_the_chart(visit) -> None:
    page = visit()
    assert COPY not in shown_runs(page)
    assert "no FLOPs: copy" in page.locator("#note").inner_text()


def test_without_any_flops_there_is_no_empty_chart(visit, tmp_path: Path) -> None:
    path = tmp_path / "copy.html"
    path.write_text(page_of([run("copy")]), encoding="utf-8")
    page = visit("", path)
    assert page.locator("#chart").is_hidden()
    assert page.get_by_text("No run here does floating-point operations").is_visible()
    assert page.get_by_role("heading", name="Busy, share of the time").is_visible()


def test_the_address_holds_what_is_selected(visit) -> None:
    page = visit()
    assert page.evaluate("location.hash") == ""
    page.get_by_role("radio", name="L2").check(force=True)
    page.get_by_role("button", name="1 more").click()
    page.get_by_role("button", name="FP64", exact=True).click()
    page.get_by_label("Show tiled 8", exact=True).uncheck()
    page.get_by_label("Filter").fill("tiled & tile")
    page.get_by_label("Filter").fill("tiled")
    page.get_by_role("button", name="Fit").click()
    page.locator("table.runs a").nth(3).click()
    assert shown_runs(page) == {"3", "4"}
    address = page.evaluate("location.hash")
    other = visit(address)
    for read in (shown_runs, shown_roofs, axis_labels):
        assert read(other) == read(page)
    assert other.get_by_role("radio", name="L2").is_checked()
    assert other.get_by_label("Filter").input_value() == "tiled"
    assert other.evaluate("location.hash") == address
    assert other.locator(f"#run-{TILED32} > summary").evaluate("e => e === document.activeElement")


@pytest.mark.parametrize(
    "address",
    ["#level=l9&roofs=&hide=x,99&x=5,1&y=a&at=none", "#run-99", "#=&&%E0%A4%A", "#x=1e999,2"],
)
def test_an_address_from_elsewhere_does_no_harm(visit, address: str) -> None:
    assert visit(address).locator("a.run").count() == 5


def test_the_wheel_zooms_where_it_is_meant_and_the_page_scrolls_otherwise(visit) -> None:
    page = visit()
    whole = axis_labels(page)
    x, y = centre(page.locator("#plot"))
    page.mouse.move(x, y)
    page.mouse.move(x + 3, y)
    page.mouse.wheel(0, -240)
    page.wait_for_function("location.hash.includes('x=')")
    assert axis_labels(page) != whole
    assert page.evaluate("scrollY") == 0
    for _ in range(8):
        page.mouse.wheel(0, 240)
    page.wait_for_function("scrollY > 0")
    assert axis_labels(page) == whole
    scrolled = page.evaluate("scrollY")
    page.mouse.wheel(0, -120)  # the page scrolls under the pointer: no zoom
    page.wait_for_function("before => scrollY < before", arg=scrolled)
    assert axis_labels(page) == whole


def test_dragging_moves_the_view_and_opens_nothing(visit) -> None:
    page = visit()
    page.locator("[data-do=in]").click()
    before = centre(point(page, NAIVE, "l2"))
    page.mouse.move(*before)
    page.mouse.down()
    page.mouse.move(before[0] + 60, before[1] + 40, steps=4)
    page.mouse.up()
    after = centre(point(page, NAIVE, "l2"))
    assert after[0] - before[0] == pytest.approx(60, abs=3)
    assert after[1] - before[1] == pytest.approx(40, abs=3)
    assert "at=" not in page.evaluate("location.hash")


def test_advice_leads_to_its_line(visit) -> None:
    page = visit(f"#at=run-{TILED32}")
    page.get_by_role("link", name="line 9").first.click()
    row = page.locator(f"#run-{TILED32}-L9")
    assert "tile[y][x] = sum;" in row.inner_text()
    assert row.evaluate("e => e === document.activeElement")
    page.wait_for_function(
        "(row) => row.getBoundingClientRect().top > 0 && "
        "row.getBoundingClientRect().bottom < innerHeight",
        arg=row.element_handle(),
    )


def test_the_table_is_sorted_by_a_column(visit) -> None:
    page = visit()
    page.get_by_role("button", name="Time").click()
    times = page.locator("table.runs tbody tr").evaluate_all(
        "rows => rows.map((row) => Number(row.children[2].dataset.value))"
    )
    assert times == sorted(times)
    page.get_by_role("button", name="Time").click()
    first = page.locator("table.runs tbody tr").first
    assert float(first.locator("td").nth(1).get_attribute("data-value")) == max(times)


def overlap(a, b) -> bool:
    return (
        a["x"] < b["x"] + b["width"]
        and b["x"] < a["x"] + a["width"]
        and a["y"] < b["y"] + b["height"]
        and b["y"] < a["y"] + a["height"]
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("level", ["dram", "all"])
def test_labels_cover_neither_each_other_nor_points(
    visit, tmp_path: Path, width: int, level: str
) -> None:
    path = tmp_path / "crowd.html"
    path.write_text(page_of(crowd(14)), encoding="utf-8")
    page = visit(f"#level={level}", path, width)
    page.evaluate("document.fonts.ready")
    assert_labels_are_apart(page, at_least=4)
    page.locator("[data-do=fit]").click()
    least = {("dram", 1400): 12, ("all", 1400): 8}.get((level, width), 5)
    assert_labels_are_apart(page, at_least=least)


def assert_labels_are_apart(page: Page, at_least: int) -> None:
    texts = [each.bounding_box() for each in page.locator(".label text").all()]
    assert len(texts) >= at_least
    assert not [pair for pair in combinations(texts, 2) if overlap(*shrunk(pair))]
    marks = [each.bounding_box() for each in page.locator("a.run .mark").all()]
    assert not [1 for text in texts for mark in marks if overlap(*shrunk((text, mark)))]


def shrunk(boxes):
    """Boxes without the room above and below a line's letters."""
    return [
        {
            "x": box["x"] + 2,
            "width": box["width"] - 4,
            "y": box["y"] + 3,
            "height": box["height"] - 6,
        }
        for box in boxes
    ]


def test_no_two_runs_look_alike(visit, tmp_path: Path) -> None:
    path = tmp_path / "crowd.html"
    path.write_text(page_of(crowd(60)), encoding="utf-8")
    page = visit("#level=dram", path)
    looks = page.locator("table.runs .key-picture path").evaluate_all(
        "marks => marks.map((mark) => mark.getAttribute('d') + getComputedStyle(mark).stroke"
        " + getComputedStyle(mark).fill)"
    )
    assert len(looks) == len(set(looks)) == 60


def test_a_comparison_has_arrows_figures_and_links_to_lines(visit, tmp_path: Path) -> None:
    path = tmp_path / "compared.html"
    path.write_text(comparison_page(), encoding="utf-8")
    page = visit("#level=l1", path)
    # From tiled 8 to the right and up, to tiled 32.
    arrow = [float(page.locator(".arrow").get_attribute(name)) for name in ("x1", "y1", "x2", "y2")]
    assert arrow[2] > arrow[0]
    assert arrow[3] < arrow[1]
    section = page.get_by_role("region", name="Comparison")
    text = " ".join(section.inner_text().lower().split())
    for words in ("faster", "no longer needed", "new advice.", "268,435,456 67,108,864 -75%"):
        assert words in text
    page.get_by_label("Show tiled 8", exact=True).uncheck()
    assert page.locator(".arrow").count() == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sweep_has_its_picture_its_ranking_and_links_to_the_runs(
    visit, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(sweep_page(), encoding="utf-8")
    page = visit(path=path, width=width)
    section = page.get_by_role("region", name="Sweep sweep-1")
    assert section.locator("img").evaluate("e => e.complete && e.naturalWidth > 300")
    rows = section.locator("tbody tr")
    times = [row.locator("td").nth(2).inner_text() for row in rows.all()]
    assert times == sorted(times, key=lambda text: float(text.strip("~").split()[0]))
    assert len(times) == 5
    assert rows.first.locator("td").first.inner_text() == "float"
    assert "impossible: double (TYPE double, tile 32)" in section.locator("li").inner_text()
    rows.first.get_by_role("link").click()
    opened = page.locator("details.run[open] > summary")
    assert "TYPE=float" in opened.inner_text()
    assert opened.evaluate("e => e === document.activeElement")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_points_that_differ_in_what_a_label_leaves_out_are_numbered(visit, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(sweep_page([f"{'x' * 20}{n}{'y' * 20}" for n in range(2)]), encoding="utf-8")
    page = visit("#level=dram", path)
    labels = page.locator(".label text").all_text_contents()
    assert len(labels) == len(set(labels)) >= 3
    assert any(label.startswith("#") for label in labels)


def test_downloads_are_what_is_seen(visit, tmp_path: Path) -> None:
    page = visit("#level=dram&hide=2&roofs=dram,fp32", color_scheme="dark")
    for form in ("svg", "png"):
        with page.expect_download() as started:
            page.locator(f"[data-do={form}]").click()
        started.value.save_as(tmp_path / started.value.suggested_filename)
    assert {path.name for path in tmp_path.iterdir()} == {
        "roofline-h200-dram.svg",
        "roofline-h200-dram.png",
    }
    text = (tmp_path / "roofline-h200-dram.svg").read_text(encoding="utf-8")
    assert "var(" not in text
    assert "memlab-data" not in text
    words = list(ElementTree.fromstring(text).itertext())
    assert any("memlab's ladder" in word for word in words)
    assert any("DRAM 4.81 TB/s" in word for word in words)
    assert any("tiled 16" in word for word in words)
    assert not any("tiled 8" in word or "L2" in word for word in words)
    assert "rgb(20, 25, 31)" in text  # the paper of the dark theme

    drawn = visit(path=tmp_path / "roofline-h200-dram.svg")
    assert drawn.locator("text", has_text="naive 16").first.is_visible()
    png = (tmp_path / "roofline-h200-dram.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    width = int.from_bytes(png[16:20])
    assert width == 2 * round(page.locator("svg.roofline").bounding_box()["width"])
    assert len(png) > 20_000


def test_paper_is_white_and_has_no_controls(visit) -> None:
    page = visit(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in ("#theme", ".controls >> nth=0", ".buttons", "#filter"):
        assert page.locator(control).is_hidden()
    assert page.locator("svg.roofline").is_visible()
    assert page.locator("table.runs").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_the_theme_is_switched_and_kept(visit) -> None:
    page = visit(color_scheme="light")
    page.get_by_role("button", name="Dark theme").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 25, 31)"
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made", [ladder_page, comparison_page, sweep_page])
def test_axe_finds_nothing_serious(visit, tmp_path: Path, made, width: int, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    path = tmp_path / "page.html"
    path.write_text(made(), encoding="utf-8")
    page = visit("", path, width, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce")
    page.locator("#unfold").click()
    for closed in page.locator("details:not([open]) > summary").all():
        if closed.is_visible():
            closed.click()
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(*centre(page.locator(".mark").first))
    assert page.locator("#card").is_visible()
    found = Axe().run(page).response["violations"]
    serious = [
        (each["id"], [node["target"] for node in each["nodes"]][:5])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_values_of_a_sweep_run_nothing_and_fit(visit, tmp_path: Path, width: int) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(sweep_page(HOSTILE), encoding="utf-8")
    page = visit(path=path, width=width)
    page.locator("#unfold").click()
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "</script>" in page.locator("section.sweep tbody").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_texts_run_nothing_and_fit(visit, tmp_path: Path, width: int) -> None:
    path = tmp_path / "hostile.html"
    runs = hostile_runs()
    path.write_text(page_of(runs, "".join(HOSTILE[3:]) + HOSTILE[0]), encoding="utf-8")
    page = visit(path=path, width=width)
    page.locator("#unfold").click()
    for place in range(len(runs)):
        page.locator("#device").select_option(str(place))
        assert page.locator("a.run").count() == 1
        page.locator("#plot").scroll_into_view_if_needed()
        page.mouse.move(*centre(page.locator(".mark").first))
        assert page.locator("#card").is_visible()
        page.mouse.move(5, 5)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    with page.expect_download() as started:
        page.locator("[data-do=svg]").click()
    saved = tmp_path / "hostile.svg"
    started.value.save_as(saved)
    ElementTree.parse(saved)


def test_without_scripts_the_tables_stand_alone(visit) -> None:
    page = visit(java_script_enabled=False)
    assert page.locator("text=The chart needs JavaScript").is_visible()
    assert page.locator("button:visible, input:visible").count() == 0
    assert page.locator("table.runs tbody tr").count() == 6
    page.locator(f"#run-{TILED32} > summary").click()
    assert page.locator(f"#run-{TILED32} .listing").is_visible()


def test_a_frame_of_a_notebook_shows_the_page(visit, tmp_path: Path) -> None:
    """It has no address of its own, in which the page could keep what is selected."""
    path = tmp_path / "notebook.html"
    frame = f'<iframe srcdoc="{html.escape(ladder_page())}" width="1000" height="800"></iframe>'
    path.write_text(f"<!DOCTYPE html><title>notebook</title>{frame}", encoding="utf-8")
    page = visit("", path).frames[1]
    page.locator("[data-do=fit]").click()
    page.locator("table.runs a").first.click()
    assert page.locator("a.run").count() == 5
    assert page.locator(f"#run-{NAIVE}").evaluate("details => details.open")
