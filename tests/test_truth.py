"""The launches that times and counters are compared by with a GPU's: what they are, and compute."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.truth import cases, compare, data, measure
from benchmarks.truth.measured import measured_launches
from benchmarks.truth.modelled import Modelled, modelled
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation.device import execute_launch
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.measurement import Resources

WRITTEN = list(cases.written_cases())
LATER = list(cases.later_cases())
VERIFIED = [case for case in (*WRITTEN, *LATER) if "--reference" in case.words]
H200 = loader.load_datasheet("h200")
NO_CODE = CompiledKernel((9, 0), "", b"", Resources(0, 0, 0), "")
PROFILED = """\
launched: first
launched: lost
==PROF== Connected to process 1
launched: second
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum"
"","","ns","byte"
"0","memset","9","9"
"1","same","1,200","64"
"2","other","5","n/a"
"""


def name_of(case: cases.Case) -> str:
    return case.name


def test_the_launches_are_many_and_a_third_of_each_kind_is_put_aside() -> None:
    kernels = {case.words.split()[0] for case in WRITTEN}
    assert len(WRITTEN) >= 60
    assert len(kernels) >= 40
    assert len({case.name for case in cases.all_cases()}) == len(cases.all_cases())
    for kind in {case.kind for case in WRITTEN}:
        aside = [case.held_out for case in WRITTEN if case.kind == kind]
        assert sum(aside) == round(len(aside) / 3)
    later = Counter(case.held_out for case in LATER)
    assert later.keys() == {
        cases.SECOND_ASIDE,
        cases.THIRD_ASIDE,
        cases.FOURTH_ASIDE,
        cases.FIFTH_ASIDE,
        cases.SIXTH_ASIDE,
    }
    assert min(later.values()) >= 15


def test_every_array_of_a_file_is_drawn_alike_again(tmp_path) -> None:
    for name in ("skewed-column", "hot-index", "cycle-1m"):
        files = [tmp_path / run / f"{name}.npy" for run in "ab"]
        for file in files:
            data.write_array(file)
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("case", VERIFIED[::12], ids=name_of)
def test_a_run_is_verified(case: cases.Case) -> None:
    verification = EmulatedDevice("h200", H200).run(case.launch(), seed=0).verification
    assert verification.status != "failed", verification.worst


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in VERIFIED if case not in VERIFIED[::12]], ids=name_of
)
def test_the_result_is_what_numpy_computes(case: cases.Case) -> None:
    """Without the models of caches and time, which take three quarters of a run."""
    launch = case.launch()
    compiled = compile_launch(launch, H200.compute_capability)
    verification = execute_launch(launch, compiled, H200, seed=0).verification()()
    assert verification.status != "failed", verification.worst


def test_profiled_kernels_are_told_apart_by_their_order() -> None:
    prepared = {case.name: case.launch() for case in WRITTEN[:3]}
    group = []
    for name, entry, launch in zip(
        ("first", "lost", "second"), ("same", "gone", "other"), prepared.values(), strict=True
    ):
        renamed = replace(launch, entry=entry, references={})
        group.append(measure.Prepared(name, "", False, renamed, NO_CODE))
    rows = dict(measure.rows_by_launch(PROFILED, group))
    assert rows == {
        "first": {"gpu__time_duration.sum": "1200", "dram__bytes_read.sum": "64"},
        "second": {"gpu__time_duration.sum": "5", "dram__bytes_read.sum": "n/a"},
    }


def test_a_wrong_result_is_named(monkeypatch, capsys) -> None:
    verdicts = {"votes": "failed", "gelu-bf16": "passed", "hash-words": "skipped"}
    found = [(name, Modelled(1e-5, verified=verdict)) for name, verdict in verdicts.items()]
    monkeypatch.setattr(compare, "modelled_launches", lambda *_: iter(found))
    compared = compare.compare_launches([case for case in WRITTEN if case.name in verdicts], 1)
    assert {one.case.name for one in compared} == set(verdicts)
    assert capsys.readouterr().err == "votes: the result is not that of its reference\n"


def test_ranks_alone_decide_the_correlation() -> None:
    assert compare.rank_correlation([1, 2, 30], [5, 6, 7]) == pytest.approx(1)
    assert compare.rank_correlation([1, 2, 30], [7, 6, 5]) == pytest.approx(-1)


@pytest.mark.parametrize("name", ["hash-words", "votes", "radix-split", "gelu-bf16"])
def test_an_h200_counted_as_many_instructions_of_each_pipe(name: str) -> None:
    case = next(case for case in WRITTEN if case.name == name)
    found, counted = modelled(case, H200).counters, measured_launches()[name].counters
    for pipe in ("alu", "fma", "xu"):
        key = f"instructions_{pipe}"
        assert found[key] == pytest.approx(counted[key], rel=1e-3), pipe


@pytest.mark.parametrize("name", ["hash-straight", "counts-of-bits", "half2-polynomial"])
def test_an_h200_counted_as_many_operations(name: str) -> None:
    case = next(case for case in WRITTEN if case.name == name)
    found, counted = modelled(case, H200).counters, measured_launches()[name].counters
    assert found["iop"] == pytest.approx(counted["iop"], rel=1e-3)
    # The move of a constant by HADD2 is among the hardware's.
    assert found["flop_16_bit"] == pytest.approx(counted["flop_16_bit"], rel=0.02)


@pytest.mark.slow
def test_warps_with_more_work_are_not_all_on_one_sub_core() -> None:
    """Of each block the first warp works longest; 23% high where these share a sub-core."""
    case = next(case for case in LATER if case.name == "option-trees")
    assert modelled(case, H200).time_s == pytest.approx(
        measured_launches()[case.name].time_s, rel=0.1
    )


@pytest.mark.parametrize("name", ["copy-one-block", "edit-distance", "shared-ints-8"])
def test_an_h200_read_as_much_for_a_small_launch(name: str) -> None:
    """Its code and what starts it: 88 of 120, 120 of 4216 and all of 104 sectors."""
    case = next(case for case in WRITTEN if case.name == name)
    found, counted = modelled(case, H200).counters, measured_launches()[name].counters
    assert found["dram_read_bytes"] == pytest.approx(counted["dram_read_bytes"], rel=0.05)
