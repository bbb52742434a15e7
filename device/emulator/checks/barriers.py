"""synccheck: which barriers open, whom they waited for in vain, and whom a warp misses.

With a checker the emulator asks here, when no thread can run, which of the waiting ones go on. A
barrier opens when all its threads wait at it: of a block, those that have not exited. Where a
block can open none, the group that lies lowest in the program goes on alone: those that it waited
for are then met where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.observations import THREAD_BITS, Lanes, Observations
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.machine.operands import Operands, value_of
from memlab.device.emulator.machine.partial_barriers import is_partial
from memlab.device.emulator.machine.scheduler import Scheduler
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.machine.warp_synchronization import (
    ParticipatingLanes,
    bits_to_lanes,
    has_member_mask,
    lanes_to_bits,
)
from memlab.device.emulator.program.code_layout import reached_from
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import Immediate, Operand
from memlab.device.properties import WARP_SIZE

Parked = dict[int, Lanes]
"""Groups of waiting lanes, as masks, by the instruction that they go on with."""

_LANE_BITS = np.uint32(1) << np.arange(WARP_SIZE, dtype=np.uint32)
_NO_LANES = np.zeros(0, np.int64)


def is_warp_barrier(step: DecodedInstruction) -> bool:
    """Whether it is `__syncwarp`."""
    return step.row.opcode == "bar.warp.sync"


def is_warp_collective(step: DecodedInstruction) -> bool:
    """Whether lanes of a warp compute together: shuffles, votes, products of matrices."""
    return step.row.kind == "warp" and ".sync" in step.row.opcode


def _waits_for_others(step: DecodedInstruction) -> bool:
    """Whether it waits for other threads of the warp or of the block."""
    at_barrier = step.row.kind in ("barrier", "block") or is_warp_barrier(step)
    return at_barrier or is_warp_collective(step)


def _is_aligned(step: DecodedInstruction) -> bool:
    """Whether all threads must wait at this very instruction (PTX ISA, "barrier")."""
    words = step.instruction.opcode.split(".")
    return words[0] == "bar" or "aligned" in words


class BarrierCheck:
    """The waiting lanes of a chunk of blocks.

    Attributes:
        schedule: Where its other lanes are.
        company: Whom the lanes that run have met.
        faulty: Lanes whose part in what their warp computed together last has been reported.
    """

    schedule: Scheduler
    company: ParticipatingLanes

    def __init__(
        self,
        observations: Observations,
        steps: Sequence[DecodedInstruction],
        threads: Threads,
        numbers: Lanes,
        operands: Operands,
        order: HappensBefore,
        publication: ReleaseAcquireOrder,
    ) -> None:
        """Watch a chunk; `numbers` are its lanes' threads."""
        self._observations, self._steps, self._numbers = observations, steps, numbers
        self._threads, self._order, self._publication = threads, order, publication
        self._targets = np.array([each.target for each in steps] + [-1])
        self._is_whole_block_barrier = np.array(
            [each.row.kind == "barrier" and not is_partial(each) for each in steps]
        )
        self._block = np.arange(threads.lanes) // threads.grid.padded_threads
        self._live = threads.alive.copy()
        self._place = np.full(threads.lanes, -1, np.int64)  # where a lane waits or has ended
        self._last_branch = np.full(threads.lanes, -1, np.int64)  # the last branch it took
        self._diverted_to = np.full(threads.lanes, -1, np.int64)  # where it was reported to come to
        self.faulty = np.zeros(threads.lanes, np.bool_)
        self._apart = np.zeros(threads.lanes, np.bool_)  # has left a barrier without the others
        self._sources = {
            index: [operands.source(each, "u32") for each in step.instruction.operands]
            for index, step in enumerate(steps)
            if step.row.kind == "barrier" or is_warp_barrier(step)
        }
        self._meetings: dict[tuple[int, int], bool] = {}
        self._masked_steps_from: dict[int, dict[int, Operand]] = {}
        self._masks = {
            index: operands.source(step.instruction.operands[-1], "u32")
            for index, step in enumerate(steps)
            if has_member_mask(step)
        }

    def record_branch(self, step: int, lanes: Lanes | None) -> None:
        """Lanes, given as a mask, take a branch; None for all of the chunk."""
        self._last_branch[slice(None) if lanes is None else lanes] = step

    def record_exit(self, step: int, lanes: Lanes | None) -> None:
        """Lanes end; where a branch led straight to the exit, the source ends them there."""
        chosen = slice(None) if lanes is None else lanes
        came = self._last_branch[chosen]
        last = min(step, len(self._steps) - 1)
        self._place[chosen] = np.where(self._targets[came] == step, came, last)
        self._live[chosen] = False

    def passes(self, step: int, lanes: Lanes) -> bool:
        """Whether lanes, given as a mask, need not wait at a `__syncwarp`: all are there."""
        self._place[lanes] = step
        met = self._complete_warp_barriers(lanes)
        if sum(int(np.count_nonzero(each)) for _, each in met) < np.count_nonzero(lanes):
            return False
        self._open_warp_barriers(met)
        return True

    def together(self, step: int, lanes: Lanes) -> None:
        """Lanes, given as a mask, compute together; note who is named and not among them.

        Who computes is to be named by the mask, and all whom it names are to be there but for those
        that have exited (PTX ISA, "shfl.sync"), or will without waiting for any of these: compilers
        join the ends of a kernel's ways. Without a mask all of a warp are to be there.

        Who comes to another such instruction that names these is reported too; but the same one
        with the same mask, in another arm of a branch, is where they meet (`meeting`).
        """
        self.faulty[:] = False
        given = np.full(len(lanes), 0xFFFF_FFFF, np.uint32)
        if step in self._masks:
            given[:] = value_of(self._masks[step])
        for mask in np.unique(given[lanes]):
            here = lanes & (given == mask)
            bits = lanes_to_bits(here)
            met = lanes_to_bits(self.company.active(here))
            absent = np.where(bits != 0, mask & ~met, np.uint32(0))
            missing = absent & lanes_to_bits(self._live)
            self._place[here] = step
            unnamed = np.flatnonzero(bits_to_lanes(bits & ~mask))
            if unnamed.size:
                self.faulty[unnamed] = True
                self._report("invalid mask", unnamed, _NO_LANES, unnamed.size)
            if (
                self._diverted_to[here] == step
            ).any():  # those missed them before, and it was reported
                self.faulty |= bits_to_lanes(absent)
            if missing.any():
                self._report_missing(step, here, bits_to_lanes(missing))

    def exit_steps(self, lanes: Lanes, steps: Lanes) -> Lanes:
        """Where lanes have ended; of those that have not, the given steps."""
        return np.where(self._live[lanes], steps, self._place[lanes])

    def _report_missing(self, step: int, here: Lanes, missing: Lanes) -> None:
        """Report lanes that are elsewhere, given as a mask, if they wait again before they exit."""
        self._place[missing] = step  # where they should be
        for place, group in self.schedule.others():
            away = missing & group
            if away.any() and not self._may_reconverge(step, place):
                instead = self._next_wait(place, here)
                if instead is None:
                    missing = missing & ~group
                else:
                    self._place[away] = self._diverted_to[away] = instead
        if missing.any():
            self.faulty |= missing
            warps = missing.reshape(-1, WARP_SIZE).any(axis=1)
            in_vain, absent = here & np.repeat(warps, WARP_SIZE), np.flatnonzero(missing)
            self._report("invalid mask", np.flatnonzero(in_vain), absent, absent.size)

    def _may_reconverge(self, one: int, other: int) -> bool:
        """Whether lanes at two places may both come to where they wait for each other."""
        if (one, other) not in self._meetings:
            both = reached_from(self._steps, one) & reached_from(self._steps, other)
            self._meetings[one, other] = any(_waits_for_others(self._steps[each]) for each in both)
        return self._meetings[one, other]

    def _next_wait(self, place: int, here: Lanes) -> int | None:
        """Where lanes at a place may wait for these ones, given as a mask, next; None for nowhere.

        There a mask names some of these lanes, or is known only when they come.
        """
        if place not in self._masked_steps_from:
            reached = sorted(reached_from(self._steps, place), key=lambda at: (at < place, at))
            self._masked_steps_from[place] = {
                step: self._steps[step].instruction.operands[-1]
                for step in reached
                if has_member_mask(self._steps[step]) or is_warp_barrier(self._steps[step])
            }
        named = np.bitwise_or.reduce(lanes_to_bits(here))
        for step, mask in self._masked_steps_from[place].items():
            if not isinstance(mask, Immediate) or mask.bits & int(named):
                return step
        return None

    def open(self, parked: Parked) -> tuple[Parked, Parked]:
        """Say which lanes go on, and which wait on; some go on wherever any waits."""
        waiting = np.zeros(self._threads.lanes, np.bool_)
        for resume, lanes in parked.items():
            self._place[lanes] = resume - 1
            waiting |= lanes
        going = self._open_whole_blocks(waiting)
        met = self._complete_warp_barriers(waiting & ~going)
        self._open_warp_barriers(met)
        going = np.logical_or.reduce([going, *(lanes for _, lanes in met)])
        for block in np.setdiff1d(self._block[waiting], self._block[going]).tolist():
            inside = waiting & (self._block == block)
            opened = self._open_block(block, inside)
            going |= self._force_open(block, inside) if opened is None else opened
        return (
            {resume: lanes & going for resume, lanes in parked.items() if (lanes & going).any()},
            {resume: lanes & ~going for resume, lanes in parked.items() if (lanes & ~going).any()},
        )

    # --- Warps -------------------------------------------------------------------------------

    def _complete_warp_barriers(self, waiting: Lanes) -> list[tuple[np.uint32, Lanes]]:
        """Lanes, by mask, that wait at a `__syncwarp` where all that it names do with that mask."""
        met = []
        for mask, here in self._waiting_by_mask(waiting):
            missing = mask & lanes_to_bits(self._live) & ~lanes_to_bits(here)
            opened = here & np.repeat(missing == 0, WARP_SIZE)
            if opened.any():
                met.append((mask, opened))
        return met

    def _open_warp_barriers(self, met: list[tuple[np.uint32, Lanes]]) -> None:
        for mask, opened in met:
            unnamed = np.flatnonzero(
                opened & ~np.tile(_LANE_BITS & mask != 0, len(opened) // WARP_SIZE)
            )
            if unnamed.size:
                self._report("invalid mask", unnamed, _NO_LANES, unnamed.size)
            self._synchronize_warps(opened)

    def _waiting_by_mask(self, waiting: Lanes) -> list[tuple[np.uint32, Lanes]]:
        """The lanes that wait at a `__syncwarp`, by the mask that they gave to it."""
        masks = np.full(len(waiting), -1, np.int64)
        for step in np.unique(self._place[waiting]).tolist():
            if is_warp_barrier(self._steps[step]):
                at = waiting & (self._place == step)
                masks[at] = self._value(step, 0)[at]
        return [(np.uint32(each), masks == each) for each in np.unique(masks[masks >= 0]).tolist()]

    # --- Blocks ------------------------------------------------------------------------------

    def _open_whole_blocks(self, waiting: Lanes) -> Lanes:
        """Open the barriers at which all threads of a block wait, and none has exited."""
        size = self._threads.grid.padded_threads
        there, alive = waiting.reshape(-1, size), self._threads.alive.reshape(-1, size)
        place = self._place.reshape(-1, size)
        first = place[:, :1]  # a block's first lane is always a thread
        whole = ((there == alive) & ((place == first) | ~alive)).all(axis=1)
        whole &= self._is_whole_block_barrier[first[:, 0]]
        self._synchronize_blocks(np.flatnonzero(whole))
        return np.repeat(whole, size) & waiting

    def _open_block(self, block: int, waiting: Lanes) -> Lanes | None:
        """Open a block's barrier that all have reached; None where there is none."""
        live = self._live & (self._block == block)
        numbers, counts = self._barrier_numbers(waiting)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            here = numbers == number
            expected = int(counts[here].max())
            if expected and self._arrived(here) >= expected:
                self._meet(here)
                return np.asarray(here)
            if expected or not np.array_equal(here, live):
                continue
            steps = np.unique(self._place[here]).tolist()
            if len(steps) > 1 and any(_is_aligned(self._steps[each]) for each in steps):
                continue
            gone = np.flatnonzero((self._block == block) & self._threads.alive & ~live)
            if gone.size:
                # Who waited at a barrier in another branch is gone for that reason.
                kind = "divergent barrier" if self._apart[gone].all() else "barrier not reached"
                self._report(kind, np.flatnonzero(here), gone, gone.size)
            self._synchronize_blocks(np.array([block]))
            return np.asarray(here)
        return None

    def _force_open(self, block: int, waiting: Lanes) -> Lanes:
        """Let the group go on that lies lowest in the program, and say who did not come."""
        step = int(self._place[waiting].min())
        here = waiting & (self._place == step)
        if is_warp_barrier(self._steps[step]):
            for mask, lanes in self._waiting_by_mask(here):
                missing = mask & lanes_to_bits(self._live) & ~lanes_to_bits(lanes)
                absent = np.flatnonzero(
                    bits_to_lanes(missing) & np.repeat(lanes_to_bits(lanes) != 0, WARP_SIZE)
                )
                in_vain = np.flatnonzero(lanes & np.repeat(missing != 0, WARP_SIZE))
                self._report("invalid mask", in_vain, absent, absent.size)
            self._synchronize_warps(here)
            return np.asarray(here)
        numbers, counts = self._barrier_numbers(waiting)
        expected = int(counts[here].max())
        if expected:  # such a barrier may stand in several places
            here = numbers == numbers[here][0]
        inside = (self._block == block) & self._threads.alive & ~here
        absent, kind = np.flatnonzero(inside & self._live), "divergent barrier"
        if not absent.size:
            absent, kind = np.flatnonzero(inside), "barrier not reached"
        lacking = expected - self._arrived(here) if expected else absent.size
        self._report(kind, np.flatnonzero(here), absent, lacking)
        self._synchronize_blocks(np.array([block]))
        self._apart |= here
        return np.asarray(here)

    def _arrived(self, here: Lanes) -> int:
        """Threads at a barrier that counts them: of a warp, those that there are not are there."""
        missing = (self._live & ~here).reshape(-1, WARP_SIZE)
        warps = here.reshape(-1, WARP_SIZE).any(axis=1)
        return int(np.count_nonzero(~missing[warps]))

    def _barrier_numbers(self, waiting: Lanes) -> tuple[Lanes, Lanes]:
        """Which barrier of its block each lane waits at, -1 for none, and how many it needs."""
        numbers = np.full(len(waiting), -1, np.int64)
        counts = np.zeros(len(waiting), np.int64)
        for step in np.unique(self._place[waiting]).tolist():
            if self._steps[step].row.kind == "barrier":
                at = waiting & (self._place == step)
                given = len(self._sources[step])
                numbers[at] = self._value(step, 0)[at] if given else 0
                counts[at] = self._value(step, 1)[at] if given > 1 else 0
        return numbers, counts

    def _value(self, step: int, operand: int) -> Lanes:
        return np.broadcast_to(value_of(self._sources[step][operand]), len(self._place))

    # --- What follows ------------------------------------------------------------------------

    def _synchronize_blocks(self, blocks: Lanes) -> None:
        self._order.meet_block(blocks)
        if self._publication.has_acquisitions:
            first = int(self._numbers[0]) >> THREAD_BITS
            for block in blocks.tolist():
                self._publication.meet_block(first + block)

    def _synchronize_warps(self, lanes: Lanes) -> None:
        """Lanes of each warp go on together."""
        if self._order.group == WARP_SIZE:
            self._meet(lanes)
            return
        for warp in np.unique(np.flatnonzero(lanes) // WARP_SIZE).tolist():
            members = np.zeros_like(lanes)
            members[warp * WARP_SIZE : (warp + 1) * WARP_SIZE] = True
            self._meet(lanes & members)

    def _meet(self, lanes: Lanes) -> None:
        """Lanes of each group, a warp's or a block's, go on together."""
        self._order.meet(lanes)
        if self._publication.has_acquisitions:
            for group in self._order.groups(np.flatnonzero(lanes)):
                self._publication.meet(self._numbers[group].tolist())

    def _report(self, kind: str, waiting: Lanes, absent: Lanes, count: int) -> None:
        """Name the first thread that waited, and the first that did not come, if any."""
        at, other = int(waiting[0]), int(absent[0]) if absent.size else None
        self._observations.add(
            "synccheck",
            kind,
            "",
            np.zeros(1, np.int64),
            int(self._place[at]),
            self._numbers[[at]],
            None if other is None else self._place[[other]],
            None if other is None else self._numbers[[other]],
            times=count,
        )
