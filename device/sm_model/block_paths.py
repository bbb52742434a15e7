"""The paths of the warps of a block, and what they do to barriers on their way."""

from __future__ import annotations

from dataclasses import dataclass

from memlab.device.sm_model.barriers import (
    barrier_work,
    sites_in_order,
    sites_of,
    warp_operations,
)
from memlab.device.sm_model.early_arms import early_arms
from memlab.device.sm_model.paths import Path, warp_path
from memlab.device.sm_model.profile import LaunchProfile
from memlab.device.sm_model.records import Kind
from memlab.device.sm_model.simulation import BarrierWork, Steps


@dataclass(frozen=True)
class BlockPaths:
    """The paths of a block's warps.

    Attributes:
        paths: The paths; equal ones are the same.
        active: The path of each warp of a block that touches memory.
        idle: The same of a block that does not.
        barriers: What the warps of the former do to barriers.
    """

    paths: tuple[Path, ...]
    active: tuple[int, ...]
    idle: tuple[int, ...]
    barriers: BarrierWork


def block_paths(profile: LaunchProfile, steps: Steps, longest: int) -> BlockPaths:
    """Make the paths of a block's warps.

    Args:
        profile: What the warps execute.
        steps: The instructions as records of the simulation.
        longest: Instructions behind which a path is cut.
    """
    warps = len(profile.active)
    sites = sites_in_order(profile.code, steps, sites_of(profile.code, profile.barriers))
    operations = warp_operations(profile.code, profile.barriers, warps)
    flows = [profile.flows[number] for number in sorted(set(profile.active))]
    early = early_arms(flows, steps["kind"] == int(Kind.SYNCHRONIZE))
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    paths: list[Path] = []

    def path_of(flow: int, sequence: tuple[int, ...]) -> int:
        number = numbers.setdefault((flow, sequence), len(paths))
        if number == len(paths):
            paths.append(warp_path(profile.flows[flow], longest, sites, sequence, early))
        return number

    active = tuple(
        path_of(flow, tuple(site for site, _ in of_warp))
        for flow, of_warp in zip(profile.active, operations, strict=True)
    )
    idle = tuple(path_of(flow, ()) for flow in profile.idle)
    barriers = barrier_work(profile.barriers, operations, [paths[n].idle for n in active])
    return BlockPaths(tuple(paths), active, idle, barriers)
