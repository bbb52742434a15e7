"""Which barriers open, and who is told to be missing: small programs."""

import pytest
from ptx import Mistake, check, kernel, numbered

HEAD = ".reg .pred %p, %q, %r; .reg .b32 %t, %l, %x, %y; mov.u32 %t, %tid.x; and.b32 %l, %t, 31; "
HEAD += "mov.u32 %x, %t; setp.lt.u32 %p, %l, 10; setp.lt.u32 %q, %l, 20; "


def missed(body: str, threads: int = 32) -> list[Mistake]:
    """What synccheck finds; the first line of the body is line 1."""
    text = kernel(numbered(HEAD + body.strip() + "\nret;"))
    return check(text, {}, block=threads).of("synccheck")


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
