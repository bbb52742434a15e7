"""The simulation of an SM, as machine code.

Every clock each of the four schedulers issues an instruction of one of its warps: of the warp that
it issued last, else of the youngest that is ready (greedy then youngest: Huerta et al., "Analyzing
Modern NVIDIA GPU Cores", MICRO 2025). A warp is ready when the stall count of its last instruction
has run out, the scoreboards that the next one waits for are released, and its code is there. When
an instruction issues, all its later events are known: units, caches and memory are servers that
take what arrives in order. So nothing but issuing happens clock by clock.
"""

from __future__ import annotations

from typing import Any

from memlab.device.emulator.codegen.compiled import compiled, set_bits, unlikely
from memlab.device.emulator.codegen.records import Pointer
from memlab.device.emulator.isa.values import S64
from memlab.device.emulator.models.clocks import later, sooner
from memlab.device.emulator.models.repeated_stores import FARTHEST_STORE
from memlab.device.properties import SHARED_BANKS, WARP_SIZE
from memlab.device.sm_model.records import (
    BANKS,
    GROUPS,
    NEIGHBOURS,
    NONE,
    PHASES,
    QUANTILES,
    SCHEDULERS,
    SCOREBOARDS,
    Kind,
    Machine,
    Operation,
    Slot,
    Stall,
    Step,
    Unit,
    Warp,
)

_NEVER = 1e30
_MOST_LOAD = 0.9  # of DRAM, for the wait in its queue
_WHOLE_BYTES = 31.0  # of a sector
_NONE_LEFT = 1e-3  # of a request's sectors
_WAVEFRONT_RESULT_CLOCKS = 2.0
"""What a wavefront takes of the way to a sub-core's registers, from shared memory or lines that the
L1 has (benchmarks/load_results.cu, docs/results/h200-load-results.csv). A result comes that much
later for each wavefront but the first."""
_UNITS = len(Unit)
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407
"""Of the linear congruential generator MMIX (Knuth, The Art of Computer Programming, 2, 3.3.4)."""
_LOCAL, _LOAD, _STORE, _ATOMIC, _SYNCHRONIZE, _COMMIT, _AWAIT, _CONSTANT = map(
    int,
    (
        *(Kind.LOCAL, Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.SYNCHRONIZE, Kind.COMMIT),
        *(Kind.AWAIT, Kind.CONSTANT),
    ),
)
_TEST, _CHANGE, _COPY, _COPY_OUT, _PRODUCT, _AWAIT_PRODUCTS, _ARRIVE_CLUSTER, _AWAIT_CLUSTER = map(
    int,
    (
        *(Kind.TEST, Kind.CHANGE, Kind.COPY, Kind.COPY_OUT, Kind.PRODUCT),
        *(Kind.AWAIT_PRODUCTS, Kind.ARRIVE_CLUSTER, Kind.AWAIT_CLUSTER),
    ),
)
_SEND, _ARRIVE_COPIED = int(Kind.SEND), int(Kind.ARRIVE_COPIED)
_MEMORY, _FMA, _HEAVY, _LITE = map(int, (Unit.MEMORY, Unit.FMA, Unit.FMA_HEAVY, Unit.FMA_LITE))
_WAIT, _LONG, _DISPATCH_STALL, _BARRIER, _NO_INSTRUCTION, _IMC_MISS, _NOT_SELECTED, _GMMA = map(
    int,
    (
        *(Stall.WAIT, Stall.LONG_SCOREBOARD, Stall.DISPATCH_STALL, Stall.BARRIER),
        *(Stall.NO_INSTRUCTION, Stall.IMC_MISS, Stall.NOT_SELECTED, Stall.GMMA),
    ),
)
_BRANCH_RESOLVING = int(Stall.BRANCH_RESOLVING)


def _whole(number: Any) -> Any:
    """A number of clocks as an integer, rounded down."""
    return number.to(S64)


@compiled(exported=True)
def simulate(m: Machine) -> None:
    """Execute the blocks of an SM."""
    for slot in range(m.slots):
        if m.started < m.blocks:
            _start_block(m, slot, 0.0)
    while m.running > 0:
        clock = _NEVER
        for scheduler in range(SCHEDULERS):
            clock = sooner(clock, m.next[scheduler])
        if unlikely(clock >= _NEVER):
            break
        m.clock = clock
        for scheduler in range(SCHEDULERS):
            if m.next[scheduler] <= clock:
                _schedule(m, scheduler, clock)
    m.drained = later(m.drained, m.write_free)


@compiled(inline=False)
def _schedule(m: Machine, scheduler: int, clock: float) -> None:
    """Issue an instruction, if a warp is ready; set when to look again."""
    if m.blocked[scheduler] > clock:
        m.next[scheduler] = m.blocked[scheduler]
        return
    free = m.unit_free + scheduler * _UNITS
    ports = m.ports + scheduler * BANKS
    first, second = ports[0], ports[1]
    best, after = m.last[scheduler], _NEVER
    if best < 0 or _turn(m.warps[best], free, first, second) > clock:
        best = 0 - 1
        for place in range(m.slots):
            start = m.youngest_first[place] * m.warps_per_block
            number = start + m.warps_per_block - 1
            number -= (number - scheduler) & (SCHEDULERS - 1)
            while number >= start:
                when = _turn(m.warps[number], free, first, second)
                if when <= clock:
                    best = number
                    break
                after = sooner(after, when)
                number -= SCHEDULERS
            if best >= 0:
                break
    if best < 0:
        m.next[scheduler] = after
        return
    if m.warps[best].ready < clock and m.steps[m.warps[best].step].adding >= 0:
        best = _longest_waiting(m, scheduler)
    m.last[scheduler] = best
    m.next[scheduler] = clock + 1.0
    _issue(m, scheduler, best, clock)


