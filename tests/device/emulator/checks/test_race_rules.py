"""Which two accesses race: small programs, each with what is found in it."""

import numpy as np
import pytest
from ptx import Mistake, check, kernel, numbered

HEAD = ".reg .pred %p, %q; .reg .b32 %t, %x<9>; .reg .b64 %a<4>; .shared .align 16 .b8 s[64]; "
HEAD += "mov.u32 %t, %tid.x; ld.param.u64 %a0, [a]; "


def races(*lines: str, threads: int = 64, grid: int = 1, chunk: int | None = None) -> list[Mistake]:
    """What racecheck finds; a line `T: PTX` is for thread T alone, `T-U: PTX` for T to U."""
    text = []
    for line in lines:
        who, _, what = line.rpartition(": ")
        if who:
            first, _, last = who.partition("-")
            guard = f"setp.ge.u32 %p, %t, {first}; setp.le.and.u32 %p, %t, {last or first}, %p; "
            what = guard + " ".join(f"@%p {each};" for each in what.split("; "))
        else:
            what += ";"
        text.append(what)
    text[0] = HEAD + text[0]
    body = "\n".join([*text, "ret;"])
    array = {"a": np.zeros(64, np.uint32)}
    found = check(kernel(numbered(body), ".u64 a"), array, grid=grid, block=threads, chunk=chunk)
    return found.of("racecheck")


def kinds(found: list[Mistake]) -> list[tuple[str, int, int]]:
    """Kind and both lines of each."""
    return [(each.kind, each.at[0], each.other[0]) for each in found if each.other is not None]


# --- The same value ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("st.shared.u32 [s], 257", []),
        ("st.shared.u32 [s], 256", [("WAW", 2, 1)]),  # one byte differs
        ("red.shared.add.u32 [s], 257", [("WAW", 2, 1)]),
    ],
)
def test_a_store_of_the_same_value_is_no_race(
    second: str, found: list[tuple[str, int, int]]
) -> None:
    assert kinds(races("0: st.shared.u32 [s], 257", f"32: {second}")) == found


def test_the_same_value_that_an_atomic_left_is_a_race() -> None:
    assert kinds(races("0: red.shared.add.u32 [s], 7", "32: st.shared.u32 [s], 7")) == [
        ("WAW", 2, 1)
    ]


def test_the_same_value_is_a_race_where_others_read_meanwhile() -> None:
    found = races(
        "0: st.shared.u32 [s], 7", "1: ld.shared.u32 %x0, [s]", "32: st.shared.u32 [s], 7"
    )
    assert sorted(kinds(found)) == [("RAW", 2, 1), ("WAR", 3, 2), ("WAW", 3, 1)]


def test_only_the_places_that_differ_race() -> None:
    found = races(
        "0: st.shared.v4.u32 [s], {1, 2, 3, 4}",
        "32: st.shared.v4.u32 [s], {1, 2, 9, 4}",
        "0: ld.shared.u8 %x0, [s+60]",  # bytes are told apart
    )
    assert [(each.kind, each.offset, each.count) for each in found] == [("WAW", 8, 1)]


# --- Lanes of one instruction --------------------------------------------------------------------


def test_lanes_that_store_different_values_at_once_race() -> None:
    found = races("and.b32 %x0, %t, 1; st.shared.v2.u32 [s], {5, %x0}")
    assert [(each.kind, each.offset, each.count) for each in found] == [("WAW", 4, 32)]
    assert (found[0].at, found[0].other) == ((1, 0, 0), (1, 0, 63))
    assert races("st.shared.v2.u32 [s], {5, 6}") == []


def test_lanes_that_store_the_same_value_race_where_others_have_read() -> None:
    found = races(
        "3: ld.shared.u32 %x0, [s]", "4-6: st.shared.u32 [s], 5", "st.shared.u32 [s+4], 1"
    )
    assert sorted(kinds(found)) == [("WAR", 2, 1), ("WAW", 2, 2)]


