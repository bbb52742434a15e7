"""Which barriers open, and who is told to be missing: small programs."""

import pytest
from ptx import Mistake, check, kernel, numbered

HEAD = ".reg .pred %p, %q, %r; .reg .b32 %t, %l, %x, %y; mov.u32 %t, %tid.x; and.b32 %l, %t, 31; "
HEAD += "mov.u32 %x, %t; setp.lt.u32 %p, %l, 10; setp.lt.u32 %q, %l, 20; "


def missed(body: str, threads: int = 32, grid: int = 1) -> list[Mistake]:
    """What synccheck finds; the first line of the body is line 1."""
    text = kernel(numbered(HEAD + body.strip() + "\nret;"))
    return check(text, {}, block=threads, grid=grid).of("synccheck")


def told(found: list[Mistake]) -> list[tuple[str, int, object, object]]:
    """Kind and count, and line and thread of both."""
    return [
        (
            each.kind,
            each.count,
            (each.at[0], each.at[2]),
            None if each.other is None else (each.other[0], each.other[2]),
        )
        for each in found
    ]


@pytest.mark.parametrize(
    ("barrier", "diverges"),
    [
        ("bar.sync 0;", True),
        ("barrier.sync.aligned 0;", True),
        ("barrier.sync 0;", False),
    ],
)
def test_an_aligned_barrier_is_one_instruction_for_all(barrier: str, diverges: bool) -> None:
    arms = f"@%r bra LOW;\n{barrier}\nbra END;\nLOW: {barrier}\nEND: mov.u32 %x, 0;"
    body = f"setp.lt.u32 %r, %t, 32; {arms}"
    first = ("divergent barrier", 32, (2, 32), (4, 0))
    second = ("divergent barrier", 32, (4, 0), (6, 32))
    assert told(missed(body, 64)) == [first, second][: 2 * diverges]


def test_a_thread_that_ends_without_a_branch_ends_where_its_exit_is() -> None:
    # The last instruction is a branch to that exit, which these threads have not taken.
    body = "setp.lt.u32 %r, %t, 32; @%r bra WAIT;\nEND: ret;\nWAIT: bar.sync 0;\nbra END;"
    text = kernel(numbered(HEAD + body))
    found = check(text, {}, block=64).of("synccheck")
    assert told(found) == [("barrier not reached", 32, (3, 0), (2, 32))]


ELSEWHERE = """@!%q bra HIGH; @!%p bra MIDDLE;
shfl.sync.down.b32 %x, %t, 1, 31, -1;
bra END;
MIDDLE: shfl.sync.up.b32 %x, %t, 1, 0, -1;
bra END;
HIGH: shfl.sync.bfly.b32 %x, %t, 1, 31, -1;
END: mov.u32 %y, 0;"""


def test_of_two_groups_elsewhere_each_is_told_where_it_is() -> None:
    assert told(missed(ELSEWHERE)) == [
        ("invalid mask", 22, (2, 0), (4, 10)),
        ("invalid mask", 12, (4, 10), (6, 20)),
    ]
    turned = ELSEWHERE.replace("bra HIGH; @!%p bra MIDDLE", "bra MIDDLE; @!%p bra HIGH")
    assert told(missed(turned)) == [
        ("invalid mask", 22, (2, 0), (6, 10)),
        ("invalid mask", 10, (4, 20), (6, 10)),
    ]


WARP = "shr.u32 %y, %t, 5; setp.eq.u32 %p, %y, 1; setp.eq.u32 %q, %y, 2; "
CONSUMER = (
    WARP
    + """@%p bra ONE; @%q bra TWO;
{0}
bra END;
ONE: bar.sync 2, 64; {1}
bra END;
TWO: bar.sync 2, 64;
END: bar.sync 0;"""
)


@pytest.mark.parametrize("grid", [1, 2])
@pytest.mark.parametrize("arms", [("bar.sync 1, 64;", "bar.sync 1, 64;"), ("mov.u32 %x, 0;", "")])
def test_a_barrier_opens_while_others_wait_at_lower_numbers(
    arms: tuple[str, str], grid: int
) -> None:
    assert missed(CONSUMER.format(*arms), 96, grid) == []


def test_a_barrier_of_some_is_waited_for_in_vain() -> None:
    found = missed(CONSUMER.format("bar.sync 1, 64;", "mov.u32 %x, 0;"), 96, 2)
    assert told(found) == [("divergent barrier", 64, (2, 0), (7, 32))]


IN_BLOCK_ONE = "mov.u32 %y, %ctaid.x; setp.eq.u32 %r, %y, 1; "


def test_each_block_has_its_own_barriers() -> None:
    body = IN_BLOCK_ONE + "setp.ge.and.u32 %p, %t, 40, %r; @%p ret;\nbar.sync 0;\nbar.sync 0;"
    found = missed(body, 64, 3)
    assert told(found) == [
        ("barrier not reached", 24, (2, 0), (1, 40)),
        ("barrier not reached", 24, (3, 0), (1, 40)),
    ]
    assert {each.at[1] for each in found} == {1}