@compiled(inline=False)
def _longest_waiting(m: Machine, scheduler: int) -> int:
    """Of the warps that are about to add in shared memory, that which has waited longest.

    64 warps of an H100 that keep the L1 busy with such additions, each to words of its own, end
    within 6% of their time; with other accesses to shared memory those of the first blocks end in
    half of it (`docs/results/h100-shared-ends.csv`).
    """
    best, since, number = 0 + NONE, _NEVER, scheduler
    while number < m.slots * m.warps_per_block:
        warp = m.warps[number]
        if warp.ready < since and m.steps[warp.step].adding >= 0:
            best, since = number, warp.ready
        number += SCHEDULERS
    return best


@compiled(inline=True)
def _turn(warp: Warp, free: Pointer[float], first: float, second: float) -> float:
    """When a warp may issue its next instruction, by what its sub-core has taken up."""
    when = later(warp.ready, free[warp.unit])
    return later(later(when, first + warp.reads[0]), second + warp.reads[1])


@compiled(inline=True)
def _chance(m: Machine) -> float:
    """A random number of at least 0 and less than 1."""
    m.random = m.random * _MULTIPLIER + _INCREMENT
    return float((m.random >> 33) & 0x3FFFFFFF) / 1073741824.0


@compiled(inline=True)
def _drawn(m: Machine, table: Pointer[float]) -> float:
    """A random item of a table of quantiles."""
    m.random = m.random * _MULTIPLIER + _INCREMENT
    return table[(m.random >> 40) & (QUANTILES - 1)]


