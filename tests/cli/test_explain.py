"""`memlab explain`: terms, kernels, the list of all, and names that are nearly right."""

import json

import pytest

from memlab.cli.app import main
from memlab.cli.explain import _complete
from memlab.device.measurement import Counters
from memlab.kernels.catalog import CATALOG

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
    for name in ("arithmetic intensity", "Memory spaces", *vars(Counters()), *CATALOG):
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
    assert err.startswith("memlab: error: nothing is known of 'arithmetic intencity': did you mean")
    assert "'arithmetic intensity'" in err
    assert err.count("\n") == 1


def test_completion_gives_words_that_explain_takes(capsys: Capture) -> None:
    words = _complete("ban")
    assert {"bank", "bank-conflict", "bandwidth"} <= set(words)
    for word in words:
        explain(word, capsys)
    assert "tiled" in _complete("ti")
