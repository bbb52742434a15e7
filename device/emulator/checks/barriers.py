"""synccheck: divergent barriers, barriers that exited threads never reach, wrong member masks.

With a checker, the emulator calls `BarrierCheck.open` when no lane can run, to learn which of the
waiting lanes go on. A barrier opens when all its threads wait at it: for a barrier of the block,
all threads that have not exited. If a block can open no barrier, the waiting group that lies lowest
in the program is reported and goes on alone. The threads that it waited for are reported where
they are.
"""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.checks.program_analysis import (
    ProgramAnalysis,
    is_relaxed_arrival,
    is_warp_barrier,
    is_warp_collective,
)
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.codegen.check_layout import THREAD_BITS
from memlab.device.emulator.codegen.stretches import (
    has_member_mask,
    is_cluster_barrier,
    is_partial,
)
from memlab.device.emulator.machine.context import lanes_to_words, words_to_lanes
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.machine.scheduler import Scheduler
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.machine.warp_synchronization import WarpSynchronization
from memlab.device.emulator.program.code_layout import reached_from
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import Immediate, Operand
from memlab.device.properties import WARP_SIZE

Parked = dict[int, Lanes]
"""Masks of waiting lanes, by the index of the instruction at which they resume."""

_LANE_BITS = np.uint32(1) << np.arange(WARP_SIZE, dtype=np.uint32)
_NO_LANES = np.zeros(0, np.int64)


def _waits_for_others(step: DecodedInstruction) -> bool:
    """Whether an instruction waits for other threads of the warp or of the block."""
    at_barrier = step.row.kind in ("barrier", "block") or is_warp_barrier(step)
    return at_barrier or is_warp_collective(step)


def _is_aligned(step: DecodedInstruction) -> bool:
    """Whether all threads must wait at this same instruction (PTX ISA, "barrier")."""
    words = step.instruction.opcode.split(".")
    return words[0] == "bar" or "aligned" in words


