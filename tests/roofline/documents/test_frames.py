"""The frames of runs and of the roofline's picture: their rows, columns and empty cells."""

from __future__ import annotations

from dataclasses import replace

from example_runs import CEILINGS, run

from memlab.roofline.documents.frames import PICTURE_COLUMNS, picture_frame, runs_frame


def test_a_picture_has_a_row_per_ceiling_and_per_level_where_bytes_move() -> None:
    tiled = run("tiled16")
    levels = tiled.placement.intensity_flop_per_byte | {"dram": None}
    tiled = replace(tiled, placement=replace(tiled.placement, intensity_flop_per_byte=levels))
    frame = picture_frame([tiled], CEILINGS)

    assert tuple(frame.columns) == PICTURE_COLUMNS
    ceilings, points = (frame[frame["record"] == kind] for kind in ("ceiling", "point"))
    assert ceilings["bytes_per_s"].dropna().tolist() == [4.814e12, 10.138e12, 33.454e12]
    assert ceilings["flop_per_s"].dropna().tolist() == [66.908e12, 33.454e12]
    assert points["level"].tolist() == ["requested", "l1", "l2", "compulsory"]
    assert points["intensity_flop_per_byte"].tolist() == [
        levels[level] for level in points["level"]
    ]
    assert set(points["tile"]) == {16}


def test_a_parameter_has_its_column_once() -> None:
    frame = runs_frame([run("tiled16"), run("copy")])

    after = list(frame.columns).index("parameters")
    assert list(frame.columns)[after + 1 : after + 4] == ["width", "n", "tile"]
    assert list(frame.columns).count("tile") == 1
    assert frame["width"].tolist()[0] == 2048
    assert frame["width"].isna().tolist() == [False, True]
    assert str(frame["width"].dtype) == "Int64"  # whole numbers stay whole
