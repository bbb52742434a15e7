"""Lessons on the command line: a parameter that is a word, and how the bus is used."""

import json
from pathlib import Path

import pytest

from memlab.cli.app import main

Capture = pytest.CaptureFixture[str]


def test_misaligned_shows_both_shares(capsys: Capture) -> None:
    assert main(["run", "misaligned", "--n", "4096", "--no-store", "-d", "h200", "-q"]) == 0

    out = capsys.readouterr().out
    (loads, stores) = out.partition("Bus utilisation")[2].splitlines()[1:3]
    assert loads.split() == ["loads", "50%", "80%"]
    assert stores.split() == ["stores", "100%", "100%"]
    assert "FLOP/s" not in out  # a copy computes nothing: its rate is in bytes


def test_word_is_kept_with_the_run(tmp_path: Path, capsys: Capture) -> None:
    store = ["--store", str(tmp_path / "runs.sqlite3")]
    words = ["run", "aligned", "--n", "4096", "--cache", "global", "-d", "h200", "-q", "--json"]

    assert main([*words, *store]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == {"n": 4096, "cache": "global"}

    assert main(["runs", "show", "1", *store]) == 0
    assert "cache global" in capsys.readouterr().out


def test_divergent_constants_show_their_passes(capsys: Capture) -> None:
    words = ["run", "filter-constant-divergent", "--n", "4096", "--no-store", "-d", "h200", "-q"]
    assert main(words) == 0

    constants = capsys.readouterr().out.partition("Constant memory")[2].splitlines()[1]
    assert constants.split() == ["loads", "2,048", "32,768", "16.00"]


def test_unknown_word_is_one_line(capsys: Capture) -> None:
    assert main(["run", "aligned", "--cache", "l1", "--no-store"]) == 2

    assert capsys.readouterr().err == "memlab: error: cache must be all or global, got 'l1'\n"
