"""What a launch executes, as the simulation of an SM needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.barrier_log import BarrierOperations
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.machine_code.retries import SharedAdditions
from memlab.device.machine_code.runtime_calls import RuntimeCall
from memlab.device.properties import SECTOR_BYTES
from memlab.device.sm_model.flows import Flow


@dataclass(frozen=True)
class Access:
    """What a memory instruction does per request, in the mean.

    Attributes:
        passes: Wavefronts in the L1's data stage; of a constant load, distinct addresses.
        lines: 128-byte lines; 0 for shared memory.
        sectors: 32-byte sectors; 0 for shared memory.
        missed: The share of the sectors that the L1 does not have.
        dram: The share of these that the L2 does not have.
        joined: The share of the sectors that the L1 has which are on their way, since another warp
            has asked for them.
        joined_dram: The share of these that come from DRAM.
        l2_joined_dram: The share of the sectors that the L2 has which are on their way from DRAM.
        l2_far: The share of the sectors that the L2 has which come from its other partition; None
            if that is not known.
        missed_by_progress: `missed` in equal parts of the instruction's requests, in the order of
            time, over that of all; empty if it is the same in all.
        dram_by_progress: The same of the share of its sectors that come from DRAM.
        far_by_progress: The same of the share that comes from the other partition of the L2.
        progress_in_block: Whether these are parts of the requests of each block, not of all.
        lanes: Lanes that make it.
        sharing_lanes: Of an atomic on shared memory, the lanes of a warp that have one address.
        slice_passes: Of an atomic, the passes in the slice of the L2 that all blocks use most.
        sector_passes: Of an atomic, the passes in the sector that all blocks use most.
        atomic_regions: Regions of 1 KiB that the atomics of all blocks use; 0 for many.
        common: Of a store, the share of the requests that go to one address, to which all blocks
            store.
        times: Of such a store, the requests of each warp.
        remote: The share of the requests that go to shared memory of another block of the cluster;
            the figures above are of the others.
        remote_sectors: 32-byte sectors of such a request.
        repeated: Of a store, the share of its sectors that the warp's store before it went to, of
            others that the second one before it went to, and so on; empty for none.
        sector_bytes: Of a store, the bytes of each of its sectors that it writes.
        constant_lines: Of a load of constant memory, how far it goes on in `LaunchProfile.walks`;
            None of an access that is not in these.
    """

    passes: float
    lines: float = 0.0
    sectors: float = 0.0
    missed: float = 0.0
    dram: float = 0.0
    joined: float = 0.0
    joined_dram: float = 0.0
    l2_joined_dram: float = 0.0
    l2_far: float | None = None
    missed_by_progress: tuple[float, ...] = ()
    dram_by_progress: tuple[float, ...] = ()
    far_by_progress: tuple[float, ...] = ()
    progress_in_block: bool = False
    lanes: float = 32.0
    sharing_lanes: float = 1.0
    slice_passes: float = 0.0
    sector_passes: float = 0.0
    atomic_regions: float = 0.0
    common: float = 0.0
    times: float = 1.0
    remote: float = 0.0
    remote_sectors: float = 0.0
    repeated: tuple[float, ...] = ()
    sector_bytes: float = float(SECTOR_BYTES)
    constant_lines: float | None = None


@dataclass(frozen=True)
class UnequalWork:
    """The work of the warps of a launch.

    Attributes:
        executed: The instructions that each warp of the grid executed, in any unit, shape (blocks,
            warps), in the order of launch.
        least: What the warp that executed least did.
        most: The same of the one that executed most.
        missed_by_most: The share of the sectors of memory instructions, by their positions, that
            the L1 does not have of that one; as in the mean if not given.
    """

    executed: NDArray[np.int64]
    least: Flow
    most: Flow
    missed_by_most: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchProfile:
    """The machine code of a launch, and what its warps do.

    Attributes:
        code: The machine code.
        flows: What the warps of a block execute; equal ones are the same flow.
        active: The flow of each warp of a block that touches memory.
        idle: The same of a block that does not.
        active_share: The share of blocks that touch memory.
        accesses: The memory accesses by the position of their instruction.
        dram_sector_bytes: Bytes that DRAM reads for a sector that the L2 misses.
        dram_written_sector_bytes: Bytes that DRAM writes for a sector that is stored.
        dram_written_share: The share of DRAM's traffic that is written.
        work_ratio: The instructions of the mean block over those of the blocks described here.
        barriers: What the warps of a block do to `mbarrier`s.
        additions: What they add in shared memory by loops of compare-and-swap, whose further rounds
            the flows do not have.
        tries_of_halves: How often a lane tries to add to a half in global memory, in the mean.
        served_reads: The share of the sectors that the L1s read which the L2 serves one by one; its
            request coalescer merges the others with these.
        cluster_blocks: Blocks of a cluster; 1 where blocks form none.
        unequal: The work of each warp; None if that is not known, or all did about as much.
        walks: The lines of constant memory that each warp of a block reads one after the other,
            numbered from 0; empty where no table of constants is read.
        runtime_calls: The calls of functions that the driver adds, by the position of their
            instruction.
    """

    code: MachineCode
    flows: tuple[Flow, ...]
    active: tuple[int, ...]
    idle: tuple[int, ...]
    active_share: float
    accesses: Mapping[int, Access]
    dram_sector_bytes: float
    dram_written_sector_bytes: float
    dram_written_share: float
    work_ratio: float = 1.0
    barriers: BarrierOperations = field(default_factory=BarrierOperations)
    additions: SharedAdditions = field(default_factory=SharedAdditions)
    tries_of_halves: float = 1.0
    served_reads: float = 1.0
    cluster_blocks: int = 1
    unequal: UnequalWork | None = None
    walks: tuple[NDArray[np.int64], ...] = ()
    runtime_calls: Mapping[int, RuntimeCall] = field(default_factory=dict)