def test_elements_of_neighbours_are_told_apart() -> None:
    start = "mul.lo.u32 %x1, %t, 8; mov.u32 %x2, s; add.u32 %x2, %x2, %x1"
    found = races(
        start,
        "0-3: st.shared.v2.u32 [%x2], {%t, %t}",
        "32: ld.shared.u32 %x0, [s+20]",
    )
    assert [(each.kind, each.offset, each.count) for each in found] == [("RAW", 20, 1)]
    assert found[0].other == (2, 0, 2)


# --- Volatile flags behind fences ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "races_at_the_flag"),
    [
        (["0-1: membar.gl", "0-1: st.volatile.shared.u32 [s+16], 1"], False),
        (["0-1: st.volatile.shared.u32 [s+16], 1"], True),
        (["5: membar.gl", "0-1: st.volatile.shared.u32 [s+16], 1"], True),
        (["0: membar.gl", "0-1: st.volatile.shared.u32 [s+16], 1"], True),
        (["0-1: membar.cta", "0-1: st.volatile.shared.u32 [s+16], 1"], False),
        (
            [
                "0-1: membar.gl",
                "1: st.shared.u32 [s+8], 1",
                "0-1: st.volatile.shared.u32 [s+16], 1",
            ],
            True,  # what thread 1 has stored since its fence is not behind it
        ),
        (
            [
                "1: st.shared.u32 [s+8], 1",
                "0-1: membar.gl",
                "0-1: st.volatile.shared.u32 [s+16], 1",
            ],
            False,
        ),
    ],
)
def test_a_volatile_store_is_a_flag_right_behind_a_fence_of_every_thread(
    lines: list[str], races_at_the_flag: bool
) -> None:
    found = races(*lines, "32: ld.volatile.shared.u32 %x0, [s+16]")
    assert ("RAW" in {each.kind for each in found}) == races_at_the_flag


def test_volatile_races_with_plain_accesses_and_not_with_atomics() -> None:
    load = "32: ld.volatile.shared.u32 %x0, [s]"
    assert kinds(races("0: st.shared.u32 [s], 1", load)) == [("RAW", 2, 1)]
    assert kinds(races("0: st.volatile.shared.u32 [s], 1", load)) == [("RAW", 2, 1)]
    assert races("0: red.shared.add.u32 [s], 1", load) == []
    assert kinds(races("0: red.shared.add.u32 [s], 1", "32: ld.shared.u32 %x0, [s]")) == [
        ("RAW", 2, 1)
    ]


# --- Release and acquire -------------------------------------------------------------------------

PUBLISH = "0: st.global.u32 [%a0], 7"
COLLECT = "32-40: ld.global.u32 %x1, [%a0]"


@pytest.mark.parametrize("scope", ["gpu", "cta"])
@pytest.mark.parametrize("read", ["ld.acquire.{}.global.u32 %x0, [%a0+8]"])
def test_a_release_needs_no_fence(scope: str, read: str) -> None:
    flag = f"0: st.release.{scope}.global.u32 [%a0+8], 1"
    assert races(PUBLISH, flag, f"32-40: {read.format(scope)}", COLLECT) == []
    relaxed = flag.replace("release", "relaxed")
    assert [
        e[0] for e in kinds(races(PUBLISH, relaxed, f"32-40: {read.format(scope)}", COLLECT))
    ] == ["RAW"]


def test_every_lane_acquires_by_its_own_load() -> None:
    lines = [PUBLISH, "0: membar.gl", "0: st.volatile.global.u32 [%a0+8], 1"]
    lines.append("32-36: ld.volatile.global.u32 %x0, [%a0+8]")
    found = races(*lines, COLLECT)
    assert [(each.kind, each.count, each.at) for each in found] == [("RAW", 4, (5, 0, 37))]


def test_every_lane_releases_what_it_has_stored() -> None:
    lines = ["mul.wide.u32 %a1, %t, 4; add.u64 %a1, %a1, %a0"]
    lines += [
        "0-3: st.global.u32 [%a1], 7",
        "0-3: membar.gl",
        "0-3: red.global.add.u32 [%a0+64], 1",
    ]
    lines += ["40: atom.global.add.u32 %x0, [%a0+64], 0"]
    assert races(*lines, *(f"40: ld.global.u32 %x1, [%a0+{4 * n}]" for n in range(4))) == []


