"""`memlab explain`: terms, kernels, the list of all, and names that are nearly right."""

import json
import re

import pytest

from memlab.cli.app import main
from memlab.cli.commands.explain import _complete_name
from memlab.device.measurement import Counters
from memlab.kernels.catalog import CATALOG
from memlab.roofline import glossary
from memlab.roofline.plots.legend import TABLE_COLUMNS
from memlab.roofline.reports import analyze

Capture = pytest.CaptureFixture[str]


def explain(words: str, capsys: Capture) -> str:
    """Run the command, and give what it shows as one line."""
    assert main(["explain", *words.split()]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80
    return " ".join(out.split())


def test_a_term_has_unit_formula_metric_and_chapter(capsys: Capture) -> None:
    shown = explain("Bank conflict", capsys)
    for fact in (
        "gcd(s, 32)-way",
        "unit excessive wavefronts",
        "formula wavefronts - ideal wavefronts",
        "ncu memory_l1_wavefronts_shared",
        "chapter CUDA Training Series, lesson 4, 'Fundamental CUDA optimization (part 2)'",
        "see bank, padding",
    ):
        assert fact in shown


def test_a_kernel_says_what_to_expect(capsys: Capture) -> None:
    shown = explain("tiled", capsys)
    for fact in (
        "Matrix product; tiles are staged in static shared memory.",
        "What to expect: every element that is loaded from global memory is used TILE times",
        "--tile Edge T of the two tiles, and of the block",
        "chapter PMPP 4th edition, chapter 5, 'Memory architecture and data locality'",
    ):
        assert fact in shown


def test_alone_it_lists_everything(capsys: Capture) -> None:
    shown = explain("", capsys)
    for name in ("arithmetic intensity", "Memory spaces", *Counters.names(), *CATALOG):
        assert name in shown


def test_every_page_fits_the_terminal(capsys: Capture) -> None:
    assert main(["explain", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    for entry in document["entries"]:
        assert entry["name"] in explain(entry["name"], capsys)


def test_a_wrong_name_is_one_line(capsys: Capture) -> None:
    assert main(["explain", "arithmetic", "intencity"]) == 2
    out, err = capsys.readouterr()
    assert not out
    refusal = "memlab: error: no term or kernel is called 'arithmetic intencity': did you mean"
    assert err.startswith(refusal)
    assert "'arithmetic intensity'" in err
    assert err.count("\n") == 1


def test_completion_gives_words_that_explain_takes(capsys: Capture) -> None:
    words = _complete_name("ban")
    assert {"bank", "bank-conflict", "bandwidth"} <= set(words)
    for word in words:
        explain(word, capsys)
    assert "tiled" in _complete_name("ti")


def labels(report: str) -> set[str]:
    """What names figures in a report: the headings of its columns and what begins its lines."""
    found = set()
    for line in report.partition("\n\n")[2].partition("   Source")[0].splitlines():
        if label := re.match(r"  (\S.{0,15}?) {2,}\S", line):
            found.add(label[1])
        elif not line.startswith(" "):
            found.update(re.split(r" {2,}", line.strip())[1:])
    return {label for label in found if not re.search(r"[mkn] \d", label)}  # sizes


@pytest.mark.parametrize(
    ("command", "among"),
    [
        ("run tiled --width 64 --no-store", "excessive"),
        ("run filter-constant-divergent --n 65536 --no-store", "passes"),
        ("run filter-local --n 65536 --no-store", "local loads"),
        ("run transpose --width 256 --no-store", "rate"),
        ("analyze naive --m 100 --k 57 --n 75", "lane slots"),
        ("occupancy tiled", "resident"),
    ],
)
def test_every_label_of_a_report_is_known(command: str, among: str, capsys: Capture) -> None:
    assert main([*command.split(), "--device", "h200"]) == 0
    shown = labels(capsys.readouterr().out)
    assert among in shown
    for label in shown:
        assert glossary.find_entries(label), label


def test_every_heading_of_a_listing_and_of_the_picture_is_known() -> None:
    listing = (
        re.sub("-\n|\n(?=/)", "", column.heading).replace("\n", " ")
        for column in analyze.LISTING_COLUMNS
    )
    picture = (heading for heading, _, _ in TABLE_COLUMNS[2:])  # after kernel and parameters
    for label in (*listing, *picture, "effective bandwidth", "tile width"):
        assert glossary.find_entries(label.strip()), label


def test_whatever_may_bind_is_known(capsys: Capture) -> None:
    words = "run filter-constant-divergent --n 65536 --no-store --json --device h200"
    assert main(words.split()) == 0
    bounds = json.loads(capsys.readouterr().out)["time"]["bounds_s"]
    assert {"issue", "constant cache", "latency"} <= set(bounds)
    for bound in bounds:
        assert glossary.find_entries(bound)[0].kind in ("roofline", "intensity"), bound
