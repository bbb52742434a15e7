"""What a launch's machine code does, from the counts of its PTX: the input of the SM's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.multicast import sectors_to_others
from memlab.device.emulation.representative_block import RepresentativeBlock
from memlab.device.emulator.codegen.layout import L1_CLOCK_PARTS
from memlab.device.emulator.isa.macros import is_async_copy_store
from memlab.device.emulator.machine.execution_trace import WarpExecutions
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.models.access_levels import AccessLevels
from memlab.device.emulator.models.atomic_contention import AtomicContention
from memlab.device.emulator.models.cache_replay import PARTS
from memlab.device.emulator.models.constant_walks import constant_walks
from memlab.device.emulator.program.program import ACCESS_KINDS, Program
from memlab.device.machine_code.flow_graph import FlowGraph
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.machine_code.projection import project
from memlab.device.machine_code.ptx_profile import Executed, PtxStructure, ptx_profile
from memlab.device.machine_code.retries import (
    Attempts,
    SharedAdditions,
    is_global_cas,
    with_retries,
)
from memlab.device.machine_code.runtime_calls import calls_in, runtime_calls
from memlab.device.measurement import Counters
from memlab.device.properties import SECTOR_BYTES
from memlab.device.sm_model.flows import Flow
from memlab.device.sm_model.machine_steps import reads_fixed_constant
from memlab.device.sm_model.pipes import access_bytes
from memlab.device.sm_model.profile import Access, LaunchProfile, UnequalWork
from memlab.kernels.launch import Launch

_ACCESSES = frozenset(
    (
        *("LDG", "STG", "LD", "ST", "LDS", "STS", "LDSM", "STSM", "ATOMS", "LDL", "STL", "LDC"),
        *("ATOM", "ATOMG", "RED", "REDG", "LDGSTS"),
        *("TEX", "TLD", "TLD4", "SULD", "SUST"),
        *("UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"),
    )
)
"""Opcodes of machine code whose costs are those of the PTX instruction that they come from."""
_NEARLY_ALL = 0.999  # of the blocks
_ROUNDING = 0.01  # of a lane
_NEVER = "!PT"
"""The predicate of instructions that ptxas adds to fill a pipeline."""


@dataclass(frozen=True)
class LaunchCounts:
    """What was counted of a launch, and what the models say of its accesses.

    Attributes:
        program: Its PTX; the mappings below are by positions of its instructions.
        tally: The counts of the whole grid.
        counters: The counters of the whole grid.
        levels: Where the sectors of each memory instruction are served.
        contention: Where atomics meet.
        fetches_per_sector: How often loads fetch a sector from the L2; once if not given.
        attempts: Those of atomics that are loops in the machine code, by their line of the PTX.
        additions: Those in shared memory: what they add to in a block.
        hits_of_longest: The share of the sectors of loads that the warp that executes most has read
            before.
    """

    program: Program
    tally: Tally
    counters: Counters
    levels: Mapping[int, AccessLevels]
    contention: Mapping[int, AtomicContention]
    fetches_per_sector: Mapping[int, float]
    attempts: Mapping[int, Attempts]
    additions: SharedAdditions
    hits_of_longest: Mapping[int, float] = field(default_factory=dict)

    def missed_sectors(self) -> float:
        """The sectors that wait for DRAM, as the accesses of the simulation do.

        The L2's own counters have fewer: of reads that are merged before it, or that meet on their
        way to DRAM, they count one.
        """
        return sum(at.dram * self.tally.sectors[index] for index, at in self.levels.items())

    @property
    def halves(self) -> Mapping[int, Attempts]:
        """The attempts to add to halves in global memory; the other ones are in shared memory."""
        shared = self.additions.lines
        return {line: tries for line, tries in self.attempts.items() if line not in shared}

    @property
    def of_longest(self) -> LaunchCounts:
        """The same, with the levels that serve the warp that executes most."""
        levels = dict(self.levels)
        for index, share in self.hits_of_longest.items():
            if index in levels:
                levels[index] = levels[index].hitting(share)
        return replace(self, levels=levels)

    @cached_property
    def structure(self) -> PtxStructure:
        """What does not depend on how often it was executed."""
        return PtxStructure.of(self.program)

    @cached_property
    def slow_shares(self) -> NDArray[np.float64]:
        """Of each instruction: how often warps take a slow path, and how many lanes do so then."""
        lanes, slow = np.array(self.tally.slow_lanes), np.array(self.tally.slow_warps)
        return np.array([slow / np.maximum(self.tally.warps, 1), lanes / np.maximum(slow, 1)])

    def sharing_lanes(self, indices: Sequence[int]) -> float:
        """How many lanes of a warp have one address of shared memory, in the mean; at least 1."""
        tally, steps = self.tally, self.program.steps
        words = sum(tally.words[index] for index in indices)
        accessed = sum(
            tally.lanes[index] * max(steps[index].counted_bytes // 4, 1) for index in indices
        )
        return max(accessed / words, 1.0) if words else 1.0

    def passes(self, index: int) -> float:
        """Clocks that the L1 takes for the accesses of an instruction in this block's own memory.

        Loads from global memory that hit take those that its banks and tags need. They were not
        measured for loads that miss, of two lines of which an H100 counted up to 1.7 wavefronts:
        those take a clock for each line. Other accesses take their wavefronts.
        """
        row, tally = self.program.steps[index].row, self.tally
        if (row.space, row.kind) != ("global", "load") or not tally.words[index]:
            return tally.wavefronts[index]
        of_hits, at = tally.words[index] / L1_CLOCK_PARTS, self.levels.get(index)
        missed = 1 - at.l1 if at else 0.0
        return of_hits + missed * max(tally.wavefronts[index] - of_hits, 0.0)

    def idle_requests(self, index: int) -> int:
        """Requests of an access to shared memory of which no lane is active: at least so many.

        Each takes a wavefront, that Nsight Compute counts in `l1tex__data_pipe_lsu_wavefronts` and
        not in those of shared memory. The ideal wavefronts are at least one for each of the others.
        """
        row, tally = self.program.steps[index].row, self.tally
        if row.space != "shared" or row.kind not in ("load", "store"):
            return 0
        ideal = tally.wavefronts[index] - tally.excessive[index]
        return max(tally.requests[index] - ideal, 0)


def machine_profile(
    graph: FlowGraph,
    counts: LaunchCounts,
    block: RepresentativeBlock,
    active_share: float,
    launch: Launch,
    warp_work: NDArray[np.int64] | None,
    extremes: tuple[WarpExecutions, WarpExecutions] | None,
) -> LaunchProfile | None:
    """Describe a launch to the model of an SM.

    Args:
        graph: The machine code.
        counts: What was counted.
        block: The block that stands for the others.
        active_share: The share of blocks that touch memory.
        launch: The launch.
        warp_work: What each warp executed, as of `UnequalWork`; None if that is not known.
        extremes: The executions of the warps that executed least and most; None if not known.

    Returns:
        The description; None if the control bits of the architecture are not known, or the counts
        cannot be brought into agreement with the machine code.
    """
    if not graph.code.has_control:
        return None
    program, tally, counters = counts.program, counts.tally, counts.counters
    numbers: dict[bytes, int] = {}
    flows: list[Flow | None] = []

    def flows_of(executions: WarpExecutions) -> tuple[int, ...]:
        found = []
        columns = executions.lanes, executions.warps, executions.rounds, executions.rests
        for one in zip(*columns, strict=True):
            key = b"".join(column.tobytes() for column in one)
            if key not in numbers:
                numbers[key] = len(flows)
                flows.append(_flow(graph, counts, *one))
            found.append(numbers[key])
        return tuple(found)

    asked = counters.lrc_read_sectors - sectors_to_others(program, tally)
    missed = counts.missed_sectors()
    stored = counters.global_store_sectors + counters.local_store_sectors
    moved = counters.dram_read_bytes + counters.dram_write_bytes
    active, idle = flows_of(block.executions), flows_of(block.idle_executions)
    known = tuple(flow for flow in flows if flow is not None)
    if len(known) < len(flows):
        return None
    accesses = _accesses(graph.code, counts, block, launch)
    missed_of_longest = {}
    if counts.hits_of_longest:
        of_longest = _accesses(graph.code, counts.of_longest, block, launch)
        missed_of_longest = {number: access.missed for number, access in of_longest.items()}
    walks = _walk_constants(graph.code, counts, block, accesses)
    ratio = _work_ratio(block, active_share, tally, launch.blocks)
    repeats = launch.blocks * active_share * ratio
    for number, share in _asking_shares(graph.code, counts, known, active, repeats).items():
        if number in accesses:
            accesses[number] = _thinned(accesses[number], share)
    return LaunchProfile(
        code=graph.code,
        flows=known,
        active=active,
        idle=idle,
        active_share=active_share if active_share < _NEARLY_ALL else 1.0,
        accesses=accesses,
        barriers=block.barriers,
        additions=counts.additions,
        tries_of_halves=max((tries.lane for tries in counts.halves.values()), default=1.0),
        served_reads=counters.l2_read_sectors / asked if asked else 1.0,
        cluster_blocks=launch.cluster_blocks,
        unequal=_unequal_work(graph, counts, warp_work, extremes, missed_of_longest),
        work_ratio=ratio,
        walks=walks,
        runtime_calls=calls_in(graph.code, runtime_calls(program, tally)),
        dram_sector_bytes=counters.dram_read_bytes / missed if missed else SECTOR_BYTES,
        dram_written_sector_bytes=counters.dram_write_bytes / stored if stored else 0.0,
        dram_written_share=counters.dram_write_bytes / moved if moved else 0.0,
    )


def _unequal_work(
    graph: FlowGraph,
    counts: LaunchCounts,
    warp_work: NDArray[np.int64] | None,
    extremes: tuple[WarpExecutions, WarpExecutions] | None,
    missed_of_longest: Mapping[int, float],
) -> UnequalWork | None:
    if warp_work is None or extremes is None:
        return None
    least, most = (
        _flow(graph, counts, of.lanes[0], of.warps[0], of.rounds[0], of.rests[0]) for of in extremes
    )
    if least is None or most is None:
        return None
    return UnequalWork(warp_work, least, most, missed_of_longest)


def _flow(graph: FlowGraph, counts: LaunchCounts, *columns: NDArray[np.int64]) -> Flow | None:
    """What one warp executes of the machine code, from its columns of `WarpExecutions`.

    It takes slow paths as often as warps do in the mean, to whole times: its path has no parts.

    Returns:
        It; None if that is not known.
    """
    lanes, warps, rounds, rests = (column.reshape(-1).tolist() for column in columns)
    share, lanes_each = counts.slow_shares
    slow_warps = np.rint(share * warps)
    slow_lanes = np.minimum(slow_warps * lanes_each, lanes).tolist()
    executed = Executed(lanes, warps, rounds, rests, slow_lanes, slow_warps.tolist())
    profile = ptx_profile(counts.structure, executed)
    executions = project(graph, profile, is_one_warp=True)
    if executions is None:
        return None
    executions = with_retries(executions, graph, counts.halves)
    # A block that a lane executes, the warp executes; and the warp comes there by some edge.
    blocks = executions.block_warps.copy()
    blocks[(executions.block_lanes > 1 - _ROUNDING) & (blocks < 1)] = 1.0
    edges = executions.edge_warps.copy()
    destinations = np.array([edge.destination for edge in graph.edges])
    arriving = np.zeros(len(blocks))
    inside = destinations >= 0
    np.add.at(arriving, destinations[inside], edges[inside])
    short = (arriving > 0) & (arriving < blocks)
    factors = np.where(short, blocks / np.where(short, arriving, 1.0), 1.0)
    edges[inside] *= factors[destinations[inside]]
    return Flow(
        blocks=[(block.start, block.stop) for block in graph.blocks],
        executions=blocks.tolist(),
        edges={
            (edge.source, edge.destination): count
            for edge, count in zip(graph.edges, edges.tolist(), strict=True)
        },
        calls={call.block: call.function for call in graph.calls},
    )


def _work_ratio(
    block: RepresentativeBlock, active_share: float, tally: Tally, blocks: int
) -> float:
    """The instructions of the mean block over those that the recorded blocks stand for."""
    active, idle = block.executions.warps.sum(), block.idle_executions.warps.sum()
    recorded = active_share * float(active) + (1 - active_share) * float(idle)
    return sum(tally.warps) / blocks / recorded if recorded else 1.0


def _accesses(
    code: MachineCode, counts: LaunchCounts, block: RepresentativeBlock, launch: Launch
) -> dict[int, Access]:
    """The accesses of each memory instruction, from the PTX instruction that it comes from."""
    tally, warps = counts.tally, launch.blocks * len(block.executions.warps)
    by_line: dict[int, list[int]] = {}
    for index, step in enumerate(counts.program.steps):
        requests = tally.requests[index] + tally.remote_requests[index]
        if step.row.kind in ACCESS_KINDS and requests:
            by_line.setdefault(step.instruction.ptx_line, []).append(index)
    accesses = {}
    for number, instruction in enumerate(code.instructions):
        indices = by_line.get(instruction.ptx_line, [])
        if instruction.predicate == _NEVER:
            accesses[number] = Access(passes=0.0)
        elif instruction.name in _ACCESSES and indices:
            access = _mean_access(indices, counts)
            tries = counts.attempts.get(instruction.ptx_line)
            of_halves = instruction.ptx_line in counts.halves
            if tries and (not of_halves or is_global_cas(instruction)):
                share = tries.lane / tries.warp  # with fewer lanes, fewer conflicts
                access = replace(access, passes=1 + (access.passes - 1) * share)
                access = _with_lanes(access, share) if of_halves else access
            if repeated := _repeated(indices, tally, block.repeated_stores):
                access = replace(access, repeated=repeated)
            if common := max(block.common_stores.get(index, 0.0) for index in indices):
                times = sum(tally.requests[index] for index in indices) / warps
                access = replace(access, common=common, times=times)
            accesses[number] = access
    return accesses


_CONSTANT_LOADS = {"LDC", "ULDC", "LDCU"}


def _walk_constants(
    code: MachineCode,
    counts: LaunchCounts,
    block: RepresentativeBlock,
    accesses: dict[int, Access],
) -> tuple[NDArray[np.int64], ...]:
    """Let loads from tables of constants go on in the walks of their warps; return these.

    Loads from an address in the instruction itself are left out. Where ptxas made several loads of
    one, each goes on by its share of the bytes.
    """
    if block.constants is None or not len(block.constants.index):
        return ()
    by_line: dict[int, list[int]] = {}
    for index in np.unique(block.constants.index).tolist():
        by_line.setdefault(counts.program.steps[index].instruction.ptx_line, []).append(index)
    loads = {
        number: by_line[step.ptx_line]
        for number, step in enumerate(code.instructions)
        if step.name in _CONSTANT_LOADS
        and step.ptx_line in by_line
        and not reads_fixed_constant(step)
    }
    walks = constant_walks(
        block.constants,
        len(block.executions.warps),
        {index for indices in loads.values() for index in indices},
    )
    for number, indices in loads.items():
        lines = sum(walks.advances[index] for index in indices)
        width = sum(counts.program.steps[index].counted_bytes for index in indices)
        share = min(access_bytes(code.instructions[number]) / max(width, 1), 1.0)
        access = accesses.get(number, Access(passes=1.0))
        accesses[number] = replace(access, constant_lines=lines * share)
    return walks.lines


_MOST_ASKING = 0.9  # of the issues: more may be a difference between blocks
_SPACES = {"LDG": "global", "STG": "global", "LDS": "shared", "STS": "shared"}
"""Those of instructions that ptxas gives predicates."""


def _asking_shares(
    code: MachineCode,
    counts: LaunchCounts,
    flows: Sequence[Flow],
    active: Sequence[int],
    blocks: float,
) -> dict[int, float]:
    """How often memory instructions make a request that ptxas has given a predicate.

    It does so with the body of a short branch, and with the last iterations of unrolled loops.
    Lines of the PTX do not tell, since ptxas joins equal accesses: all those of a kind together do.

    Args:
        code: The machine code.
        counts: What was counted.
        flows: What warps execute.
        active: The flow of each warp of a block.
        blocks: Such blocks that execute as much as the grid.

    Returns:
        Requests per issue, by the position of the instruction; only of those where it is below 1.
    """
    issues = np.zeros(len(code.instructions))
    for number in active:
        flow = flows[number]
        for (start, stop), count in zip(flow.blocks, flow.executions, strict=True):
            issues[start:stop] += count * blocks
    made: dict[tuple[str, str], float] = {}
    for step, count in zip(counts.program.steps, counts.tally.requests, strict=True):
        kind = step.row.space, step.row.kind
        made[kind] = made.get(kind, 0.0) + float(count)
    shares = {}
    for name, space in _SPACES.items():
        numbers = [n for n, step in enumerate(code.instructions) if step.name == name]
        guarded = [n for n in numbers if code.instructions[n].predicate not in ("", "PT", _NEVER)]
        issued = float(issues[guarded].sum())
        requests = made.get((space, "load" if name.startswith("LD") else "store"), 0.0)
        left = requests - float(issues[numbers].sum()) + issued
        if 0 < left < issued * _MOST_ASKING:
            shares.update(dict.fromkeys(guarded, left / issued))
    return shares


def _thinned(access: Access, share: float) -> Access:
    """An access that an instruction makes in a share of its issues.

    In the others, one of shared memory, which has no sectors, takes a wavefront (`idle_requests`).
    """
    idle = 0.0 if access.sectors else 1 - share
    return replace(_with_lanes(access, share), passes=access.passes * share + idle)


def _with_lanes(access: Access, share: float) -> Access:
    """An access of which a share of the lanes take part; its passes in the L1 stay."""
    return replace(
        access,
        lines=access.lines * share,
        sectors=access.sectors * share,
        lanes=access.lanes * share,
        slice_passes=access.slice_passes * share,
        sector_passes=access.sector_passes * share,
    )


def _repeated(
    indices: Sequence[int], tally: Tally, stores: Mapping[int, tuple[float, ...]]
) -> tuple[float, ...]:
    """`Access.repeated` of some instructions, of whose sectors these shares are repeated."""
    known = [index for index in indices if index in stores]
    sectors = sum(tally.sectors[index] for index in indices)
    if not known or not sectors:
        return ()
    each = np.array([np.array(stores[index]) * tally.sectors[index] for index in known])
    return tuple((each.sum(axis=0) / sectors).tolist())


def _progress(levels: AccessLevels, in_block: bool) -> NDArray[np.float64]:
    """How what misses, comes from DRAM and from the far partition progresses; shape (3, PARTS)."""
    parts = (levels.missed_by_progress, levels.dram_by_progress, levels.far_by_progress)
    is_known = levels.progress_in_block == in_block
    return np.array([part if part and is_known else np.ones(PARTS) for part in parts])


def _mean_access(indices: Sequence[int], counts: LaunchCounts) -> Access:
    """The mean request of some PTX instructions that one of the machine code stands for.

    `cp.async` is a load and a store in the PTX that the emulator executes: the load has the lines
    and sectors, the store the wavefronts in shared memory. Of one that only writes zeros, there is
    no load.
    """
    tally, steps = counts.tally, counts.program.steps
    stores = {index for index in indices if is_async_copy_store(steps[index].instruction)}
    loads = [index for index in indices if index not in stores]
    remote = sum(tally.remote_requests[index] for index in loads)
    own = sum(tally.requests[index] for index in loads)
    requests = max(own, sum(tally.requests[index] for index in stores), 1)
    lines = sum(tally.wavefronts[index] for index in loads) / requests if own or stores else 1.0
    passes = sum(map(counts.passes, loads)) / requests if own or stores else 1.0
    passes += sum(map(counts.idle_requests, loads)) / requests
    if stores:
        passes = sum(tally.wavefronts[index] for index in stores) / requests
    sectors, l2_far, shares = 0.0, 0.0, np.zeros(7)
    by_progress, knows_far = np.zeros((3, PARTS)), True
    levels = [counts.levels[index] for index in loads if index in counts.levels]
    in_block = all(at.progress_in_block for at in levels if at.missed_by_progress)
    used = sum(tally.used[index] for index in loads)
    for index in loads:
        count, fetches = tally.sectors[index], counts.fetches_per_sector.get(index, 1.0)
        sectors += count * fetches
        at = counts.levels.get(index)
        if at is None:
            continue
        asked, far = fetches - at.l1, at.l2_far or 0.0
        shares += count * np.array(
            [asked, at.dram, at.l1, at.l1_joined, at.l1_joined_dram, at.l2, at.l2_joined_dram]
        )
        knows_far &= at.l2_far is not None
        l2_far += count * at.l2 * far
        sizes = count * np.array([[asked], [at.dram], [at.l2 * far]])
        by_progress += sizes * _progress(at, in_block)
    missed, dram, held, joined, joined_dram, l2_held, l2_joined_dram = shares.tolist()
    missed_by_progress, dram_by_progress, far_by_progress = by_progress
    atomics = [counts.contention.get(index, AtomicContention()) for index in indices]
    return Access(
        passes=passes,
        lines=lines,
        sectors=sectors / requests,
        missed=missed / sectors if sectors else 0.0,
        dram=dram / missed if missed > 0 else 0.0,
        joined=joined / held if held > 0 else 0.0,
        joined_dram=joined_dram / joined if joined > 0 else 0.0,
        l2_joined_dram=l2_joined_dram / l2_held if l2_held > 0 else 0.0,
        l2_far=l2_far / l2_held if l2_held > 0 and knows_far else None,
        missed_by_progress=tuple((missed_by_progress / missed).tolist()) if missed > 0 else (),
        dram_by_progress=tuple((dram_by_progress / dram).tolist()) if dram > 0 else (),
        far_by_progress=tuple((far_by_progress / l2_far).tolist()) if l2_far and knows_far else (),
        progress_in_block=in_block,
        lanes=sum(tally.lanes[index] for index in loads) / requests,
        sharing_lanes=counts.sharing_lanes(indices),
        slice_passes=max(met.slice_passes for met in atomics),
        sector_passes=max(met.sector_passes for met in atomics),
        atomic_regions=max(met.regions for met in atomics),
        remote=remote / (own + remote) if remote else 0.0,
        sector_bytes=used / sectors if used and sectors else SECTOR_BYTES,
        remote_sectors=sum(tally.remote_sectors[index] for index in indices) / max(remote, 1),
    )