def test_of_two_blocks_that_diverge_each_is_counted() -> None:
    body = "setp.ge.u32 %p, %t, 40; @%p bra END;\nbar.sync 0;\nEND: bar.sync 0;\nmov.u32 %y, 0;"
    found = missed(body, 64, 2)
    assert told(found)[0] == ("divergent barrier", 48, (2, 0), (3, 40))


IN_WARP_ONE = "setp.ge.u32 %r, %t, 32; setp.ge.and.u32 %r, %l, 10, %r; "


def test_each_warp_has_its_own_syncwarp() -> None:
    body = IN_WARP_ONE + "@%r bra END;\nbar.warp.sync -1;\nEND: bar.sync 0;\nmov.u32 %y, 0;"
    assert told(missed(body, 64)) == [("invalid mask", 22, (2, 32), (3, 42))]


def test_a_syncwarp_names_its_own_lane() -> None:
    body = "setp.ge.u32 %r, %t, 32; selp.b32 %x, 0x3ff, -1, %r;\nbar.warp.sync %x;"
    assert told(missed(body, 64)) == [("invalid mask", 22, (2, 42), None)]


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        ("-1", [("invalid mask", 44, (2, 32), (4, 42))]),
        ("0xfffffc00", []),  # who waits for these no more need not come
    ],
)
def test_lanes_of_each_warp_compute_together(mask: str, found: list[object]) -> None:
    body = (
        IN_WARP_ONE
        + f"""@%r bra OTHER;
      shfl.sync.down.b32 %x, %t, 1, 31, -1;
      bra END;
      OTHER: shfl.sync.up.b32 %x, %t, 1, 0, {mask};
      END: mov.u32 %y, 0;"""
    )
    assert told(missed(body, 96)) == found


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        ("%y", [("invalid mask", 22, (2, 32), (5, 42))]),  # it may name anyone
        ("-1", [("invalid mask", 22, (2, 32), (5, 42))]),
        ("0xfffffc00", []),
    ],
)
def test_lanes_that_wait_for_others_later_are_missed(mask: str, found: list[object]) -> None:
    body = (
        IN_WARP_ONE
        + f"""mov.u32 %y, 0xfffffc00; @%r bra OTHER;
      shfl.sync.down.b32 %x, %t, 1, 31, -1;
      barrier.sync 0; ret;
      OTHER: barrier.sync 0;
      shfl.sync.up.b32 %x, %t, 1, 0, {mask};"""
    )
    assert told(missed(body, 64)) == found


def test_a_shuffle_names_its_own_lane_in_every_warp() -> None:
    body = IN_WARP_ONE + "selp.b32 %y, 0x3ff, -1, %r;\nshfl.sync.down.b32 %x, %t, 1, 31, %y;"
    found = told(missed(body, 64))
    assert ("invalid mask", 22, (2, 42), None) in found


def test_threads_that_end_need_not_come() -> None:
    body = IN_WARP_ONE + "@%r ret;\nshfl.sync.down.b32 %x, %t, 1, 31, -1;\nbar.warp.sync -1;"
    assert missed(body, 64) == []
    assert missed("bar.warp.sync -1;\nbar.sync 0;", 50, 2) == []


def test_who_falls_off_the_end_ends_at_the_last_instruction() -> None:
    body = "setp.lt.u32 %p, %t, 40;\n@%p bar.sync 0;\nmov.u32 %x, 0;\nmov.u32 %y, 0;"
    found = check(kernel(numbered(HEAD + body)), {}, block=64).of("synccheck")
    assert told(found) == [("barrier not reached", 24, (2, 0), (4, 40))]


def test_threads_that_ended_for_two_reasons_have_not_reached_a_barrier() -> None:
    body = """setp.lt.u32 %p, %t, 16; @%p bra LOW; setp.ge.u32 %q, %t, 40; @%q bra HIGH; ret;
      LOW: bar.sync 0;
      ret;
      HIGH: bar.sync 0;"""
    assert told(missed(body, 64)) == [
        ("divergent barrier", 24, (2, 0), (4, 40)),
        ("barrier not reached", 40, (4, 40), (3, 0)),
    ]


def test_lanes_that_are_no_threads_are_not_missing() -> None:
    body = "setp.ge.u32 %p, %t, 40; @%p ret;\nbar.sync 0;"
    assert told(missed(body, 50)) == [("barrier not reached", 10, (2, 0), (1, 40))]


ARRIVES = """@%r bra WAIT;
bar.arrive 1, 64;
ret;
WAIT: bar.sync 1, COUNT;"""


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (64, []),
        # The two warps that are there are one too few.
        (96, [("barrier not reached", 32, (4, 32), (3, 0))]),
    ],
)
def test_a_warp_that_only_arrives_is_counted(count: int, found: list[object]) -> None:
    body = "setp.ge.u32 %r, %t, 32; " + ARRIVES.replace("COUNT", str(count))
    assert told(missed(body, threads=64)) == found


def test_an_arrival_counts_once() -> None:
    body = "setp.ge.u32 %r, %t, 32; " + ARRIVES.replace("COUNT", "64") + "\nbar.sync 1, 64;"
    assert told(missed(body, threads=64)) == [("barrier not reached", 32, (5, 32), (3, 0))]
