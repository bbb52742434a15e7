"""The time of a launch whose blocks and warps do unequal work.

The simulation of an SM has blocks that are all alike. Here the blocks of the whole grid start in
their order, each on the SM that has a free place first, and hold their place until their last warp
ends. The clocks that a warp takes alone are a function of the instructions that it executes: linear
between those of the simulated warps of the launch that executed least and most, and of the longest
one of the recorded block. Together, the warps of a sub-core share what it executes at once, and
those of an SM what the SM does. Both figures come from the simulation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.compiled import Compiled, compiled
from memlab.device.emulator.codegen.llvm import library_of
from memlab.device.emulator.codegen.records import Pointer, Record, dtype_of
from memlab.device.emulator.models.clocks import later, sooner
from memlab.device.sm_model.flows import Flow
from memlab.device.sm_model.paths import warp_path
from memlab.device.sm_model.profile import LaunchProfile, UnequalWork
from memlab.device.sm_model.records import NONE, SCHEDULERS
from memlab.device.sm_model.simulation import Floats, Rates, Steps, Workload, run

_NEVER = 1e30
_LEAST_CLOCKS = 1.0  # of a warp
_WARPS_ALONE = 4  # whose time alone is averaged
_BUDGET = 500_000  # instructions of these, and of those that share a sub-core
_ROUNDS = 4  # of approaching what an SM does at once
_SCHEDULES = 8  # of which the mean is taken
_SPREAD = 0.4  # of the intervals between their blocks
_MOST_SCHEDULED = 1 << 18  # warps of all schedules together


@dataclass(frozen=True)
class Place:
    """Where blocks run.

    Attributes:
        sms: The SMs.
        slots: Blocks that one holds at once.
        sub_core: Warps of a sub-core that run as fast as alone; more of them share that.
        together: The same of an SM.
        interval: Clocks from the start of a block to that of the next one, on whichever SM.
    """

    sms: int
    slots: int
    sub_core: float
    together: float
    interval: float = 0.0


def launch_clocks(
    profile: LaunchProfile,
    unequal: UnequalWork,
    work: Workload,
    sms: int,
    clocks: float,
    rates: Rates,
) -> float:
    """The time of a launch by the work of each of its warps.

    Args:
        profile: What the launch executes.
        unequal: The work of its warps.
        work: The equal blocks of the busiest SM, with steps that count nothing yet.
        sms: The SMs that blocks can lie on.
        clocks: What the simulation found for these blocks.
        rates: Its rates.
    """
    members = [*profile.active, *profile.idle]
    lengths = np.array([profile.flows[number].instructions for number in members])
    typical = profile.flows[members[int(lengths.argmax())]]
    _, least = _clocks_alone(work.steps, unequal.least, rates)
    _, most = _clocks_alone(_with_misses(work.steps, unequal.missed_by_most), unequal.most, rates)
    cold, alone = _clocks_alone(work.steps, typical, rates)
    start = min(rates.first_block + cold, clocks)
    resident = -(-work.slots * len(work.active) // SCHEDULERS)
    shared = max(_clocks_of(work.steps, typical, rates, warps=resident) - cold, alone)
    known = [unequal.least.instructions, unequal.most.instructions]
    bounds = [float(unequal.executed.min()), float(unequal.executed.max())]
    taken = [least, most]
    if known[0] < typical.instructions < known[1]:
        between = np.interp(typical.instructions, known, bounds)
        known.insert(1, typical.instructions)
        bounds.insert(1, float(between))
        taken.insert(1, alone)
    equal = np.interp(_instructions(work, lengths), known, taken)
    executed = np.interp(unequal.executed, bounds, taken)
    rest = max(clocks - start, 1.0)
    place = Place(
        1,
        work.slots,
        max(resident * alone / shared, 1.0),
        equal.sum() / rest,
        rates.block_interval,
    )
    for _ in range(_ROUNDS):  # blocks whose last warps run alone hide what an SM could do
        busy = makespan(equal, place)
        place = replace(place, together=max(place.together * busy / rest, 1.0))
    device = replace(place, sms=sms, interval=place.interval / sms)
    return start + rest * mean_makespan(executed, device) / makespan(equal, place)


def mean_makespan(work: Floats, place: Place) -> float:
    """That of blocks that start a little earlier or later: the last one to end is so by chance."""
    count = min(max(_MOST_SCHEDULED // work.size, 1), _SCHEDULES)
    factors = 1 + _SPREAD * (np.arange(count) - (count - 1) / 2) / _SCHEDULES
    return float(
        np.mean(
            [makespan(work, replace(place, interval=place.interval * factor)) for factor in factors]
        )
    )


def _instructions(work: Workload, lengths: Floats) -> Floats:
    """The instructions of the warps that the simulation executes, shape (blocks, warps).

    Args:
        work: The blocks.
        lengths: The instructions of the warps of an active block, then of an idle one.
    """
    warps, blocks = len(work.active), np.arange(work.blocks)[:, None]
    due = np.floor(np.arange(work.blocks + 1) * work.active_share + 1 - work.active_share + 1e-6)
    idle = np.diff(due)[:, None] < 1
    members = warps * idle + (np.arange(warps) + blocks * work.turn) % warps
    return np.asarray(lengths[members])


def _with_misses(steps: Steps, missed: Mapping[int, float]) -> Steps:
    """Instructions of which such shares miss the L1, at any time."""
    changed = steps.copy()
    for number, share in missed.items():
        step = changed[number]
        if share < step["missed"]:
            step["missed"], step["curve"] = share, NONE
    return changed


def _clocks_alone(steps: Steps, flow: Flow, rates: Rates) -> tuple[float, float]:
    """What the first warp on an SM takes more than later ones, and what one of these takes."""
    first = _clocks_of(steps, flow, rates)
    later = (_clocks_of(steps, flow, rates, blocks=1 + _WARPS_ALONE) - first) / _WARPS_ALONE
    return max(first - later, 0.0), later


def _clocks_of(steps: Steps, flow: Flow, rates: Rates, warps: int = 1, blocks: int = 1) -> float:
    """What warps take that run on one sub-core of an SM.

    Args:
        steps: The instructions.
        flow: What each of the warps executes.
        rates: What an SM can do.
        warps: How many run at the same time.
        blocks: How often, one after the other.
    """
    path = warp_path(flow, _BUDGET // (warps * blocks))
    ends = path.ranges[-1:]  # all that the warps of the other sub-cores execute
    members = (0, *(1,) * (SCHEDULERS - 1)) * warps
    work = Workload(steps.copy(), (path.ranges, ends), members, members, 1.0, blocks, 1)
    return run(work, replace(rates, first_block=0.0)).clocks * path.instructions / path.length


class Schedule(Record):
    """A grid on its way through the SMs."""

    sms: int
    slots: int  # blocks that an SM holds
    warps: int  # of a block
    blocks: int
    sub_core: float  # warps that run as fast as alone
    together: float
    interval: float  # clocks between starts of blocks
    full_rate: float  # the speed of the warps of a full SM, relative to that of one alone
    work: Pointer[float]  # clocks that each warp takes alone, by block and warp
    started: int
    clock: float
    dispatch_free: float  # when the next block may start
    # --- By SM
    active: Pointer[int]  # warps that have not ended
    seen: Pointer[float]  # the clock of the last change
    due: Pointer[float]  # the clock at which the next warp ends
    # --- By sub-core
    sharing: Pointer[int]  # warps that have not ended
    passed: Pointer[float]  # the work that a warp would have done since the launch began
    # --- By place of a block and of a warp
    left: Pointer[int]  # warps of its block that have not ended
    ends: Pointer[float]  # `passed` at which the warp ends


@compiled(exported=True)
def run_schedule(s: Schedule) -> None:
    """Execute all blocks; `clock` is when the last one ends."""
    for slot in range(s.slots):
        for sm in range(s.sms):
            if s.started < s.blocks:
                _start(s, sm, slot)
    for sm in range(s.sms):
        _set_due(s, sm)
    while True:
        first, clock = 0, _NEVER
        for sm in range(s.sms):
            if s.due[sm] < clock:
                first, clock = sm, s.due[sm]
        if clock >= _NEVER:
            return
        s.clock = clock
        _end_warps(s, first, clock)
        _set_due(s, first)


@compiled(inline=True)
def _rate(s: Schedule, sm: int, core: int) -> float:
    """The speed of the warps of a sub-core, relative to that of one alone."""
    rate = sooner(1.0, s.together / float(s.active[sm]))
    return sooner(rate, s.sub_core / float(s.sharing[core]))


@compiled(inline=True)
def _start(s: Schedule, sm: int, slot: int) -> None:
    """Start the next block at a place of an SM.

    While it waits for the blocks that start before it, its warps have work as those of a full SM.
    So blocks that start together end by turns, and not all of an SM at once.
    """
    place = sm * s.slots + slot
    begin = later(s.dispatch_free, s.clock)
    delay, s.dispatch_free = begin - s.clock, begin + s.interval
    for warp in range(s.warps):
        core = sm * SCHEDULERS + ((slot * s.warps + warp) & (SCHEDULERS - 1))
        work = s.work[s.started * s.warps + warp] + delay * s.full_rate
        s.ends[place * s.warps + warp] = s.passed[core] + work
        s.sharing[core] += 1
    s.left[place] = s.warps
    s.active[sm] += s.warps
    s.started += 1


@compiled(inline=False)
def _end_warps(s: Schedule, sm: int, clock: float) -> None:
    """End the warps of an SM that are done at a clock, and start blocks where theirs are."""
    first = sm * SCHEDULERS
    for core in range(first, first + SCHEDULERS):
        if s.sharing[core] > 0:
            s.passed[core] += (clock - s.seen[sm]) * _rate(s, sm, core)
    s.seen[sm] = clock
    for slot in range(s.slots):
        place = sm * s.slots + slot
        ended = 0
        for warp in range(s.warps):
            core = first + ((slot * s.warps + warp) & (SCHEDULERS - 1))
            if s.ends[place * s.warps + warp] <= s.passed[core] * 1.000000001:
                s.ends[place * s.warps + warp] = _NEVER
                s.sharing[core] -= 1
                ended += 1
        if ended > 0:
            s.active[sm] -= ended
            s.left[place] -= ended
            if s.left[place] == 0 and s.started < s.blocks:
                _start(s, sm, slot)


@compiled(inline=False)
def _set_due(s: Schedule, sm: int) -> None:
    """Find when the next warp of an SM ends."""
    s.due[sm] = _NEVER
    places = sm * s.slots * s.warps
    for scheduler in range(SCHEDULERS):
        core, least = sm * SCHEDULERS + scheduler, _NEVER
        number = scheduler
        while number < s.slots * s.warps:
            least = sooner(least, s.ends[places + number])
            number += SCHEDULERS
        if least < _NEVER:
            then = s.seen[sm] + (least - s.passed[core]) / _rate(s, sm, core)
            s.due[sm] = sooner(s.due[sm], then)


def makespan(work: Floats, place: Place) -> float:
    """The clocks from the start of the first block to the end of the last one.

    Args:
        work: The clocks that each warp takes alone, shape (blocks, warps), in the order of launch.
        place: Where they run.
    """
    schedule = np.zeros((), dtype_of(Schedule))
    kept: list[NDArray[Any]] = []  # what the pointers point to

    def point(name: str, array: NDArray[Any]) -> None:
        kept.append(array)
        schedule[name] = array.ctypes.data

    blocks, warps = work.shape
    places = place.sms * place.slots
    schedule["sms"], schedule["slots"] = place.sms, place.slots
    schedule["warps"], schedule["blocks"] = warps, blocks
    for name in ("sub_core", "together", "interval"):
        schedule[name] = getattr(place, name)
    most = min(place.together, SCHEDULERS * place.sub_core)
    schedule["full_rate"] = min(most / (place.slots * warps), 1.0)
    point("work", np.ascontiguousarray(np.maximum(work, _LEAST_CLOCKS), np.float64))
    for name, count in (("active", place.sms), ("sharing", place.sms * SCHEDULERS)):
        point(name, np.zeros(count, np.int64))
    for name, count in (
        ("seen", place.sms),
        ("due", place.sms),
        ("passed", place.sms * SCHEDULERS),
    ):
        point(name, np.zeros(count))
    point("left", np.zeros(places, np.int64))
    point("ends", np.full(places * warps, _NEVER))
    function: Compiled[Any] = cast(Any, run_schedule)
    library = library_of("unequal_work", Path(__file__).parent, function)
    library.function(function.name, None, ctypes.c_void_p)(schedule.ctypes.data)
    return float(schedule["clock"])
