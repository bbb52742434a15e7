"""The time of a launch: the SM that executes most blocks, simulated with its share of the device.

All SMs execute the same kernel at the same time, so one stands for them: it has an equal share of
the L2's and of DRAM's bandwidth. Of a long launch, some waves of blocks are simulated, and the
others are taken to last as long as the later ones of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from memlab.device import time_model
from memlab.device.machine_code.retries import Attempts
from memlab.device.machine_code.runtime_calls import RUNTIME, calls_s
from memlab.device.measurement import Occupancy, Time
from memlab.device.properties import DeviceProperties
from memlab.device.sm_model import unequal_work
from memlab.device.sm_model.block_paths import block_paths
from memlab.device.sm_model.device_rates import device_rates, usable_sms
from memlab.device.sm_model.load_clock import load_clock, tensor_load, type_loads
from memlab.device.sm_model.machine_steps import machine_steps
from memlab.device.sm_model.profile import Access, LaunchProfile
from memlab.device.sm_model.records import Kind, Unit
from memlab.device.sm_model.simulation import (
    BarrierWork,
    Floats,
    Rates,
    Rounds,
    Simulated,
    Steps,
    Workload,
    empty_steps,
    run,
)

BUDGET = 3_000_000
"""Instructions that are simulated at most: some 0.2 s."""
_SHORTEST_PATH = 4_000  # instructions of a path that are kept at least
_SAME_CLOCK = 0.005  # a difference of clocks that is left out
_UNKNOWN_ORDER = "the machine code does not show in which order the warps come there"


@dataclass(frozen=True)
class LaunchEstimate:
    """The simulated time of a launch.

    Attributes:
        clocks: SM clocks from the first block's start to the end of the last one.
        empty_clocks: The same of a kernel that does nothing.
        steps: The instructions with their counts of issues and waits, in the simulated part.
        clock_hz: The mean SM clock.
        left_out: What the simulation left out, in words; empty for nothing.
        attempts: Those of additions in shared memory that are loops, by their line of the PTX.
    """

    clocks: float
    empty_clocks: float
    steps: Steps
    clock_hz: float
    left_out: str = ""
    attempts: Mapping[int, Attempts] = field(default_factory=dict)


def estimate(
    profile: LaunchProfile, blocks: int, slots: int, properties: DeviceProperties
) -> LaunchEstimate:
    """Simulate a launch.

    Args:
        profile: What it executes.
        blocks: Blocks of the grid.
        slots: Blocks that an SM holds at once.
        properties: The device.
    """
    count = usable_sms(profile, properties)
    busiest = math.ceil(blocks / count)
    active = blocks / busiest  # SMs, as many as would all be as busy as the busiest
    steps = machine_steps(profile, active, properties)
    slots = min(slots, busiest)
    most = BUDGET // max(slots * len(profile.active), 1)
    paths = block_paths(profile, steps, max(most, _SHORTEST_PATH))
    members = (*paths.active, *paths.idle)
    lengths = [paths.paths[number].length for number in members]
    whole = sum(paths.paths[number].instructions for number in members) / max(sum(lengths), 1)
    work = Workload(
        steps,
        tuple(path.ranges for path in paths.paths),
        paths.active,
        paths.idle,
        profile.active_share,
        busiest,
        slots,
        paths.barriers,
        profile.additions,
        turn=int(not paths.barriers.operations),
        walks=profile.walks,
    )
    affordable = max(BUDGET // max(sum(lengths[: len(paths.active)]), 1), slots)
    before, load = steps.copy(), load_clock(work, properties)
    loads = type_loads(profile.code.instructions, properties)
    clock = load.loaded_hz
    rates = device_rates(profile, blocks, properties, clock)
    done = _run_launch(work, profile, rates, affordable, loads)
    mean = load.mean_hz(done.clocks * whole * profile.work_ratio / clock, done.tensor_load)
    if mean > clock * (1 + _SAME_CLOCK):
        steps[:], clock = before, mean
        rates = device_rates(profile, blocks, properties, clock)
        done = _run_launch(work, profile, rates, affordable, loads)
    empty = run(
        Workload(_empty_kernel(), (np.array([[0, 2]]),), (0,), (0,), 1.0, 1, 1),
        replace(device_rates(profile, blocks, properties), first_block=0.0),
    )
    clocks = done.clocks * whole
    if profile.unequal is None:
        clocks *= profile.work_ratio
    else:
        unused = replace(work, steps=before)
        clocks = unequal_work.launch_clocks(profile, profile.unequal, unused, count, clocks, rates)
    return LaunchEstimate(
        clocks,
        empty.clocks,
        steps,
        clock,
        _left_out(profile, done.stuck),
        _attempts(profile, done.rounds),
    )


def _attempts(profile: LaunchProfile, rounds: Rounds) -> dict[int, Attempts]:
    """The attempts of each addition that the simulation executed."""
    return {
        line: Attempts(
            warp=float(of["warp_rounds"] / of["executions"]),
            lane=float(of["lane_rounds"] / of["lanes"]),
            groups=float(of["groups"] / of["executions"]),
            excessive=float(of["excessive"] / of["executions"]),
        )
        for line, of in zip(profile.additions.lines, rounds, strict=True)
        if of["lanes"]
    }


def _left_out(profile: LaunchProfile, stuck: bool) -> str:
    """What the simulation leaves out, in words; empty for nothing."""
    parts = []
    if stuck or profile.barriers.are_too_many:
        reason = "too many to record" if profile.barriers.are_too_many else _UNKNOWN_ORDER
        parts.append(f"waits at mbarriers and named barriers ({reason})")
    return "; ".join(parts)


@dataclass(frozen=True)
class _Run:
    """A simulated launch.

    Attributes:
        clocks: Those of all blocks of the busiest SM.
        tensor_load: The share of their time in which the tensor cores multiply, as of
            `tensor_load`.
        stuck: As of `Simulated`.
        rounds: As of `Simulated`.
    """

    clocks: float
    tensor_load: float
    stuck: bool
    rounds: Rounds


def _run_launch(
    work: Workload,
    profile: LaunchProfile,
    rates: Rates,
    affordable: int,
    loads: Floats,
) -> _Run:
    """Simulate all blocks of the busiest SM, or those that are affordable, for all of them.

    `loads` are those of the instructions on the tensor cores, as of `type_loads`.
    """
    blocks, slots = work.blocks, work.slots
    work = with_progress(work, profile, whole=affordable >= blocks)
    if affordable >= blocks:
        done = _run(work, rates)
        return _Run(done.clocks, tensor_load(work, done.clocks, loads), done.stuck, done.rounds)
    simulated = min(blocks % slots + (affordable // slots) * slots, blocks)
    done = _run(replace(work, blocks=simulated), rates)
    later = (blocks - simulated) * _clocks_per_block(done.starts, slots, clocks=done.clocks)
    load = tensor_load(work, done.clocks, loads)
    return _Run(done.clocks + later, load, done.stuck, done.rounds)


def with_progress(work: Workload, profile: LaunchProfile, whole: bool) -> Workload:
    """Let each load miss when it does in the launch or its block, where that is known.

    Args:
        work: The blocks of the busiest SM. Its steps are changed.
        profile: What the launch executes.
        whole: Whether all of these blocks are simulated.
    """
    known = {
        number: access
        for number, access in profile.accesses.items()
        if access.dram_by_progress
        and access.missed_by_progress
        and (whole or access.progress_in_block)
    }
    if not known:
        return work
    passed = np.zeros((len(work.paths), len(work.steps) + 1))
    for path, ranges in enumerate(work.paths):
        np.add.at(passed[path], ranges[:, 0], 1)
        np.add.at(passed[path], ranges[:, 1], -1)
    executions = passed.cumsum(axis=1)
    issues = work.active_share * executions[list(work.active)].sum(axis=0)
    issues += (1 - work.active_share) * executions[list(work.idle)].sum(axis=0)
    missed = np.array([access.missed_by_progress for access in known.values()], float)
    dram = np.array([access.dram_by_progress for access in known.values()], float)
    far = np.array([_far_curve(access) for access in known.values()])
    for curve, (number, access) in enumerate(known.items()):
        blocks = 1 if access.progress_in_block else work.blocks
        work.steps[number]["curve"], work.steps[number]["in_block"] = (
            curve,
            access.progress_in_block,
        )
        work.steps[number]["advance"] = missed.shape[1] / max(issues[number] * blocks, 1.0)
    return replace(
        work, missed_curves=missed, dram_curves=dram / np.maximum(missed, 1e-9), far_curves=far
    )


def _far_curve(access: Access) -> Floats:
    """The factor of the far share of the sectors that the L2 has, by part of the launch."""
    missed, dram = np.array(access.missed_by_progress), np.array(access.dram_by_progress)
    if not access.far_by_progress:
        return np.ones(len(missed))
    held = (missed - dram * access.dram) / max(1 - access.dram, 1e-9)
    return np.array(access.far_by_progress) / np.maximum(held, 1e-9)


def _run(work: Workload, rates: Rates) -> Simulated:
    """Simulate; as if nobody waited at barriers in shared memory, if that gets stuck.

    The path of a warp may not have all of its operations, or not in the order in which they ran.
    The result then says that the simulation got stuck.
    """
    before = work.steps.copy()
    done = run(work, rates)
    if not done.stuck:
        return done
    work.steps[:] = before
    return replace(run(replace(work, barriers=BarrierWork()), rates), stuck=True)


def _clocks_per_block(starts: Floats, slots: int, clocks: float) -> float:
    """The clocks of each further block.

    The mean of two figures: the interval between the starts of blocks in later waves, which is not
    even yet, and the time of all blocks over their number, which has the start and the end in it.
    It is within 3% of that of six times as many blocks (13 launches; each figure alone 6% and 3%,
    at most 18 and 14%, not 9%).
    """
    mean, last = clocks / len(starts), len(starts) - 1
    waves = last // slots
    if waves < 2:
        return mean
    begin = last - (waves - 1) * slots  # without the first wave, which starts at once
    return (mean + float(starts[last] - starts[begin]) / (last - begin)) / 2


def _empty_kernel() -> Steps:
    """A kernel that loads its stack pointer and ends."""
    steps = empty_steps(2)
    steps["kind"] = int(Kind.FIXED)
    steps["unit"] = int(Unit.MISCELLANEOUS)
    return steps


def model_time(
    profile: LaunchProfile,
    work: time_model.LaunchWork,
    occupancy: Occupancy,
    properties: DeviceProperties,
) -> tuple[Time, Steps]:
    """Model the time of one launch, caches cold, as a profiler's kernel duration.

    The bounds are those of `device/time_model.py`: they explain the time, but do not enter it.
    Since they are those of the PTX, whose instructions are more and overlap less, they are cut to
    the time.

    Args:
        profile: What the machine code does.
        work: The counters of the launch.
        occupancy: The blocks that an SM holds at once.
        properties: The device.

    Returns:
        The time, and the instructions with the simulation's counts of issues and stalls.
    """
    found = estimate(profile, work.blocks, occupancy.blocks_per_sm, properties)
    shortest = properties.shortest_kernel_s or 0.0
    seconds = shortest + max(found.clocks - found.empty_clocks, 0.0) / found.clock_hz
    kinds = found.steps["kind"][found.steps["issued"] > 0]
    if np.isin(kinds, (Kind.STORE, Kind.ATOMIC, Kind.COPY_OUT)).any():
        seconds += properties.store_completion_s or 0.0
    calls = profile.runtime_calls.values()
    seconds += sum(function.first_call_s for function in {call.function for call in calls})
    by_counters = time_model.model_time(work, occupancy, properties)
    bounds = dict(by_counters.bounds_s)
    if calls:
        bounds[RUNTIME] = calls_s(calls, work.blocks * len(profile.active))
    bounds = {name: min(bound, seconds) for name, bound in bounds.items()}
    time = Time(median_s=seconds, provenance="modelled", bounds_s=bounds, left_out=found.left_out)
    return time, found.steps
