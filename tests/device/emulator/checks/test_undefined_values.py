"""How what a shuffle reads from a lane that is gone spreads, and where it is used."""

import numpy as np
import pytest
from ptx import Mistake, check, kernel, numbered

HEAD = """.reg .pred %p<9>; .reg .b32 %t, %l, %v, %x, %y, %z; .reg .b64 %a<4>, %d;
.shared .align 4 .b8 s[256]; .local .align 4 .b8 loc[16];
ld.param.u64 %a0, [a]; mov.u32 %t, %tid.x; and.b32 %l, %t, 31; mul.lo.u32 %v, %t, 4;
setp.eq.u32 %p7, %l, 19; setp.eq.u32 %p6, %l, 3;
setp.ge.u32 %p8, %l, 20;
@%p8 ret;
shfl.sync.down.b32 %x|%p0, %v, 1, 31, -1;
""".replace("\n", " ")
"""Of each warp, lane 19 reads from the 20th, which has ended: only its `%x` is undefined."""


def undefined(body: str, threads: int = 32) -> list[Mistake]:
    text = numbered("\n".join([HEAD, *body.split("\n"), "ret;"]))
    found = check(kernel(text, ".u64 a"), {"a": np.zeros(64, np.uint32)}, block=threads)
    return [each for each in found.mistakes if each.kind == "inactive source lane"]


STORE = "st.global.u32 [%a0], {};"
USED = [Mistake("synccheck", "inactive source lane", "", -1, 0, 1, (1, 0, 19), (1, 0, 20))]


@pytest.mark.parametrize(
    ("body", "used"),
    [
        (STORE.format("%v"), False),
        (STORE.format("%x"), True),
        ("@%p6 st.global.u32 [%a0], %x;", False),
        ("@%p7 st.global.u32 [%a0], %x;", True),
        ("red.global.add.u32 [%a0], %x;", True),
        ("atom.global.add.u32 %y, [%a0], %x;", True),
        ("st.shared.u32 [s], %x;", True),
        ("st.local.u32 [loc], %x;", False),
        ("mov.u64 %a1, s; cvta.shared.u64 %a1, %a1; st.u32 [%a1], %x;", True),
        ("cvt.u64.u32 %d, %x; add.u64 %a1, %a0, %d; ld.global.u32 %y, [%a1];", True),
        ("mov.b32 %y, %x; ld.shared.u32 %z, [%y];", True),
        ("mov.b32 %y, %x; st.local.u32 [%y], %v;", True),
        ("add.u32 %y, %v, %x; " + STORE.format("%y"), True),
        ("mov.u32 %x, 5; " + STORE.format("%x"), False),
        ("@%p6 mov.u32 %x, 5; " + STORE.format("%x"), True),
        ("@%p7 mov.u32 %x, 5; " + STORE.format("%x"), False),
        ("ld.shared.u32 %x, [s]; " + STORE.format("%x"), False),
        # A predicate that is undefined
        ("setp.gt.u32 %p1, %x, 5; @%p1 st.global.u32 [%a0], %v;", True),
        ("setp.gt.u32 %p1, %x, 5; @%p1 mov.u32 %y, 1;", True),
        ("setp.gt.u32 %p1, %x, 5; @%p1 bra END; mov.u32 %y, 1;\nEND: mov.u32 %y, 2;", True),
        ("setp.gt.u32 %p1, %x, 5; not.pred %p1, %p1;", False),
        # Of a choice, what is not chosen does not count
        ("selp.u32 %y, 1, 2, %p7; " + STORE.format("%y"), False),
        ("selp.u32 %y, %x, 2, %p7; " + STORE.format("%y"), True),
        ("selp.u32 %y, 2, %x, %p7; " + STORE.format("%y"), False),
        ("selp.u32 %y, %x, 2, %p6; " + STORE.format("%y"), False),
        ("selp.u32 %y, 2, %x, %p6; " + STORE.format("%y"), True),
        ("setp.gt.u32 %p1, %x, 5; selp.u32 %y, 1, 2, %p1; " + STORE.format("%y"), True),
        ("setp.gt.u32 %p1, %x, 5; selp.u32 %y, %v, %z, %p1; " + STORE.format("%y"), True),
        # Bits that settle the result
        ("and.b32 %y, %x, 0; " + STORE.format("%y"), False),
        ("and.b32 %y, 0, %x; " + STORE.format("%y"), False),
        ("and.b32 %y, %x, 1; " + STORE.format("%y"), True),
        ("or.b32 %y, %x, 0; " + STORE.format("%y"), True),
        ("or.b32 %y, %x, -1; " + STORE.format("%y"), False),
        ("or.b32 %y, -1, %x; " + STORE.format("%y"), False),
        ("xor.b32 %y, %x, 0; " + STORE.format("%y"), True),
        ("sub.u32 %x, %x, 76; and.b32 %y, %x, %v; " + STORE.format("%y"), True),
        ("and.b32 %y, %x, %x; " + STORE.format("%y"), True),
        ("setp.gt.and.u32 %p1, %x, 5, %p6; @%p1 st.global.u32 [%a0], 1;", False),
        ("setp.gt.and.u32 %p1, %x, 5, %p7; @%p1 st.global.u32 [%a0], 1;", True),
        ("setp.gt.or.u32 %p1, %x, 5, %p7; @%p1 st.global.u32 [%a0], 1;", False),
        ("setp.gt.or.u32 %p1, %x, 5, %p6; @%p1 st.global.u32 [%a0], 1;", True),
        ("setp.gt.and.u32 %p1, %x, 0, %p7; @%p1 st.global.u32 [%a0], 1;", True),
        # A shuffle moves such a value, and is led by it
        ("shfl.sync.idx.b32 %y, %x, 19, 31, 0xfffff; @%p6 st.global.u32 [%a0], %y;", True),
        ("shfl.sync.idx.b32 %y, %x, 18, 31, 0xfffff; " + STORE.format("%y"), False),
        ("shfl.sync.idx.b32 %y, %v, %x, 31, 0xfffff;", True),
        ("shfl.sync.idx.b32 %x, %v, 3, 31, 0xfffff; " + STORE.format("%x"), False),
        ("@%p0 st.global.u32 [%a0], %v;", False),
        ("shfl.sync.idx.b32 %y, %v, 3, 31, -1; " + STORE.format("%y"), False),
    ],
)
def test_a_value_is_used_where_others_see_it(body: str, used: bool) -> None:
    assert undefined(body) == (USED if used else [])