def test_what_is_for_the_block_is_not_for_other_blocks() -> None:
    # The block that runs first publishes, the other one collects.
    first = "mov.u32 %x3, %ctaid.x; setp.eq.u32 %q, %x3, 0; @!%q bra OTHER"
    for scope, found in (("gpu", []), ("cta", [("WAW", 5, 3), ("RAW", 6, 2)])):
        lines = [first, PUBLISH, f"0: red.release.{scope}.global.add.u32 [%a0+8], 1", "ret"]
        lines.append(f"OTHER:atom.acquire.{scope}.global.add.u32 %x0, [%a0+8], 1")
        lines.append("ld.global.u32 %x1, [%a0]")
        assert kinds(races(*lines, grid=2, threads=32)) == found


# --- Atomic accesses that are none for each other ------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        # Whether they run at once or one after the other.
        ("red.global.cta.add.u32 [%a0], 1", "", [("WAW", 1, 1)]),
        ("red.global.add.u32 [%a0], 1", "", []),
        ("red.shared.cta.add.u32 [s], 1", "", []),
        ("red.global.add.u32 [%a0], 1", "ld.relaxed.gpu.global.u32 %x0, [%a0]", []),
    ],
)
def test_an_atomic_of_block_scope_is_none_for_other_blocks(
    first: str, second: str, found: list[tuple[str, int, int]], chunk: int
) -> None:
    lines = [first] + [second] * bool(second)
    assert kinds(races(*lines, grid=4, chunk=chunk))[:1] == found


def test_an_atomic_of_block_scope_races_once_an_atomic_of_another_block_does() -> None:
    lines = ["mov.u32 %x3, %ctaid.x; setp.eq.u32 %q, %x3, 0; @!%q bra OTHER"]
    lines += ["0: red.global.cta.add.u32 [%a0], 1; ret", "OTHER:red.global.add.u32 [%a0], 1"]
    (found,) = races(*lines, grid=2)
    assert (found.kind, found.count, found.offset) == ("WAW", 64, 0)


@pytest.mark.parametrize(
    ("load", "found"),
    [
        ("ld.relaxed.gpu.shared.u32 %x0, [s]", [("RAW", 3, 1), ("RAW", 3, 2)]),
        ("ld.volatile.shared.v2.u16 {%x0, %x1}, [s]", []),
        ("atom.shared.or.b32 %x0, [s], 0", [("WAW", 3, 1), ("WAW", 3, 2)]),
        # Narrow atomics are loops around a swap of the word.
        ("atom.shared.cas.b32 %x0, [s], 1, 2", []),
    ],
)
def test_strong_accesses_of_other_sizes_race(load: str, found: list[tuple[str, int, int]]) -> None:
    lines = [f"{2 * n}: st.relaxed.gpu.shared.u16 [s+{2 * n}], 1" for n in range(2)]
    assert kinds(races(*lines, f"32: {load}")) == found


# --- Reads whose values go into a shuffle or a vote ----------------------------------------------

# Each lane reads what its neighbour has written behind a barrier.
EXCHANGE = ["shl.b32 %x0, %t, 2; add.u32 %x0, %x0, s; xor.b32 %x1, %x0, 4; bar.sync 0"]
READ, WRITE = "ld.shared.u32 %x2, [%x1]", "st.shared.u32 [%x0], %t"


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("shfl.sync.bfly.b32 %x3, %x2, 1, 31, -1", 0),
        ("add.u32 %x4, %x2, 1; shfl.sync.bfly.b32 %x3, %x4, 1, 31, -1", 0),
        ("setp.gt.u32 %q, %x2, 0; vote.sync.any.pred %p, %q, -1", 0),
        # Lanes of the same half only; of each pair in the same quarter, but not in the mask.
        ("mov.u32 %x4, 0xff; shfl.sync.bfly.b32 %x3, %x2, 1, 31, %x4", 0),
        ("", 16),
        ("shfl.sync.bfly.b32 %x3, %t, 1, 31, -1", 16),  # another value
        ("mov.u32 %x4, 0x55; @%q shfl.sync.bfly.b32 %x3, %x2, 1, 31, %x4", 8),  # other lanes
    ],
)
def test_a_read_whose_value_was_exchanged_comes_before_later_writes(
    between: str, found: int
) -> None:
    few = between.startswith("mov")
    guard = "and.b32 %x5, %t, 1; setp.eq.u32 %q, %x5, 0"
    lines = [*EXCHANGE, guard, READ, *([between] if between else []), WRITE]
    threads = 8 if few else 16
    races_found = races(*lines, threads=threads)
    assert [(each.kind, each.count) for each in races_found] == [("WAR", found)] * bool(found)


