"""The axes of a sweep, its points, and the order in which strategies ask for them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from memlab.errors import UsageError
from memlab.roofline.sweep.objective import find_objective
from memlab.roofline.sweep.space import Axis, Space, axis_values, make_space
from memlab.roofline.sweep.strategies import make_strategy

SPACE = Space((Axis("a", "parameter", (1, 2, 4)), Axis("word", "macro", ("x", "y"))))


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("8,16,32", (8, 16, 32)),
        ("512:4096:x2", (512, 1024, 2048, 4096)),
        ("512:4000:x2,1K", (512, 1024, 2048)),
        ("32:128:+32", (32, 64, 96, 128)),
        ("1K:1M:x32", (1024, 32768, 1048576)),
        ([8, "16,24", np.int64(8)], (8, 16, 24)),
        (7, (7,)),
        ("float,double", ("float", "double")),
        ("min(N,4),2*B", ("min(N,4)", "2*B")),
        ("a::b", ("a::b",)),
        (0.5, ("0.5",)),
    ],
)
def test_lists_and_ranges(given: object, values: tuple[object, ...]) -> None:
    assert axis_values("n", given) == values


@pytest.mark.parametrize(
    "given",
    [
        *("8,,9", "", [], "8:4:x2", "8:64:x1", "8:64:+0", "a:b:x2", "1:9G:+1", [None], {}),
        *("32:128:32", "4K:64K", "8:64:", "8,16:64"),
    ],
)
def test_what_is_no_list_is_one_line(given: object) -> None:
    with pytest.raises(UsageError, match=r"^n") as error:
        axis_values("n", given)
    assert "\n" not in str(error.value)


def test_points_are_all_combinations_once() -> None:
    points = [tuple(SPACE.values(number).values()) for number in range(SPACE.size)]

    assert points == list(itertools.product((1, 2, 4), ("x", "y")))
    assert [SPACE.number(SPACE.place(number)) for number in range(6)] == list(range(6))
    with pytest.raises(UsageError, match="given twice"):
        make_space([Axis("N", "symbol", (1,)), Axis("N", "macro", (1,))])


@pytest.mark.parametrize("name", ["random", "tpe", "all"])
def test_a_space_beyond_counting_is_sampled(name: str) -> None:
    space = make_space([Axis(name, "symbol", tuple(range(100))) for name in "abcdefghijkl"])
    with pytest.raises(UsageError, match=r"at most 1,000,000.*--budget 100"):
        make_strategy(name, space, lambda number: True, None, 0)

    strategy = make_strategy(name, space, lambda number: number % 2 == 0, 5, 0)
    asked = {strategy.ask() for _ in range(5)}
    assert len(asked - {None}) == 5
    assert strategy.ask() is None


@pytest.mark.parametrize("name", ["all", "random", "tpe"])
def test_a_strategy_asks_for_each_admitted_point_once(name: str) -> None:
    strategy = make_strategy(name, SPACE, lambda number: number != 3, 100, seed=1)
    asked = []
    while (number := strategy.ask()) is not None:
        asked.append(number)
        strategy.tell(number, None if number == 2 else float(number))

    assert sorted(asked) == [0, 1, 2, 4, 5]
    limited = make_strategy(name, SPACE, lambda number: True, 2, seed=1)
    assert len({limited.ask(), limited.ask()}) == 2
    assert limited.ask() is None


def test_the_optimiser_finds_a_valley_sooner_than_chance() -> None:
    side = 30
    space = Space(tuple(Axis(name, "symbol", tuple(range(side))) for name in "ab"))

    def height(number: int) -> float:
        a, b = space.place(number)
        return (a - 23) ** 2 + (b - 7) ** 2

    def best(name: str, seed: int) -> float:
        strategy = make_strategy(name, space, lambda number: True, 60, seed)
        heights = []
        while (number := strategy.ask()) is not None:
            heights.append(height(number))
            strategy.tell(number, heights[-1])
        assert len(heights) == 60
        return min(heights)

    found = {name: sorted(best(name, seed) for seed in range(3))[1] for name in ("tpe", "random")}
    assert found["tpe"] < found["random"]


def test_wrong_strategies_and_objectives_are_one_line() -> None:
    for name, budget, said in (
        ("best", 1, "no strategy 'best'"),
        ("random", None, "add --budget"),
        ("all", 0, "1 point or more"),
    ):
        with pytest.raises(UsageError, match=said):
            make_strategy(name, SPACE, lambda number: True, budget, 0)
    with pytest.raises(UsageError, match="did you mean 'energy'"):
        find_objective("enrgy")


def test_counts_are_written_whole_and_other_figures_to_three_digits() -> None:
    sectors, occupancy = find_objective("global_load_sectors"), find_objective("occupancy")
    assert sectors.text(134_217_729.0) == "134,217,729"
    assert occupancy.text(0.46875) == "0.469"
    assert find_objective("time").text(1.23456e-3) == "1.23 ms"
