"""Lessons on the command line: a parameter that is a word, and how the bus is used."""

import json
from pathlib import Path

import pytest

from memlab.cli.app import main
from memlab.roofline.reports.parts import percent

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


def test_the_l1_port_has_one_figure(capsys: Capture) -> None:
    """Passes, bound, report and advice: the port's share of the time is the model's."""
    words = ["run", "naive", "--width", "512", "--no-store", "-d", "h200", "-q"]
    assert main([*words, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    busy = run["time"]["bounds_s"]["l1"] / run["time"]["median_s"]
    assert run["roofline"]["busy"]["l1"] == pytest.approx(busy)
    # Of 16 x 2 threads a warp's loads of M touch two lines, those of N one; its store two.
    warps = 512 * 512 // 32
    assert run["counters"]["l1_wavefronts"] == warps * (512 * 3 + 2)

    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"L1 port 12.6 M passes, busy {percent(busy)} of the time on the busiest SM" in shown
    assert f"the L1 is busy {100 * busy:.0f}% of the time serving" in shown


def test_atomics_have_rows_of_their_own(tmp_path: Path, capsys: Capture) -> None:
    kernel = """extern "C" __global__ void k(unsigned *out)
{
    __shared__ unsigned sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1u);
    __syncthreads();
    atomicAdd(&out[threadIdx.x % 32], sum);
}
"""
    (tmp_path / "k.cu").write_text(kernel)
    words = ["run", f"{tmp_path / 'k.cu'}:k", "--grid", "4", "--block", "64"]
    words += ["--arg", "inout:u32[32]=zeros", "--no-store", "-d", "h200", "-q"]

    assert main(words) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "reductions 8 32 4.00" in shown
    assert "L2 atomics 32" in shown
    assert "atomics 8 8 1.00" in shown
    assert not any(line.startswith("global atomics") for line in shown)

    assert main(["run", "naive", "--width", "64", "--no-store", "-d", "h200", "-q"]) == 0
    out = capsys.readouterr().out
    assert "atomics" not in out
    assert "reductions" not in out


def test_flops_of_the_algorithm_and_executed_ones(capsys: Capture) -> None:
    words = ["run", "blur", "--width", "64", "--height", "64", "--no-store", "-d", "h200", "-q"]
    assert main([*words, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    flop, executed = run["flop"], run["counters"]["flop_fp32"]
    assert executed > 1.5 * flop  # dividing by nine is about ten operations

    assert main(words) == 0
    both = f"FLOP {flop / 1e3:.1f} k of the algorithm, {executed / 1e3:.1f} k executed"
    assert both in " ".join(capsys.readouterr().out.split())


def test_unknown_word_is_one_line(capsys: Capture) -> None:
    assert main(["run", "aligned", "--cache", "l1", "--no-store"]) == 2

    assert capsys.readouterr().err == "memlab: error: cache must be all or global, got 'l1'\n"