@compiled(inline=True)
def _drawn_half(m: Machine, table: Pointer[float]) -> float:
    """A random item of half a table."""
    m.random = m.random * _MULTIPLIER + _INCREMENT
    return table[(m.random >> 40) & (QUANTILES // 2 - 1)]


@compiled(inline=False)
def _start_block(m: Machine, slot: int, clock: float) -> None:
    """Start the next block in a slot that is free."""
    number = m.started
    m.started += 1
    start = later(clock, m.dispatch_free)
    m.dispatch_free = start + m.block_interval
    if number >= m.slots:
        start += m.block_latency
    m.starts[number] = start
    m.active_due += m.active_share
    idle = m.warps_per_block
    if m.active_due >= 0.999999:
        m.active_due -= 1.0
        idle = 0
    _put_first(m.youngest_first, slot)
    place = m.places[slot]
    place.number = number
    place.running, place.arrived, place.released = m.warps_per_block, 0, 0.0
    place.joined, place.last_joined, place.meetings, place.met = 0, 0.0, 0, 0.0
    place.meeting, place.stored = 0, 0.0
    for barrier in range(m.barriers):
        state = m.states[slot * m.barriers + barrier]
        state.pending, state.transactions = m.arrivals[barrier], 0
        state.phases, state.latest = 0, 0.0
    for curve in range(m.curves):
        m.issued_in_block[slot * m.curves + curve] = 0
    for member in range(m.warps_per_block):
        index = slot * m.warps_per_block + member
        origin = (member + number * m.turn) % m.warps_per_block
        warp, path = m.warps[index], m.path_of[idle + origin]
        warp.origin, warp.unswapped, warp.tries = origin, 0, 0
        for adding in range(m.additions):
            m.turns[index * m.additions + adding] = 0
        warp.loads, warp.stores, warp.walked = 0, 0, 0.0
        warp.slot, warp.stored, warp.copied, warp.committed = slot, 0.0, 0.0, 0
        for board in range(SCOREBOARDS):
            warp.boards[board] = 0.0
        warp.tested, warp.multiplied, warp.closed, warp.joined = 0 + NONE, 0.0, 0, 0
        warp.member = member if idle == 0 else NONE
        for group in range(GROUPS):
            warp.groups[group] = 0.0
            warp.products[group] = 0.0
        for site in range(m.sites):
            m.cursors[index * m.sites + site] = 0
        first = m.paths[path]
        warp.range, warp.ranges = first + 1, m.paths[path + 1]
        warp.step, warp.stop = m.ranges[2 * first], m.ranges[2 * first + 1]
        warp.running = 1
        m.running += 1
        _prepare(m, index, start + float(member) * m.warp_interval)


@compiled(inline=False)
def _put_first(slots: Pointer[int], slot: int) -> None:
    """Move a slot to the front of a list that has it."""
    moved, place = slot, 0
    while slots[place] != slot:
        slots[place], moved = moved, slots[place]
        place += 1
    slots[place] = moved


@compiled(inline=False)
def _prepare(m: Machine, number: int, clock: float) -> None:
    """Set when a warp may issue its next instruction, which it has reached at a clock."""
    warp = m.warps[number]
    step = m.steps[warp.step]
    ready, reason = clock, _WAIT
    for board in set_bits(step.wait):
        if warp.boards[board] > ready:
            ready, reason = warp.boards[board], warp.awaited[board]
    if step.kind == _AWAIT:
        oldest = warp.committed - 1 - step.groups
        if oldest >= 0 and warp.groups[oldest % GROUPS] > ready:
            ready, reason = warp.groups[oldest % GROUPS], _LONG
    elif step.kind == _AWAIT_PRODUCTS:
        oldest = warp.closed - 1 - step.groups
        if oldest >= 0 and warp.products[oldest % GROUPS] > ready:
            ready, reason = warp.products[oldest % GROUPS], _GMMA
    step.stalls[reason] += ready - clock
    known = _fetched(m, step.line, clock)
    if unlikely(known > ready):
        step.stalls[_NO_INSTRUCTION] += known - ready
        ready = known
    if step.kind != _CONSTANT:
        known = _constants(m, number, warp, step, ready)
        if unlikely(known > ready):
            step.stalls[_IMC_MISS] += known - ready
            ready = known
    if step.kind == _TEST:
        index = _operation(m, number, step.site)
        if index >= 0:
            warp.barrier = warp.step
            known = _tested(m, warp, m.operations[index], ready)
            if known >= _NEVER:
                return
            if known > ready:
                step.stalls[_LONG] += known - ready
                ready = known
    if step.kind == _AWAIT_CLUSTER:
        place = m.places[warp.slot]
        if place.meetings < warp.joined:
            warp.ready, warp.since, warp.tested = _NEVER, ready, m.barriers
            place.meeting += 1
            _open_complete(m, warp.slot, place)
            return
        if place.met > ready:
            step.stalls[_BARRIER] += place.met - ready
            ready = place.met
    rounded = float(_whole(ready + 0.999))
    step.stalls[reason] += rounded - ready
    for bank in range(BANKS):
        warp.reads[bank] = step.reads[bank] - step.window
    warp.ready, warp.unit = rounded, step.unit
    scheduler = number & (SCHEDULERS - 1)
    m.next[scheduler] = sooner(m.next[scheduler], rounded)


@compiled(inline=True)
def _operation(m: Machine, number: int, site: int) -> int:
    """The number of a warp's next operation at a site; NONE if it has none there."""
    member = m.warps[number].member
    index = 0 + NONE
    if 0 <= site < m.sites and member >= 0:
        place = member * m.sites + site
        index = m.first_operation[place] + m.cursors[number * m.sites + site]
        if index >= m.first_operation[place + 1]:
            index = 0 + NONE
    return index


@compiled(inline=False)
def _tested(m: Machine, warp: Warp, operation: Operation, clock: float) -> float:
    """When the phases that a test waits for are complete; never if that is not known yet."""
    when = clock
    if operation.barrier < 0:  # its predicate is off
        return when
    state = m.states[warp.slot * m.barriers + operation.barrier]
    if state.phases < operation.phases:
        warp.ready, warp.since = _NEVER, clock
        warp.tested, warp.phases = operation.barrier, operation.phases
        when = _NEVER
    elif operation.phases > 0 and state.phases - operation.phases < PHASES:
        when = later(clock, state.complete[(operation.phases - 1) % PHASES])
    return when


@compiled(inline=False)
def _change(m: Machine, slot: int, operation: Operation, clock: float) -> None:
    """Arrive at a barrier, or complete bytes there, at a clock; let warps that wait go on."""
    if operation.barrier < 0:  # its predicate is off
        return
    state = m.states[slot * m.barriers + operation.barrier]
    state.pending -= operation.arrivals
    state.transactions += operation.transactions
    state.latest = later(state.latest, clock)
    if state.pending > 0 or state.transactions != 0:
        return
    when = state.latest
    state.complete[state.phases % PHASES] = when
    state.phases += 1
    state.pending, state.latest = m.arrivals[operation.barrier], 0.0
    for member in range(m.warps_per_block):
        number = slot * m.warps_per_block + member
        warp = m.warps[number]
        if warp.running and warp.tested == operation.barrier and warp.phases <= state.phases:
            warp.tested = 0 + NONE
            then = later(when, warp.since)
            waits = m.steps[warp.barrier]
            reason = _BARRIER if waits.kind == _SYNCHRONIZE else _LONG
            waits.stalls[reason] += then - warp.since
            _prepare(m, number, then)


@compiled(inline=True)
def _operate(m: Machine, number: int, step: Step, clock: float) -> None:
    """Make a warp's next change of a barrier."""
    index = _operation(m, number, step.site)
    if index >= 0:
        m.cursors[number * m.sites + step.site] += 1
        _change(m, m.warps[number].slot, m.operations[index], clock)


@compiled(inline=True)
def _fetched(m: Machine, line: int, clock: float) -> float:
    """When a line of code is there."""
    known = m.code[line]
    if unlikely(known < 0.0):
        _fetch(m, line, clock)
        known = m.code[line]
    return known


@compiled(inline=True)
def _constants(m: Machine, number: int, warp: Warp, step: Step, clock: float) -> float:
    """When the lines of constant memory that an instruction reads are there."""
    when = clock
    if step.bank >= 0:
        if unlikely(m.banks[step.bank] < 0.0):
            m.banks[step.bank] = clock + step.bank_latency
        when = later(when, m.banks[step.bank])
    elif unlikely(step.walked >= 0.0):
        when = _walk(m, number, warp, step, clock)
    return when


@compiled(inline=False)
def _walk(m: Machine, number: int, warp: Warp, step: Step, clock: float) -> float:
    """When the lines of a table are there that a warp's next load of constants reads."""
    cache = SCHEDULERS if step.kind == _CONSTANT else number & (SCHEDULERS - 1)
    first = m.first_walked[warp.origin]
    count = m.first_walked[warp.origin + 1] - first
    when, place = clock, _whole(warp.walked)
    if step.walked == 0.0:  # it reads the line of the load before
        place = _whole(later(_last_walked(warp.walked), 0.0))
    warp.walked += step.walked
    last = later(_last_walked(warp.walked), float(place))
    while count > 0 and float(place) <= last:
        when = later(when, _line_of_constants(m, cache, m.walks[first + place % count], clock))
        place += 1
    return when


@compiled(inline=True)
def _last_walked(walked: float) -> float:
    """The last place of a walk before another one."""
    return float(_whole(walked + 0.9999)) - 1.0


@compiled(inline=False)
def _line_of_constants(m: Machine, cache: int, line: int, clock: float) -> float:
    """When a line is in a cache, which forgets the one that was used longest ago for it.

    That one's place must have its line, which stays for some clocks, before it can be taken. Until
    then the new one waits, and further loads of the same line wait for requests of their own.
    """
    known = cache * m.constant_lines + line
    places = m.held + cache * m.indexed_places
    used = m.used + cache * m.indexed_places
    if m.until[known] > clock and m.taken[known] <= clock + m.kept_clocks:
        place = m.place_of[known]
        if places[place] == line:
            used[place] = later(used[place], clock)
        return later(clock, m.there[known])
    place = 0
    for other in range(m.uniform_places if cache < SCHEDULERS else m.indexed_places):
        if used[other] < used[place]:
            place = other
    taken = later(clock, used[place] + m.kept_clocks)
    if places[place] >= 0:
        left = cache * m.constant_lines + places[place]
        if m.place_of[left] == place:
            m.until[left] = taken
    start = later(taken, m.line_free)
    m.line_free = start + m.constant_interval
    there = start + m.constant_latency
    places[place], m.place_of[known], used[place] = line, place, there
    m.taken[known], m.there[known], m.until[known] = taken, there, _NEVER
    return there


@compiled(inline=False)
def _fetch(m: Machine, line: int, clock: float) -> None:
    """Request a line of code, and those behind it."""
    arrives = clock + m.fetch_latency
    for ahead in range(m.fetch_ahead + 1):
        if line + ahead < m.code_lines and m.code[line + ahead] < 0.0:
            m.code[line + ahead] = arrives + float(ahead) * m.fetch_interval


@compiled(inline=False)
def _issue(m: Machine, scheduler: int, number: int, clock: float) -> None:
    """Issue a warp's next instruction."""
    warp = m.warps[number]
    step = m.steps[warp.step]
    step.issued += 1
    m.issued += 1
    free = m.unit_free + scheduler * _UNITS
    done, read = clock + step.latency, clock
    ports = m.ports + scheduler * BANKS
    if clock > warp.ready:
        _count_turn(m, scheduler, warp, step, free[warp.unit], ports, clock)
    if step.dispatch > 0.0:
        m.blocked_from[scheduler], m.blocked[scheduler] = clock + 1.0, clock + 1.0 + step.dispatch
    for bank in range(BANKS):
        ports[bank] = later(ports[bank], clock) + step.reads[bank]
    if step.unit == _MEMORY:
        passes = _passes(m, number, step)
        begin = _enqueue(m, scheduler, step, passes, clock)
        read = begin
        if step.kind == _SEND:
            _operate(m, number, step, _reach(m, step, begin))
        elif step.remote > 0.0 and _chance(m) < step.remote:
            done = _reach(m, step, begin)
        elif step.kind == _LOCAL:
            done = _use_shared(m, scheduler, number, step, passes, begin)
        elif step.kind == _LOAD:
            done = begin + step.latency + _return(m.result_free + scheduler, passes, begin)
            latency = _latency_of(m, number, warp, step)
            done = later(done, _load(m, warp.slot, step, begin, latency))
        elif step.kind == _STORE:
            warp.stored = later(warp.stored, _store(m, warp, step, begin))
        elif step.kind == _ATOMIC:
            done = _atomic(m, step, begin)
    else:
        unit = step.unit
        if unit == _FMA:
            unit = _LITE if free[_LITE] <= clock else _HEAVY
        free[unit] = clock + step.busy
        free[_FMA] = sooner(free[_HEAVY], free[_LITE])
        if step.kind == _CONSTANT:
            m.constant_free = later(clock, m.constant_free) + step.passes
            done = m.constant_free + step.latency
            there = _constants(m, number, warp, step, clock)
            done = later(done, there + (step.latency if step.walked >= 0.0 else 0.0))
        elif step.kind >= _TEST:
            _asynchronous(m, number, warp, step, clock)
    _complete(warp, step, done, read)
    _advance(m, number, warp, step, clock)


@compiled(inline=True)
def _complete(warp: Warp, step: Step, done: float, read: float) -> None:
    """Note when the scoreboards of an instruction are released, and its copies complete."""
    if step.write >= 0 and done > warp.boards[step.write]:
        warp.boards[step.write], warp.awaited[step.write] = done, step.awaited
    if step.read >= 0 and read > warp.boards[step.read]:
        warp.boards[step.read], warp.awaited[step.read] = read, step.awaited
    if step.copies and step.kind != _PRODUCT:
        warp.copied = later(warp.copied, done)
    if step.kind == _COMMIT:
        warp.groups[warp.committed % GROUPS] = warp.copied
        warp.committed += 1
        if step.write >= 0:
            warp.boards[step.write] = 0.0  # DEPBAR, not a wait mask, waits for it


@compiled(inline=False)
def _asynchronous(m: Machine, number: int, warp: Warp, step: Step, clock: float) -> None:
    """Issue what completes at a barrier or with a group of products, or operates on these."""
    if step.kind == _PRODUCT:
        m.l1_free = later(m.l1_free, clock) + step.passes
        warp.multiplied = later(warp.multiplied, clock + step.latency)
        if step.copies:
            warp.products[warp.closed % GROUPS] = warp.multiplied
            warp.closed += 1
    elif step.kind == _TEST:
        if _operation(m, number, step.site) >= 0:
            m.cursors[number * m.sites + step.site] += 1
    elif step.kind in (_CHANGE, _ARRIVE_COPIED):
        index, arrival = _operation(m, number, step.site), m.arrival_clocks
        if index >= 0 and m.operations[index].far:
            arrival = m.far_arrival_clocks
        begin = clock if step.kind == _CHANGE else later(clock, warp.copied)
        _operate(m, number, step, begin + arrival)
    elif step.kind == _COPY:
        index = _operation(m, number, step.site)
        if index < 0 or m.operations[index].barrier >= 0:
            _operate(m, number, step, _load(m, warp.slot, step, clock, 0 + NONE))
        else:
            m.cursors[number * m.sites + step.site] += 1
    elif step.kind == _SEND:  # by the copy engine
        _operate(m, number, step, _reach(m, step, clock))
    elif step.kind == _COPY_OUT:
        read = later(_copy_out(m, step, clock), m.write_free - m.backlog)
        warp.copied = later(warp.copied, read)
    elif step.kind == _ARRIVE_CLUSTER:
        place = m.places[warp.slot]
        warp.joined += 1
        place.joined += 1
        place.last_joined = later(place.last_joined, clock) + m.barrier_clocks
        if place.joined >= place.running:
            _meet(m, warp.slot, place)


@compiled(inline=False)
def _reach(m: Machine, step: Step, begin: float) -> float:
    """Access the shared memory of another block; return when the result is there."""
    m.remote_free = later(begin, m.remote_free) + step.remote_sectors * m.remote_sector_clocks
    m.l1_free = later(m.l1_free, m.remote_free - m.backlog)
    m.drained = later(m.drained, m.remote_free)
    return m.remote_free + step.remote_latency


@compiled(inline=False)
def _meet(m: Machine, slot: int, place: Slot) -> None:
    """Open the barrier of a cluster, at which all warps of a block have arrived.

    Its other blocks are taken to arrive at the same time.
    """
    when = place.last_joined + m.cluster_clocks
    place.joined, place.last_joined, place.met = 0, 0.0, when
    place.meetings += 1
    place.meeting = 0
    for member in range(m.warps_per_block):
        number = slot * m.warps_per_block + member
        warp = m.warps[number]
        if warp.running and warp.tested == m.barriers:
            warp.tested = 0 + NONE
            then = later(when, warp.since)
            m.steps[warp.step].stalls[_BARRIER] += then - warp.since
            _prepare(m, number, then)


@compiled(inline=True)
def _count_turn(
    m: Machine,
    scheduler: int,
    warp: Warp,
    step: Step,
    free: float,
    ports: Pointer[float],
    clock: float,
) -> None:
    """Count why a warp that was ready earlier issues only now.

    Until the unit was free, it took instructions of other warps in some of the clocks. In the rest
    of the time other warps issued, unless the sub-core dispatched a wide product.
    """
    ready = warp.ready
    if free > ready:
        taken = sooner((free - ready + 1.0) * step.throttled, free - ready)
        step.stalls[step.throttle] += taken
        ready += taken
    readable = later(ports[0] + warp.reads[0], ports[1] + warp.reads[1])
    waited = sooner(later(readable - later(ready, free), 0.0), clock - ready)
    rest = clock - ready - waited
    start = later(warp.ready, m.blocked_from[scheduler])
    blocked = later(sooner(m.blocked[scheduler], clock) - start, 0.0)
    blocked = sooner(blocked, rest)
    step.stalls[_DISPATCH_STALL] += waited + blocked
    step.stalls[_NOT_SELECTED] += rest - blocked


@compiled(inline=True)
def _enqueue(m: Machine, scheduler: int, step: Step, passes: float, clock: float) -> float:
    """Pass a memory instruction through a sub-core's queue; return when the L1 has taken it."""
    ready = later(clock + 1.0, m.address_free[scheduler])
    ready += step.busy
    begin = later(ready, m.l1_free)
    m.l1_free = begin + passes
    m.address_free[scheduler] = later(ready, begin - 2.0 * step.busy)
    queue = m.queue + scheduler * m.queue_depth
    head = m.queue_head[scheduler]
    queue[head] = begin
    head += 1
    if head == m.queue_depth:
        head = 0
    m.queue_head[scheduler] = head
    m.unit_free[scheduler * _UNITS + _MEMORY] = later(clock + 1.0, queue[head])
    return begin


@compiled(inline=True)
def _return(free: Pointer[float], passes: float, begin: float) -> float:
    """Pass a load's wavefronts to a sub-core; return how much later than one the last comes."""
    from_l1 = later(begin, free[0])
    free[0] = from_l1 + _WAVEFRONT_RESULT_CLOCKS * passes
    return from_l1 - begin + _WAVEFRONT_RESULT_CLOCKS * later(passes - 1.0, 0.0)


@compiled(inline=True)
def _passes(m: Machine, number: int, step: Step) -> float:
    """The clocks that a warp's memory instruction occupies the L1's data stage."""
    passes = step.passes
    if unlikely(step.loads_words):
        passes = _load_words(m, number, step)
    return passes


@compiled(inline=False)
def _load_words(m: Machine, number: int, step: Step) -> float:
    """Begin a round of a warp's addition; return the wavefronts of the load of its words.

    They are the most words of a bank of the lanes that have not succeeded yet.
    """
    warp = m.warps[number]
    first = _execution(m, number, step)
    if first < 0:
        return step.passes
    words, rounds = m.added + first * WARP_SIZE, m.rounds[step.adding]
    if warp.unswapped == 0:
        rounds.executions += 1
        for lane in range(WARP_SIZE):
            if words[lane] >= 0:
                warp.unswapped |= 1 << lane
                rounds.lanes += 1
    wavefronts, start, run = 0, 0, m.lanes_at_once[step.adding]
    while start < WARP_SIZE:
        most = 0
        m.requests += 1
        for bank in range(SHARED_BANKS):
            m.served[bank] = 0
        for lane in range(start, start + run):
            if (warp.unswapped >> lane) & 1 and m.seen[words[lane]] != m.requests:
                m.seen[words[lane]] = m.requests
                bank = m.bank_of[words[lane]]
                m.served[bank] += 1
                most = max(most, m.served[bank])
        wavefronts += most
        rounds.excessive += max(most - 1, 0)
        start += run
    return float(max(wavefronts, 1))


@compiled(inline=True)
def _execution(m: Machine, number: int, step: Step) -> int:
    """The number of a warp's execution of an addition; NONE if its words are not known."""
    warp = m.warps[number]
    block = m.places[warp.slot].number % m.added_blocks
    place = (block * m.warps_per_block + warp.origin) * m.additions + step.adding
    executions = m.first_added[place + 1] - m.first_added[place]
    found = 0 + NONE
    if executions > 0:
        turn = m.turns[number * m.additions + step.adding]
        found = m.first_added[place] + turn % executions
    return found


@compiled(inline=True)
def _use_shared(
    m: Machine, scheduler: int, number: int, step: Step, passes: float, begin: float
) -> float:
    """Access shared memory; return when the result is there.

    What loads the words of an addition was measured with all that a round does.
    """
    done = begin + step.latency
    if step.loads_words:
        m.warps[number].compared = begin
        done += _WAVEFRONT_RESULT_CLOCKS * (passes - 1.0)
    elif step.adding >= 0:
        _swap(m, number, step, begin)
    elif step.loads_shared:
        done += _return(m.shared_result_free + scheduler, passes, begin)
    return done


@compiled(inline=False)
def _swap(m: Machine, number: int, step: Step, begin: float) -> None:
    """Compare and swap the words of a warp's addition.

    Of the lanes whose words lie in one bank, one can succeed. It does unless another warp has
    changed its word since it was loaded. If one fails, the warp executes its range, which is the
    loop, again.
    """
    warp = m.warps[number]
    first = _execution(m, number, step)
    if first < 0:
        return
    words, rounds = m.added + first * WARP_SIZE, m.rounds[step.adding]
    rounds.warp_rounds += 1
    left, succeeded, banks, next_run = 0, 0, 0, m.lanes_at_once[step.adding]
    for lane in set_bits(warp.unswapped):
        rounds.lane_rounds += 1
        if lane >= next_run:
            next_run += m.lanes_at_once[step.adding]
            banks = 0
        word = warp.slot * m.words + words[lane]
        bank = 1 << m.bank_of[words[lane]]
        if m.swapped[word] > warp.compared or banks & bank:
            left |= 1 << lane
        else:
            m.swapped[word] = begin + m.swap_clocks
            succeeded = 1
        banks |= bank
    rounds.groups += succeeded
    warp.unswapped = left
    if left == 0:
        m.turns[number * m.additions + step.adding] += 1
    else:
        warp.tries = 1 + succeeded


@compiled(inline=True)
def _latency_of(m: Machine, number: int, warp: Warp, step: Step) -> int:
    """The quantile of DRAM's latency that a load has in common with those of its neighbours.

    It is a random number that depends on the block, on how many loads its warps have made, and on
    the place of the lines among those of all its warps; NONE where the lines are no neighbours.
    """
    quantile = 0 + NONE
    if step.whole:
        warp.loads += 1
        member = number - warp.slot * m.warps_per_block
        together = _whole(float(member) * step.lines / NEIGHBOURS)
        seed = (m.places[warp.slot].number * 4099 + warp.loads) * 4099 + together
        seed = (seed * _MULTIPLIER + _INCREMENT) * _MULTIPLIER + _INCREMENT
        quantile = (seed >> 40) & (QUANTILES - 1)
    return quantile


@compiled(inline=False)
def _load(m: Machine, slot: int, step: Step, begin: float, latency: int) -> float:
    """When the last sector of a load is there; a latency of DRAM may be given, as a quantile."""
    done = begin + step.latency
    if step.missed <= 0.0 and step.joined <= 0.0:
        return done
    left, per_line = step.lines, step.sectors / step.lines
    leaves, interval = begin, step.passes / step.lines  # the L1 looks up a line after the other
    missed, dram, far = step.missed, step.dram, step.far
    if step.curve >= 0:
        before = step.issued - 1
        if step.in_block:
            of_block = slot * m.curves + step.curve
            before = m.issued_in_block[of_block]
            m.issued_in_block[of_block] += 1
        place = min(_whole(float(before) * step.advance), m.curve_parts - 1)
        place += step.curve * m.curve_parts
        missed, dram = missed * m.missed_curves[place], dram * m.dram_curves[place]
        far *= m.far_curves[place]
    while left > 0.0:
        part = sooner(left, 1.0)
        left -= 1.0
        if _chance(m) < missed:
            slots = later(per_line, m.least_sectors) * part
            arrival = _pass_port(m, leaves, per_line * part, slots * m.read_sector_clocks)
            _hold_up_l1(m, step, arrival)
            if _chance(m) < dram:
                done = later(done, _miss(m, arrival, per_line * part, latency))
            else:
                m.write_free = later(m.write_free, arrival) + slots * m.hit_sector_clocks
                arrival = later(arrival, m.write_free)
                done = later(done, arrival + _coming(m, step, step.l2_joined_dram, far, latency))
        elif step.joined > 0.0 and _chance(m) < step.joined:
            done = later(done, leaves + _coming(m, step, step.joined_dram, far, latency))
        leaves += interval
    return done


@compiled(inline=True)
def _coming(m: Machine, step: Step, dram: float, far: float, quantile: int) -> float:
    """The latency of a line that comes from DRAM in a share of the cases, else from the L2.

    Of the former, another block may have asked for it before: a share of the time is left.

    There it comes from the reader's partition, or in another share from the other one: the first
    and the second half of the table. Lines of a bulk copy have the mean latency of either: copies
    of 128 bytes and 16 KiB take as long as their bytes need beside one latency.
    """
    latency = 0.0
    if dram > 0.0 and _chance(m) < dram:
        latency = m.dram_table[quantile] if quantile >= 0 else _drawn(m, m.dram_table)
        if step.awaited_share < 1.0:
            hit = _drawn(m, m.l2_table)
            latency = hit + step.awaited_share * (latency - hit)
    elif step.unit != _MEMORY:
        is_far = _chance(m) < (far if far >= 0.0 else 0.5)
        latency = m.l2_table[3 * QUANTILES // 4] if is_far else m.l2_table[QUANTILES // 4]
    elif far < 0.0:
        latency = _drawn(m, m.l2_table)
    elif _chance(m) < far:
        latency = _drawn_half(m, m.l2_table + QUANTILES // 2)
    else:
        latency = _drawn_half(m, m.l2_table)
    return latency


@compiled(inline=True)
def _miss(m: Machine, arrival: float, sectors: float, latency: int) -> float:
    """Read sectors from DRAM, and write them into the L2; return when they are there."""
    read = sectors * m.dram_sector_bytes
    _load_dram(m, arrival, read)
    m.dram_free = later(arrival, m.dram_free) + read * m.dram_byte_clocks
    m.write_free = later(arrival, m.write_free) + read * m.fill_byte_clocks
    when = later(later(m.dram_free, m.write_free), arrival + _queued(m))
    return when + (m.dram_table[latency] if latency >= 0 else _drawn(m, m.dram_table))


@compiled(inline=True)
def _load_dram(m: Machine, clock: float, size: float) -> None:
    """Add bytes to the load of DRAM, a mean over the last clocks."""
    passed = later(clock - m.dram_seen, 0.0)
    m.dram_load = m.dram_load / (1.0 + passed / m.dram_window) + size * m.dram_peak_byte_clocks
    m.dram_seen = later(m.dram_seen, clock)


@compiled(inline=True)
def _write_to_dram(m: Machine, step: Step, clock: float) -> None:
    """Let DRAM write what it will sooner or later of sectors that reach the L2."""
    m.dram_free = later(m.dram_free, clock) + step.sectors * step.written * m.dram_byte_clocks
    _load_dram(m, clock, step.sectors * step.written)


@compiled(inline=True)
def _queued(m: Machine) -> float:
    """The mean time that a read waits in front of DRAM, for reads (M/D/1) and for writes."""
    load = sooner(m.dram_load / m.dram_window, _MOST_LOAD)
    return m.dram_queue_clocks * load / (2.0 * (1.0 - load)) + m.dram_turnaround_clocks * load


@compiled(inline=True)
def _pass_port(m: Machine, begin: float, sectors: float, clocks: float) -> float:
    """Pass sectors that are read through the SM's port and its share of the L2; return when."""
    start = later(begin, m.port_free)
    m.port_free = start + sectors * m.port_sector_clocks
    start = later(start, m.l2_free)
    m.l2_free = start + clocks
    return later(m.port_free, m.l2_free)


@compiled(inline=True)
def _write(m: Machine, step: Step, begin: float) -> float:
    """Pass sectors that are written through the SM's port and to the L2; return when."""
    start = later(begin, m.store_port_free)
    m.store_port_free = start + step.sectors * m.store_port_sector_clocks
    m.write_free = later(start, m.write_free) + _whole_written(step) * m.write_sector_clocks
    end = later(m.store_port_free, m.write_free)
    _hold_up_l1(m, step, end)
    return end


@compiled(inline=True)
def _hold_up_l1(m: Machine, step: Step, end: float) -> None:
    """Let the L1 take no accesses as long as too much of its traffic is under way.

    No access of a warp waits for the copy engine, which has a queue of its own.
    """
    if step.unit == _MEMORY:
        m.l1_free = later(m.l1_free, end - m.backlog)


@compiled(inline=True)
def _whole_written(step: Step) -> float:
    """The sectors that the L2 takes the time of for a request that writes whole ones."""
    return later(step.sectors, step.lines * step.least_written)


@compiled(inline=False)
def _store(m: Machine, warp: Warp, step: Step, begin: float) -> float:
    """Write sectors to the L2; return when they have left the SM.

    Their lines wait in a queue for the port. A sector that the warp stores to again meanwhile
    leaves once, and takes the L2 less time if all of its bytes are written then.
    """
    begin += step.passes
    joining, leaving, last, filled = 0.0, _NEVER, 0.0, step.sector_bytes
    if step.repeats:
        for back in range(FARTHEST_STORE):
            if back < warp.stores and step.repeated[back] > 0.0:
                before = (warp.stores - 1 - back) % FARTHEST_STORE
                if warp.left[before] > begin:
                    since = later(warp.leaving[before], begin)
                    last = later(last, warp.left[before])
                    waiting = (last - since) / (last - warp.leaving[before])
                    joining += step.repeated[back] * waiting
                    leaving = sooner(leaving, since)
                    filled = later(filled, warp.filled[before] + step.sector_bytes)
    whole, left = _whole_written(step), 1.0 - joining
    is_part = step.sector_bytes < _WHOLE_BYTES
    if is_part and filled >= _WHOLE_BYTES:
        m.write_free -= joining * (step.part_written - whole) * m.write_sector_clocks
    if left > _NONE_LEFT:
        start = later(later(begin, m.store_port_free), m.write_free - m.backlog)
        passed = step.sectors + (step.lines if is_part else 0.0)
        last = start + passed * left * m.store_port_sector_clocks
        leaving, m.store_port_free = sooner(leaving, start), last
        m.left_sectors += step.sectors * left
        written = (step.part_written if is_part else whole) * left * step.rewritten
        m.write_free = later(start, m.write_free) + written * m.write_sector_clocks
        if step.unit == _MEMORY:
            queued = m.queued_lines * (last - start) / (step.lines * left)
            m.l1_free = later(m.l1_free, last - queued)
    number = warp.stores % FARTHEST_STORE
    warp.leaving[number], warp.left[number], warp.filled[number] = leaving, last, filled
    warp.stores += 1
    end = later(last, m.write_free)
    _write_to_dram(m, step, end)
    m.drained = later(m.drained, last)
    if unlikely(step.serial > 0.0):
        _operate_in_turn(m, step, last)
    return m.store_port_free


@compiled(inline=False)
def _operate_in_turn(m: Machine, step: Step, begin: float) -> float:
    """Let the L2 take a request to a place that all warps want; return when it has."""
    end = later(m.atomic_free, begin) + step.serial
    m.atomic_free = end
    m.l1_free = later(m.l1_free, end - m.backlog)
    m.drained = later(m.drained, end)
    return end


@compiled(inline=False)
def _copy_out(m: Machine, step: Step, begin: float) -> float:
    """Copy sectors to the L2, past the L1; return when they have left the SM."""
    end = _write(m, step, begin + step.passes)
    _write_to_dram(m, step, end)
    m.drained = later(m.drained, end)
    return m.store_port_free


@compiled(inline=False)
def _atomic(m: Machine, step: Step, begin: float) -> float:
    """Operate on sectors at the L2; return when the old values of all lines are there."""
    end = _operate_in_turn(m, step, _write(m, step, begin + step.passes))
    done, left, per_line = end, step.lines, step.sectors / step.lines
    while left > 0.0:
        part = sooner(left, 1.0)
        left -= 1.0
        if step.dram > 0.0 and _chance(m) < step.dram:
            done = later(done, _miss(m, end, per_line * part, 0 + NONE))
        else:
            done = later(done, end + _drawn(m, m.l2_table))
    return done


@compiled(inline=False)
def _advance(m: Machine, number: int, warp: Warp, step: Step, clock: float) -> None:
    """Go to the next instruction of a warp's path."""
    then, own = clock + float(max(step.stall, 1)) + step.resolving, warp.step
    if unlikely(step.call > 0.0):
        free = later(m.call_free[step.called], clock) + step.serial
        m.call_free[step.called] = free
        then = later(then + step.call, free)
    warp.step += 1
    if warp.step == warp.stop and warp.tries:
        if warp.tries > 1:
            then += m.parting_clocks
        warp.tries = 0
        warp.step = m.ranges[2 * warp.range - 2]
    elif warp.step == warp.stop:
        if warp.range == warp.ranges:
            _end(m, warp, clock)
            return
        warp.step = m.ranges[2 * warp.range]
        warp.stop = m.ranges[2 * warp.range + 1]
        warp.range += 1
    if step.kind == _SYNCHRONIZE:
        place = m.places[warp.slot]
        start = later(clock, m.barrier_free)
        m.barrier_free = start + m.barrier_clocks
        index = _operation(m, number, step.site)
        if index >= 0:
            m.cursors[number * m.sites + step.site] += 1
            warp.barrier = own
            _meet_part(m, number, m.operations[index], clock + 1.0)
            return
        place.arrived += 1
        place.released = later(place.released, m.barrier_free)
        warp.ready, warp.since, warp.barrier = _NEVER, clock + 1.0, own
        _open_complete(m, warp.slot, place)
        return
    stalls = m.steps[warp.step].stalls
    stalls[_BRANCH_RESOLVING] += step.resolving
    stalls[_WAIT] += then - clock - 1.0 - step.resolving
    _prepare(m, number, then)


@compiled(inline=False)
def _meet_part(m: Machine, number: int, operation: Operation, clock: float) -> None:
    """Arrive at a named barrier, and wait there for the others, from a clock."""
    warp = m.warps[number]
    _change(m, warp.slot, operation, m.barrier_free + m.barrier_latency)
    then = _tested(m, warp, operation, clock)
    if then < _NEVER:
        m.steps[warp.barrier].stalls[_BARRIER] += then - clock
        _prepare(m, number, then)


@compiled(inline=True)
def _open_complete(m: Machine, slot: int, place: Slot) -> None:
    """Open the barrier of a block, if all of its warps that can arrive have done so."""
    if place.arrived > 0 and place.arrived >= place.running - place.meeting:
        _open(m, slot, place)


@compiled(inline=False)
def _open(m: Machine, slot: int, place: Slot) -> None:
    """Let the warps that wait at a barrier go on."""
    when = place.released + m.barrier_latency
    place.arrived, place.released = 0, 0.0
    for member in range(m.warps_per_block):
        number = slot * m.warps_per_block + member
        warp = m.warps[number]
        if warp.running and warp.ready >= _NEVER and warp.tested < 0:
            m.steps[warp.barrier].stalls[_BARRIER] += later(when - warp.since, 0.0)
            _prepare(m, number, when)


@compiled(inline=False)
def _end(m: Machine, warp: Warp, clock: float) -> None:
    """End a warp; with the last one of a block, start another block."""
    warp.running, warp.ready = 0, _NEVER
    m.running -= 1
    m.drained = later(m.drained, clock + 1.0)
    place = m.places[warp.slot]
    place.running -= 1
    place.stored = later(place.stored, warp.stored)
    if place.running == 0:
        if m.started < m.blocks:
            _start_block(m, warp.slot, later(clock + 1.0, place.stored))
        return
    _open_complete(m, warp.slot, place)
    if place.joined >= place.running:
        _meet(m, warp.slot, place)
