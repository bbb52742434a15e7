"""A sweep that is made again of its runs."""

from dataclasses import replace

from example_runs import measurement, run_of

from memlab.device.measurement import Verification
from memlab.roofline.sweep.stored import sweep_of_runs


def test_the_axes_are_what_differs_and_the_fastest_is_first():
    runs = [run_of(measurement(name)) for name in ("tiled8", "tiled16", "tiled32")]
    sweep = sweep_of_runs("tiles", runs)
    assert [(axis.name, axis.values) for axis in sweep.varying] == [("tile", (8, 16, 32))]
    # Times of an H200: 3.38, 2.11 and 1.86 ms.
    assert [row.values["tile"] for row in sweep.rows] == [32, 16, 8]
    assert sweep.best.value == runs[2].measurement.time.median_s


def test_the_newest_run_of_a_point_counts_and_a_wrong_one_is_last():
    runs = [run_of(measurement(name)) for name in ("tiled8", "tiled32", "tiled8")]
    wrong = Verification("failed", 1.0, 1e-4, 9, 9, "P[0]")
    runs[2] = replace(runs[2], measurement=replace(runs[2].measurement, verification=wrong))
    sweep = sweep_of_runs("tiles", runs)
    assert [(row.status, row.run) for row in sweep.rows] == [("done", runs[1]), ("wrong", runs[2])]


def test_runs_that_differ_in_nothing_are_no_sweep():
    assert sweep_of_runs("one", [run_of(measurement("naive"))]) is None


def test_options_that_follow_from_symbols_are_no_axes():
    runs = []
    for n, b, tile in ((64, 8, 4), (64, 16, 4), (64, 16, 8)):
        measured = measurement("naive")
        launch = {"N": n, "B": b, "grid": str(n // b), "block": str(b), "args": f"f32[{n}]"}
        parameters = {**launch, "defines": f"TILE={tile} TYPE=float"}
        runs.append(run_of(replace(measured, kernel="k.cu:f", parameters=parameters)))
    sweep = sweep_of_runs("tiles", runs)
    assert [(axis.name, axis.values) for axis in sweep.varying] == [
        ("B", (8, 16)),
        ("TILE", (4, 8)),
    ]
    assert len(sweep.rows) == 3
    assert sweep.rows[0].values["TYPE"] == "float"