def test_each_warp_has_its_own_lanes() -> None:
    (mistake,) = undefined("setp.ge.u32 %p1, %t, 32; @%p1 st.global.u32 [%a0], %x;", 64)
    assert (mistake.count, mistake.at, mistake.other) == (1, (1, 0, 51), (1, 0, 52))
    (mistake,) = undefined(STORE.format("%x"), 64)
    assert (mistake.count, mistake.at, mistake.other) == (2, (1, 0, 19), (1, 0, 20))
    moved = "shfl.sync.idx.b32 %y, %x, 19, 31, 0xfffff; setp.eq.u32 %p1, %t, 35; "
    (mistake,) = undefined(moved + "@%p1 st.global.u32 [%a0], %y;", 64)
    assert (mistake.count, mistake.at, mistake.other) == (1, (1, 0, 51), (1, 0, 52))


def test_a_block_that_ends_within_a_warp_has_no_lane_to_read() -> None:
    missing, gone = undefined(STORE.format("%x"), 52)
    assert (gone.count, gone.at, gone.other) == (1, (1, 0, 19), (1, 0, 20))
    assert (missing.count, missing.at, missing.other) == (1, (1, 0, 51), None)


def test_of_several_uses_one_is_told_and_of_several_shuffles_each() -> None:
    again = "shfl.sync.down.b32 %y, %v, 1, 31, 0xfffff;"
    body = f"{STORE.format('%x')} {STORE.format('%x')}\n{again} {STORE.format('%y')}"
    first, second = undefined(body)
    assert (first, second.count, second.at) == (USED[0], 1, (3, 0, 19))
    joined = undefined(f"{again}\nadd.u32 %z, %y, %x; {STORE.format('%z')}")
    assert joined == USED  # the earlier one


