"""Mistakes are kept once each, with how often and where they came first."""

import numpy as np

from memlab.device.emulator.checks.observations import Observation, Observations, Site

LINES = [10, 20, 10, 0, 1]
STARTS = {"global": np.array([100, 200, 300])}


def test_mistakes_of_one_kind_are_told_apart_by_line_and_array() -> None:
    seen = Observations(LINES, STARTS)
    seen.add("t", "k", "global", np.array([310, 205, 90, 250]), 0, np.array([7, 5, 6, 4]))
    seen.add("t", "k", "global", np.array([200]), 2, np.array([3]))  # the same line
    seen.add("t", "k", "global", np.array([210]), 1, np.array([9]))
    seen.add("t", "other", "global", np.array([210]), 0, np.array([9]))

    assert seen.all() == [
        Observation("t", "k", "global", 0, 90, Site(0, 6), None, 1),  # before all: the first
        Observation("t", "k", "global", 1, 200, Site(2, 3), None, 3),
        Observation("t", "k", "global", 2, 310, Site(0, 7), None, 1),
        Observation("t", "k", "global", 1, 210, Site(1, 9), None, 1),
        Observation("t", "other", "global", 1, 210, Site(0, 9), None, 1),
    ]


def test_the_lowest_thread_is_told_and_of_two_calls_the_first() -> None:
    seen = Observations(LINES, STARTS)
    for thread, address in ((5, 101), (5, 102), (6, 103)):
        seen.add("t", "k", "global", np.array([address]), 0, np.array([thread]))
    assert seen.all() == [Observation("t", "k", "global", 0, 101, Site(0, 5), None, 3)]


def test_a_mistake_without_an_address_has_no_array() -> None:
    seen = Observations(LINES, STARTS)
    nowhere = np.zeros(2, np.int64)
    seen.add("t", "k", "", nowhere, 1, np.array([2, 1]), times=3)
    assert seen.all() == [Observation("t", "k", "", -1, 0, Site(1, 1), None, 6)]


def test_an_array_may_be_named() -> None:
    seen = Observations(LINES, STARTS)
    seen.add("t", "k", "global", np.array([310]), 0, np.array([0]), array=1)
    seen.add("t", "k", "local", np.array([310]), 0, np.array([0]), array=0)
    assert [(each.space, each.array) for each in seen.all()] == [("global", 1), ("local", 0)]


def test_the_line_of_the_other_access_counts() -> None:
    seen = Observations(LINES, STARTS)
    where, by = np.array([200, 200, 200]), np.array([3, 2, 1])
    seen.add("t", "k", "global", where, np.array([1, 1, 1]), by, np.array([0, 2, 3]), by + 10)
    seen.add("t", "k", "global", where[:1], 1, by[:1])  # and none is not one in line 0

    assert [(each.at, each.other, each.count) for each in seen.all()] == [
        (Site(1, 1), Site(3, 11), 1),
        (Site(1, 2), Site(2, 12), 2),
        (Site(1, 3), None, 1),
    ]


def test_no_other_access_is_not_one_in_line_1() -> None:
    seen = Observations(LINES, STARTS)
    where, by = np.array([200]), np.array([3])
    seen.add("t", "k", "global", where, 1, by, np.array([4]), by)
    seen.add("t", "k", "global", where, 1, by)
    assert len(seen.all()) == 2