def test_a_write_before_a_shuffle_is_not_ordered_before_a_read_behind_it() -> None:
    found = races(*EXCHANGE, WRITE, "shfl.sync.bfly.b32 %x3, %t, 1, 31, -1", READ, threads=16)
    assert [(each.kind, each.count) for each in found] == [("RAW", 16)]


def test_an_exchange_orders_the_lanes_of_a_warp_alone() -> None:
    lines = ["ld.shared.u32 %x2, [s]", "shfl.sync.bfly.b32 %x3, %x2, 1, 31, -1"]
    assert races(*lines, "7: st.shared.u32 [s], 1", threads=32) == []
    (found,) = races(*lines, "39: st.shared.u32 [s], 1", threads=64)
    assert found.kind == "WAR"


# --- Barriers at which some threads only arrive --------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("0: st.shared.u32 [s], 7", "0-31: bar.arrive 1, 64", "32-63: bar.sync 1, 64"), []),
        # What comes behind the arrival is not ordered.
        (
            ("0-31: bar.arrive 1, 64", "0: st.shared.u32 [s], 7", "32-63: bar.sync 1, 64"),
            [("RAW", 4, 2)],
        ),
        # The arriving threads learn nothing.
        (("32: st.shared.u32 [s], 7", "0-31: bar.arrive 1, 64", "32-63: bar.sync 1, 64"), []),
    ],
)
def test_an_arrival_publishes_what_lies_before_it(
    lines: tuple[str, ...], found: list[tuple[str, int, int]]
) -> None:
    assert kinds(races(*lines, "40: ld.shared.u32 %x0, [s]")) == found


def test_an_arrival_acquires_nothing() -> None:
    lines = "32: st.shared.u32 [s], 7", "0-31: bar.arrive 1, 64", "32-63: bar.sync 1, 64"
    assert kinds(races(*lines, "3: ld.shared.u32 %x0, [s]")) == [("RAW", 4, 1)]


# --- The read-only cache -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("0: st.global.u32 [%a0], 7", "bar.sync 0", "ld.global.nc.u32 %x0, [%a0]"), 64),
        (("0: st.global.u32 [%a0], 7", "0: ld.global.nc.u32 %x0, [%a0]"), 1),
        (("0: red.global.add.u32 [%a0], 7", "bar.sync 0", "ld.global.nc.u16 %x0, [%a0+2]"), 64),
        (("0: st.global.u32 [%a0], 7", "bar.sync 0", "ld.global.nc.u32 %x0, [%a0+4]"), 0),
        (("0: st.global.u32 [%a0], 7", "bar.sync 0", "ld.global.u32 %x0, [%a0]"), 0),
        # It reads what was there before the launch.
        (("ld.global.nc.u32 %x0, [%a0]", "bar.sync 0", "0: st.global.u32 [%a0], 7"), 0),
    ],
)
def test_what_a_launch_wrote_is_stale_in_the_read_only_cache(
    lines: tuple[str, ...], found: int
) -> None:
    stale = races(*lines)
    assert [(each.kind, each.count) for each in stale] == [("stale read", found)] * bool(found)
    assert all((each.at[0], each.other[0]) == (len(lines), 1) for each in stale if each.other)