def test_values_that_two_arms_bring_to_one_shuffle_keep_their_marks() -> None:
    body = """shfl.sync.idx.b32 %y, %x, 19, 31, 0xfffff; setp.lt.u32 %p1, %l, 8; @%p1 bra LOW;
      shfl.sync.bfly.b32 %z, %y, 1, 31, 0xfffff; bra END;
      LOW: mov.b32 %x, %y; shfl.sync.bfly.b32 %z, %x, 1, 31, 0xfffff;
      END: st.global.u32 [%a0], %z;"""
    (mistake,) = undefined(body)
    assert (mistake.count, mistake.at) == (20, (1, 0, 19))


LOADED = """.reg .pred %p<9>; .reg .b32 %t, %x, %y, %z; .reg .b64 %a<4>, %s;
.local .align 8 .b8 own[16]; .shared .align 4 .b8 s[256];
ld.param.u64 %a0, [a]; mov.u32 %t, %tid.x; setp.lt.u32 %p7, %t, 4; setp.eq.u32 %p6, %t, 3;
mov.u64 %s, own; @%p7 st.local.u32 [%s+4], 7;
""".replace("\n", " ")
"""Of the second element of `own`, only lanes 0 to 3 have written theirs."""

CHOSEN = "ld.local.u32 %x, [%s+4]; selp.u32 %y, %x, 5, {}; "


def loaded(body: str) -> list[Mistake]:
    text = numbered("\n".join([LOADED, *body.split("\n"), "ret;"]))
    found = check(kernel(text, ".u64 a"), {"a": np.zeros(64, np.uint32)}, block=32)
    return [each for each in found.mistakes if each.kind == "uninitialized read"]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        # What is not chosen does not count; a load whose value is not chosen from counts as a read.
        (CHOSEN.format("%p7") + STORE.format("%y"), 0),
        ("not.pred %p1, %p6; " + CHOSEN.format("%p1") + STORE.format("%y"), 28),
        ("ld.local.u32 %x, [%s+4];", 28),
        ("ld.local.u32 %x, [own+4]; selp.u32 %y, 5, %x, %p6; " + STORE.format("%x"), 28),
        (CHOSEN.format("%p6"), 0),
        # It is used where it is stored, read by others, or decides an address or a branch.
        (CHOSEN.format("%p7") + "st.local.u32 [%s], %x;", 28),
        (CHOSEN.format("%p7") + "st.local.u32 [%s], %y;", 0),
        (CHOSEN.format("%p7") + "setp.eq.u32 %p1, %x, 9; @%p1 bra END;\nEND: mov.u32 %y, 2;", 28),
        (CHOSEN.format("%p7") + "setp.eq.u32 %p1, %x, 9; vote.sync.any.pred %p2, %p1, -1;", 28),
        (CHOSEN.format("%p7") + "and.b32 %z, %x, 60; st.shared.u32 [%z], %t;", 28),
        (CHOSEN.format("%p7") + "@%p6 st.global.u32 [%a0], %x;", 0),
        (
            CHOSEN.format("%p7")
            + "shfl.sync.idx.b32 %z, %x, 9, 31, -1; @%p6 "
            + STORE.format("%z"),
            1,
        ),
        # Each execution counts; of a vector, each element.
        (CHOSEN.format("%p7") + STORE.format("%x") + CHOSEN.format("%p7") + STORE.format("%x"), 56),
        ("ld.local.v2.u32 {%x, %z}, [%s]; selp.u32 %y, %z, 5, %p7; " + STORE.format("%y"), 0),
    ],
)
def test_an_early_load_counts_where_its_value_is_used(body: str, count: int) -> None:
    found = loaded(body)
    assert sum(each.count for each in found) == count
    if count >= 28:
        assert (found[0].space, found[0].offset, found[0].at) == ("local", 4, (2, 0, 4))


def test_an_early_load_of_a_vector_names_the_element() -> None:
    body = "st.local.u32 [%s], 1; ld.local.v2.u32 {%x, %z}, [%s]; selp.u32 %y, %z, 5, %p7; "
    assert loaded(body + STORE.format("%x")) == []
    (mistake,) = loaded(body + STORE.format("%z"))
    assert (mistake.count, mistake.offset) == (28, 4)