class BarrierCheck:
    """The waiting lanes of a chunk of blocks.

    Attributes:
        schedule: The positions of the chunk's other lanes.
        places: Per lane, the instruction where it waits, or ended; -1 at first.
        participants: The participating lanes: those that the running lanes have reconverged with.
        faulty: A mask of lanes whose part in their warp's last collective has been reported.
    """

    schedule: Scheduler
    participants: WarpSynchronization

    def __init__(
        self,
        observations: Observations,
        program: ProgramAnalysis,
        threads: Threads,
        numbers: Lanes,
        operands: Operands,
        order: HappensBefore,
        release_acquire: ReleaseAcquireOrder,
    ) -> None:
        """Check a chunk; `numbers` are its lanes' threads."""
        self._observations, self._numbers = observations, numbers
        self._program, self._steps, self._targets = program, program.steps, program.targets
        self._threads, self._order, self._release_acquire = threads, order, release_acquire
        self._block = np.arange(threads.lanes) // threads.grid.padded_threads
        self.places = np.full(threads.lanes, -1, np.int64)  # the step where a lane waits or ended
        self._last_branch = np.full(threads.lanes, -1, np.int64)  # the step of the last branch
        self._diverted_to = np.full(threads.lanes, -1, np.int64)  # the reported wrong collective
        self.faulty = np.zeros(threads.lanes, np.bool_)
        self._left_alone = np.zeros(threads.lanes, np.bool_)  # left a barrier without the others
        self._operands, self._grid_reported = operands, False
        # By block and barrier: the lanes that arrived without waiting, and what they knew then.
        self._arrivals: dict[tuple[int, int], list[tuple[Lanes, Lanes]]] = {}
        self._reconvergences: dict[tuple[int, int], bool] = {}
        self._masked_steps_from: dict[int, dict[int, Operand]] = {}

    def record_branch(self, step: int, lanes: Lanes) -> None:
        """Note that lanes, as a mask, take a branch."""
        self._last_branch[lanes] = step

    def record_exit(self, step: int, lanes: Lanes) -> None:
        """Note that lanes exit; if a branch led straight to the exit, the place is the branch."""
        branches = self._last_branch[lanes]
        last = min(step, len(self._steps) - 1)
        self.places[lanes] = np.where(self._targets[branches] == step, branches, last)

    def arrive(self, step: int, lanes: Lanes) -> None:
        """Note that lanes, as a mask, arrive at a barrier and go on."""
        if is_cluster_barrier(self._steps[step]):
            if self._order.clusters is not None:
                if not is_relaxed_arrival(self._steps[step]):
                    self._order.release_to_cluster(lanes, self._program.has_relaxed_arrivals)
                self._order.clusters.arrive(lanes)
            return
        numbers = self._value(step, 0)
        for block in np.unique(self._block[lanes]).tolist():
            inside = lanes & (self._block == block)
            for number in np.unique(numbers[inside]).tolist():
                arrived = inside & (numbers == number)
                arrival = arrived, self._order.known_by(arrived)
                self._arrivals.setdefault((block, number), []).append(arrival)

    def passes(self, step: int, lanes: Lanes) -> bool:
        """Whether lanes, as a mask, need not wait at a `__syncwarp` since all members are there."""
        self.places[lanes] = step
        complete = self._complete_warp_barriers(lanes)
        if sum(int(np.count_nonzero(opened)) for _, opened in complete) < np.count_nonzero(lanes):
            return False
        self._open_warp_barriers(complete)
        return True

    def together(self, step: int, lanes: Lanes) -> None:
        """Check a collective of a warp, executed by lanes given as a mask.

        Every executing lane must be named by the member mask, and every named lane must execute
        the collective, except lanes that have exited (PTX ISA, "shfl.sync") or will exit without
        waiting for any of these: compilers merge the ends of a kernel's paths. A collective
        without a mask names all lanes of the warp.

        A lane that reaches another collective which names these lanes is reported too. The same
        collective with the same mask, in another arm of a branch, is where lanes reconverge
        (`machine/warp_synchronization.py`).
        """
        self.faulty[:] = False
        masks = np.full(len(lanes), 0xFFFF_FFFF, np.uint32)
        if has_member_mask(self._steps[step]):
            masks[:] = self._value(step, -1)
        for mask in np.unique(masks[lanes]):
            executing = lanes & (masks == mask)
            bits = lanes_to_words(executing)
            participating = lanes_to_words(self.participants.active(executing))
            absent = np.where(bits != 0, mask & ~participating, np.uint32(0))
            missing = absent & lanes_to_words(self.schedule.live)
            self.places[executing] = step
            unnamed = np.flatnonzero(words_to_lanes(bits & ~mask))
            if unnamed.size:
                self.faulty[unnamed] = True
                self._report("invalid mask", unnamed, _NO_LANES, unnamed.size)
            if (self._diverted_to[executing] == step).any():
                # The absent lanes executed without these before, which was reported.
                self.faulty |= words_to_lanes(absent)
            if missing.any():
                self._report_missing(step, executing, words_to_lanes(missing))

    def exit_steps(self, lanes: Lanes, steps: Lanes) -> Lanes:
        """The steps at which lanes exited; for lanes that have not, the given steps."""
        return np.where(self.schedule.live[lanes], steps, self.places[lanes])

    def _report_missing(self, step: int, executing: Lanes, missing: Lanes) -> None:
        """Report missing lanes, as a mask, that wait for a warp again before they exit."""
        self.places[missing] = step  # where they should be
        for place, group in self.schedule.waiting_groups():
            away = missing & group
            if away.any() and not self._may_reconverge(step, place):
                instead = self._next_wait(place, executing)
                if instead is None:
                    missing = missing & ~group
                else:
                    self.places[away] = self._diverted_to[away] = instead
        if missing.any():
            self.faulty |= missing
            warps = missing.reshape(-1, WARP_SIZE).any(axis=1)
            waiting, absent = executing & np.repeat(warps, WARP_SIZE), np.flatnonzero(missing)
            self._report("invalid mask", np.flatnonzero(waiting), absent, absent.size)

    def _may_reconverge(self, first: int, second: int) -> bool:
        """Whether lanes at two steps may both reach an instruction where they wait for others."""
        if (first, second) not in self._reconvergences:
            both = reached_from(self._steps, first) & reached_from(self._steps, second)
            self._reconvergences[first, second] = any(
                _waits_for_others(self._steps[step]) for step in both
            )
        return self._reconvergences[first, second]

    def _next_wait(self, place: int, executing: Lanes) -> int | None:
        """The next instruction after a step that may wait for the executing lanes; None for none.

        Its mask names some of these lanes, or is known only at run time.
        """
        if place not in self._masked_steps_from:
            reached = sorted(
                reached_from(self._steps, place), key=lambda step: (step < place, step)
            )
            self._masked_steps_from[place] = {
                step: self._steps[step].instruction.operands[-1]
                for step in reached
                if has_member_mask(self._steps[step]) or is_warp_barrier(self._steps[step])
            }
        named = np.bitwise_or.reduce(lanes_to_words(executing))
        for step, mask in self._masked_steps_from[place].items():
            if not isinstance(mask, Immediate) or mask.bits & int(named):
                return step
        return None

    def open(self, parked: Parked) -> Lanes:
        """The waiting lanes that go on, at least one, as a mask."""
        waiting = np.zeros(self._threads.lanes, np.bool_)
        for resume, lanes in parked.items():
            self.places[lanes] = resume - 1
            waiting |= lanes
        if any(is_cluster_barrier(self._steps[resume - 1]) for resume in parked):
            return self._open_with_clusters(waiting)
        return self._open(waiting)

    def _open(self, waiting: Lanes, unfinished: Lanes = _NO_LANES) -> Lanes:
        """The lanes, of some that wait at barriers of blocks and warps, that go on.

        In unfinished blocks, none may go on; in others, some do.
        """
        going = self._open_whole_blocks(waiting)
        complete = self._complete_warp_barriers(waiting & ~going)
        self._open_warp_barriers(complete)
        going = np.logical_or.reduce([going, *(lanes for _, lanes in complete)])
        for block in np.setdiff1d(self._block[waiting], self._block[going]).tolist():
            inside = waiting & (self._block == block)
            opened = self._open_block(block, inside)
            if opened is not None:
                going |= opened
            elif block not in unfinished:
                going |= self._force_open(block, inside)
        return np.asarray(going)

    # --- Clusters ----------------------------------------------------------------------------

    def _open_with_clusters(self, waiting: Lanes) -> Lanes:
        """The same of lanes of which some wait at the barrier of their cluster.

        A block with such lanes may go on when other blocks have arrived.
        """
        at_cluster = np.isin(
            self.places, [n for n, step in enumerate(self._steps) if is_cluster_barrier(step)]
        )
        at_cluster &= waiting
        clusters = self._order.clusters
        if clusters is None:  # each block is a cluster by itself
            self._synchronize_blocks(np.unique(self._block[at_cluster]))
            return at_cluster
        opened = clusters.may_pass(at_cluster, self.schedule.live)
        unfinished = np.unique(self._block[at_cluster])
        going = opened | self._open(waiting & ~at_cluster, unfinished)
        if not going.any() and np.array_equal(waiting, self.schedule.live):
            opened = going = at_cluster
        self._pass_cluster_barrier(opened)
        return going

    def _pass_cluster_barrier(self, lanes: Lanes) -> None:
        """Lanes go on behind the barrier of their cluster; report threads that are not there."""
        clusters = self._order.clusters
        if clusters is None or not lanes.any():
            return
        absent = clusters.lacking(lanes, self._threads.alive)
        for cluster in np.unique(clusters.cluster[absent]).tolist():
            inside = clusters.cluster == cluster
            missing = np.flatnonzero(absent & inside)
            waiting = np.flatnonzero(lanes & inside)
            self._report("cluster barrier not reached", waiting, missing, missing.size)
            clusters.arrivals[missing] = clusters.arrivals[waiting].max()  # it is reported once
        self._order.pass_cluster_barrier(lanes)
        if self._release_acquire.has_acquisitions:
            for cluster in np.unique(clusters.cluster[lanes]).tolist():
                members = self._numbers[lanes & (clusters.cluster == cluster)]
                self._release_acquire.synchronize(members.tolist())

    # --- Warps -------------------------------------------------------------------------------

    def _complete_warp_barriers(self, waiting: Lanes) -> list[tuple[np.uint32, Lanes]]:
        """The lanes at a `__syncwarp` whose members all wait with the same mask, by the mask."""
        complete = []
        for mask, at_mask in self._waiting_by_mask(waiting):
            missing = mask & lanes_to_words(self.schedule.live) & ~lanes_to_words(at_mask)
            opened = at_mask & np.repeat(missing == 0, WARP_SIZE)
            if opened.any():
                complete.append((mask, opened))
        return complete

    def _open_warp_barriers(self, complete: list[tuple[np.uint32, Lanes]]) -> None:
        for mask, opened in complete:
            unnamed = np.flatnonzero(
                opened & ~np.tile(_LANE_BITS & mask != 0, len(opened) // WARP_SIZE)
            )
            if unnamed.size:
                self._report("invalid mask", unnamed, _NO_LANES, unnamed.size)
            self._synchronize_warps(opened)

    def _waiting_by_mask(self, waiting: Lanes) -> list[tuple[np.uint32, Lanes]]:
        """The lanes that wait at a `__syncwarp`, by their member mask."""
        masks = np.full(len(waiting), -1, np.int64)
        for step in np.unique(self.places[waiting]).tolist():
            if is_warp_barrier(self._steps[step]):
                at = waiting & (self.places == step)
                masks[at] = self._value(step, 0)[at]
        return [(np.uint32(mask), masks == mask) for mask in np.unique(masks[masks >= 0]).tolist()]

    # --- Blocks ------------------------------------------------------------------------------

    def _open_whole_blocks(self, waiting: Lanes) -> Lanes:
        """Open the barriers at which all threads of a block wait, if none has exited."""
        size = self._threads.grid.padded_threads
        at_barrier, alive = waiting.reshape(-1, size), self._threads.alive.reshape(-1, size)
        place = self.places.reshape(-1, size)
        first = place[:, :1]  # the first lane of a block is always a thread
        whole = ((at_barrier == alive) & ((place == first) | ~alive)).all(axis=1)
        steps = [self._steps[index] for index in first[:, 0].tolist()]
        whole &= [step.row.kind == "barrier" and not is_partial(step) for step in steps]
        self._synchronize_blocks(np.flatnonzero(whole))
        return np.repeat(whole, size) & waiting

    def _open_block(self, block: int, waiting: Lanes) -> Lanes | None:
        """Open a barrier of the block that all its threads have reached; None if there is none."""
        live = self.schedule.live & (self._block == block)
        numbers, counts = self._barrier_numbers(waiting)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            arrived = numbers == number
            expected = int(counts[arrived].max())
            if expected and self._count_at(block, number, arrived) >= expected:
                self._synchronize(arrived)
                for others, known in self._arrivals.pop((block, number), ()):
                    self._order.learn(arrived, known)
                    self._release_acquire.synchronize(
                        self._numbers[arrived].tolist(), self._numbers[others].tolist()
                    )
                return np.asarray(arrived)
            if expected or not np.array_equal(arrived, live):
                continue
            steps = np.unique(self.places[arrived]).tolist()
            if len(steps) > 1 and any(_is_aligned(self._steps[step]) for step in steps):
                return None
            exited = np.flatnonzero((self._block == block) & self._threads.alive & ~live)
            if exited.size:
                # Threads that left a barrier in another branch alone have exited because of that.
                alone = self._left_alone[exited].all()
                kind = "divergent barrier" if alone else "barrier not reached"
                self._report(kind, np.flatnonzero(arrived), exited, exited.size)
            self._synchronize_blocks(np.array([block]))
            return np.asarray(arrived)
        return None

    def _force_open(self, block: int, waiting: Lanes) -> Lanes:
        """Let the group that lies lowest in the program go on, and report the missing threads."""
        step = int(self.places[waiting].min())
        group = waiting & (self.places == step)
        if is_warp_barrier(self._steps[step]):
            for mask, lanes in self._waiting_by_mask(group):
                missing = mask & lanes_to_words(self.schedule.live) & ~lanes_to_words(lanes)
                absent = np.flatnonzero(
                    words_to_lanes(missing) & np.repeat(lanes_to_words(lanes) != 0, WARP_SIZE)
                )
                incomplete = np.flatnonzero(lanes & np.repeat(missing != 0, WARP_SIZE))
                self._report("invalid mask", incomplete, absent, absent.size)
            self._synchronize_warps(group)
            return np.asarray(group)
        numbers, counts = self._barrier_numbers(waiting)
        expected = int(counts[group].max())
        if expected:  # a barrier with a count may be waited for at several instructions
            group = numbers == numbers[group][0]
        outside = (self._block == block) & self._threads.alive & ~group
        absent, kind = np.flatnonzero(outside & self.schedule.live), "divergent barrier"
        if not absent.size:
            absent, kind = np.flatnonzero(outside), "barrier not reached"
        lacking = absent.size
        if expected:
            number = int(numbers[group][0])
            lacking = expected - self._count_at(block, number, group)
            self._arrivals.pop((block, number), None)
        if not self._wait_for_ended_blocks(absent):
            self._report(kind, np.flatnonzero(group), absent, lacking)
        self._synchronize_blocks(np.array([block]))
        self._left_alone |= group
        return np.asarray(group)

    def _wait_for_ended_blocks(self, lanes: Lanes) -> bool:
        """Whether lanes spin at a barrier of the grid that blocks have not reached before they end.

        It is reported once, since all blocks that are left wait there.
        """
        running = np.unique(self._block[self.schedule.live])
        ended = self._threads.alive & ~np.isin(self._block, running)
        if not self._threads.grid.workspace or not ended.any():
            return False
        if not self._grid_reported:
            for place, group in self.schedule.waiting_groups():
                self.places[lanes[group[lanes]]] = place
            absent = np.flatnonzero(ended)
            self._report("grid barrier not reached", lanes, absent, absent.size)
        self._grid_reported = True
        return True

    def _count_at(self, block: int, number: int, waiting: Lanes) -> int:
        """The threads that a counting barrier of a block has, with those that did not wait."""
        arrivals = self._arrivals.get((block, number), ())
        return self._count_arrived(waiting) + sum(
            WARP_SIZE * int(np.count_nonzero(lanes_to_words(lanes))) for lanes, _ in arrivals
        )

    def _count_arrived(self, arrived: Lanes) -> int:
        """The threads that a counting barrier has: whole warps, without their missing threads.

        Lanes of a warp that have exited, or are no threads, count as arrived.
        """
        missing = (self.schedule.live & ~arrived).reshape(-1, WARP_SIZE)
        warps = arrived.reshape(-1, WARP_SIZE).any(axis=1)
        return int(np.count_nonzero(~missing[warps]))

    def _barrier_numbers(self, waiting: Lanes) -> tuple[Lanes, Lanes]:
        """Per lane, the barrier it waits at (-1 for none), and the threads this barrier expects."""
        numbers = np.full(len(waiting), -1, np.int64)
        counts = np.zeros(len(waiting), np.int64)
        for step in np.unique(self.places[waiting]).tolist():
            if self._steps[step].row.kind == "barrier":
                at = waiting & (self.places == step)
                operands = len(self._steps[step].instruction.operands)
                numbers[at] = self._value(step, 0)[at] if operands else 0
                counts[at] = self._value(step, 1)[at] if operands > 1 else 0
        return numbers, counts

    def _value(self, step: int, operand: int) -> Lanes:
        value = self._operands.source(self._steps[step].instruction.operands[operand], "u32")
        return np.broadcast_to(value(), len(self.places))

    # --- Order after a barrier -----------------------------------------------------------------

    def _synchronize_blocks(self, blocks: Lanes) -> None:
        self._order.synchronize_blocks(blocks)
        if self._release_acquire.has_acquisitions:
            first = int(self._numbers[0]) >> THREAD_BITS
            for block in blocks.tolist():
                self._release_acquire.synchronize_block(first + block)

    def _synchronize_warps(self, lanes: Lanes) -> None:
        """Synchronize the given lanes of each warp."""
        if self._order.group == WARP_SIZE:
            self._synchronize(lanes)
            return
        for warp in np.unique(np.flatnonzero(lanes) // WARP_SIZE).tolist():
            members = np.zeros_like(lanes)
            members[warp * WARP_SIZE : (warp + 1) * WARP_SIZE] = True
            self._synchronize(lanes & members)

    def _synchronize(self, lanes: Lanes) -> None:
        """Synchronize the given lanes of each group: of a warp, or of a block."""
        self._order.synchronize(lanes)
        if self._release_acquire.has_acquisitions:
            for group in self._order.groups(np.flatnonzero(lanes)):
                self._release_acquire.synchronize(self._numbers[group].tolist())

    def _report(self, kind: str, waiting: Lanes, absent: Lanes, count: int) -> None:
        """Report a mistake with its first waiting thread and its first absent thread, if any."""
        waiter, other = int(waiting[0]), int(absent[0]) if absent.size else None
        self._observations.add(
            "synccheck",
            kind,
            "",
            np.zeros(1, np.int64),
            int(self.places[waiter]),
            self._numbers[[waiter]],
            None if other is None else self.places[[other]],
            None if other is None else self._numbers[[other]],
            times=count,
        )