def test_an_unordered_read_of_the_read_only_cache_is_a_race_alone() -> None:
    lines = "0: st.global.u32 [%a0], 7", "32: ld.global.nc.u32 %x0, [%a0]"
    assert kinds(races(*lines)) == [("RAW", 2, 1)]


def test_the_threads_of_the_largest_blocks_are_told_apart() -> None:
    lines = ["600: st.shared.u32 [s], 1", "1000: ld.shared.u32 %x0, [s]"]
    found = races(*lines, threads=1024, grid=2)
    assert [(each.at, each.other, each.count) for each in found] == [((2, 0, 1000), (1, 0, 600), 2)]


# --- Asynchronous copies -------------------------------------------------------------------------

COPY = "cp.async.ca.shared.global [s], [%a0], 4"
TO_OWN = "mul.lo.u32 %x1, %t, 4; mov.u32 %x2, s; add.u32 %x2, %x2, %x1"


def test_a_copy_is_on_its_way_even_for_its_own_thread() -> None:
    assert kinds(races(f"0: {COPY}", "bar.sync 0", "0: ld.shared.u32 %x0, [s]")) == [("RAW", 3, 1)]
    waited = races(f"0: {COPY}", "0: cp.async.wait_all", "0: ld.shared.u32 %x0, [s]")
    assert waited == []
    waited = races(f"5: {COPY}", "5: cp.async.wait_all", "32: ld.shared.u32 %x0, [s]")
    assert [(each.kind, each.other) for each in waited] == [("RAW", (1, 0, 5))]
    waited = races(f"0: {COPY}", "0: cp.async.wait_all", "bar.sync 0", "32: ld.shared.u32 %x0, [s]")
    assert waited == []


def test_each_thread_waits_for_its_own_copies() -> None:
    copies = "0-3: cp.async.ca.shared.global [%x2], [%a0], 4"
    found = races(TO_OWN, copies, "0-2: cp.async.wait_all", "0-3: ld.shared.u32 %x0, [%x2]")
    assert [(each.kind, each.offset, each.count) for each in found] == [("RAW", 12, 1)]


def test_what_was_stored_over_a_copy_stays_a_store() -> None:
    lines = [f"0: {COPY}", "bar.sync 0", "1: st.shared.u32 [s], 5", "bar.sync 0"]
    lines += ["0: cp.async.wait_all", "1: ld.shared.u32 %x0, [s]"]
    assert kinds(races(*lines)) == [("WAW", 3, 1)]


def test_copies_of_several_instructions_keep_their_lines() -> None:
    lines = [f"0: {COPY}", "0: cp.async.ca.shared.global [s+4], [%a0], 4", "0: cp.async.wait_all"]
    found = races(*lines, "32: ld.shared.u32 %x0, [s]", "32: ld.shared.u32 %x0, [s+4]")
    assert kinds(found) == [("RAW", 4, 1), ("RAW", 5, 2)]


def test_two_copies_to_one_place_race() -> None:
    assert kinds(races("0-1: cp.async.ca.shared.global [s], [%a0], 4")) == []  # the same bytes
    assert kinds(races(f"0: {COPY}", f"32: {COPY}")) == []
    found = races("1: st.global.u32 [%a0+4], 9", f"0: {COPY}", f"1: {COPY.replace('%a0', '%a0+4')}")
    assert kinds(found) == [("WAW", 3, 2)]


# --- Who meets at a barrier what another one has acquired ----------------------------------------

RELEASE = [PUBLISH, "0: membar.gl", "0: red.global.add.u32 [%a0+8], 1"]
ACQUIRE = "64: atom.global.add.u32 %x0, [%a0+8], 0"


@pytest.mark.parametrize(
    ("barrier", "readers", "racing"),
    [
        ("64-95: bar.warp.sync -1", "64-95", 0),
        ("64-71: bar.warp.sync 0xff", "64-95", 24),
        ("64-127: bar.sync 1, 64", "64-127", 0),
        ("bar.sync 0", "64-127", 0),
        ("0-63: bar.sync 1, 64", "64-127", 63),
        ("mov.u32 %x1, 0", "64-127", 63),
    ],
)
def test_those_who_wait_for_a_thread_know_what_it_has_acquired(
    barrier: str, readers: str, racing: int
) -> None:
    lines = [*RELEASE, ACQUIRE, barrier, f"{readers}: ld.global.u32 %x1, [%a0]"]
    assert sum(each.count for each in races(*lines, threads=128)) == racing


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_barriers_of_warps_order_the_threads_of_every_block(chunk: int) -> None:
    lines = ["3: st.shared.u32 [s], 1", "0-31: bar.warp.sync -1", "4: ld.shared.u32 %x0, [s]"]
    assert races(*lines, grid=3, chunk=chunk) == []
    (found,) = races(*lines, "40: ld.shared.u32 %x0, [s]", grid=3, chunk=chunk)
    assert (found.count, found.at, found.other) == (3, (4, 0, 40), (1, 0, 3))


def test_a_read_is_kept_though_half_of_another_warp_reads_later() -> None:
    lines = [
        "32: ld.shared.u32 %x0, [s]",
        "0: ld.shared.u32 %x0, [s]",
        "16: ld.shared.u32 %x0, [s]",
    ]
    lines += ["0-31: bar.warp.sync -1", "1: st.shared.u32 [s], 1"]
    assert kinds(races(*lines)) == [("WAR", 5, 1)]


def test_what_is_released_after_a_read_of_the_flag_is_not_acquired() -> None:
    flag = "st.volatile.global.u32 [%a0+8], 1"
    lines = ["1: membar.gl", f"1: {flag}", "32: ld.volatile.global.u32 %x0, [%a0+8]"]
    lines += [PUBLISH, "0: membar.gl", f"0: {flag}"]
    assert kinds(races(*lines, "32: ld.global.u32 %x1, [%a0]")) == [("RAW", 7, 4)]
    again = "32: ld.volatile.global.u32 %x0, [%a0+8]"
    assert races(*lines, again, "32: ld.global.u32 %x1, [%a0]") == []


@pytest.mark.parametrize("barrier", ["mov.u32 %x1, 0", "32-63: bar.warp.sync -1"])
def test_an_earlier_read_by_a_neighbour_is_kept(barrier: str) -> None:
    lines = [barrier, "0: ld.shared.u32 %x0, [s]", "1: ld.shared.u32 %x0, [s]"]
    assert kinds(races(*lines, "1: st.shared.u32 [s], 1")) == [("WAR", 4, 2)]


def test_a_plain_load_of_a_flag_acquires_nothing() -> None:
    found = races(
        *RELEASE, "64: ld.global.u32 %x0, [%a0+8]", "64: ld.global.u32 %x1, [%a0]", threads=96
    )
    assert kinds(found) == [("RAW", 4, 3), ("RAW", 5, 1)]


def test_a_barrier_orders_those_who_reach_it_though_others_have_ended() -> None:
    lines = ["40-63: ret", "0: st.shared.u32 [s], 1", "bar.sync 0", "32: ld.shared.u32 %x0, [s]"]
    assert races(*lines) == []


@pytest.mark.parametrize("place", ["shared.u32 {}[s]", "global.u32 {}[%a0]"])
def test_a_thread_that_comes_back_with_others_hides_none_of_them(place: str) -> None:
    store, load = f"31: st.{place.format('')}, 1", f"0-31: ld.{place.format('%x0, ')}"
    found = races(store, load)
    assert [(each.kind, each.count, each.at) for each in found] == [("RAW", 31, (2, 0, 0))]


def test_a_read_by_another_warp_is_kept_where_warps_have_barriers_with_a_number() -> None:
    lines = [f"{thread}: ld.shared.u32 %x0, [s]" for thread in (32, 0, 1)]
    found = races(*lines, "0-31: bar.sync 1, 32", "2: st.shared.u32 [s], 1")
    assert kinds(found) == [("WAR", 5, 1)]


def test_the_same_value_is_compared_in_the_memory_of_each_block() -> None:
    assert races("0: st.shared.u32 [s], 7", "32: st.shared.u32 [s], 7", grid=3) == []
