"""Array members of structures: which declarations are rewritten, and what is found by them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.device.checking.findings import CheckFinding
from memlab.device.checking.member_arrays import with_checked_members


def rewritten(source: str) -> list[tuple[str, str]]:
    """Structure and name of the members that are rewritten."""
    return [(member.structure, member.name) for member in with_checked_members(source, "k.cu")[1]]


@pytest.mark.parametrize(
    ("source", "members"),
    [
        ("struct S { float a[3], b[N][4];\n int n; const int c[2 * N]; };", "S.a S.b S.c"),
        ("template <class T> class V : public B { public: T items[8]; T *p; };", "V.items"),
        ("struct { alignas(16) unsigned char bytes[16]; } s;", ".bytes"),
        ("struct A { struct B { int b[2]; } inner; int a[4]; };", "A.a B.b"),
        ("union U { float4 v; float f[4]; };", "U.f"),
        # Functions, pointers, static members, more dimensions, comments and text are left alone.
        ("struct S { void f() { float a[3]; } int n; };", ""),
        ("struct S { float *a[3]; static int b[2]; int c[2][2][2]; };", ""),
        ('// struct S { int a[2]; };\nconst char *t = "struct S { int a[2]; };";', ""),
        ("__global__ void k() { __shared__ float s[32]; }", ""),
        ("#define DECLARE struct S { int a[2]; };\nint x;", ""),
    ],
)
def test_plain_array_members_are_rewritten(source: str, members: str) -> None:
    found = rewritten(source)
    assert sorted(f"{structure}.{name}" for structure, name in found) == members.split()


def test_lines_keep_their_numbers() -> None:
    source = "struct S {\n  float a[3],\n    b[2];\n  int n;\n};\nint last;\n"
    text, _ = with_checked_members(source, "k.cu")
    kept = text.partition('#line 1 "k.cu"\n')[2].splitlines()
    assert [number for number, line in enumerate(kept, 1) if line in ("  int n;", "int last;")] == [
        4,
        6,
    ]


SOURCE = """#include <cstring>
struct Pair { float x, y; };
struct Tile {
  float a[32];
  Pair pairs[4];
  int table[2][8];
  float rest[1];
};
union Bits { float f[2]; unsigned u[2]; };
extern "C" __global__ void k(Tile* tiles, float* out, int n) {
  Tile& tile = tiles[blockIdx.x + 1];  // others lie around
  int t = threadIdx.x;
  BODY;
}
"""


def found_in(body: str, folder: Path) -> list[CheckFinding]:
    (folder / "k.cu").write_text(SOURCE.replace("BODY", body))
    tiles, out = np.zeros((4, 32 + 8 + 16 + 1), np.float32), np.zeros(64, np.float32)
    launch: dict[str, Any] = {
        "grid": 2,
        "block": 32,
        "args": [memlab.inout(tiles), memlab.inout(out), 32],
    }
    return list(memlab.check(f"{folder / 'k.cu'}:k", tools=["memcheck"], **launch).findings)


@pytest.mark.parametrize(
    ("body", "element", "count"),
    [
        ("out[t] = tile.a[t + 1]", "a[32] of 32 elements", 2),
        ("(&tile)->a[t - 1] = 1", "a[-1] of 32 elements", 2),
        ("if (t < 8) tile.pairs[t].y = 2", "pairs[4] of 4 elements", 8),
        ("if (t < 8) out[t] = tile.table[2][t]", "table[16] of 16 elements", 16),
        ("atomicAdd(&tile.a[t + n], 1.f)", "a[32] of 32 elements", 64),
        ("Bits b[2] = {{t, t}, {t, t}}; out[t] = b[t / 32].u[n / 16]", "u[2] of 2 elements", 64),
    ],
)
def test_subscripts_that_leave_a_member_are_found(
    body: str, element: str, count: int, tmp_path: Path
) -> None:
    (found,) = found_in(body, tmp_path)
    assert (found.kind, found.at.line) == ("out of bounds", 13)
    assert (found.element, found.count) == (element, count)
    assert "member of" in found.message


@pytest.mark.parametrize(
    "body",
    [
        "out[t] = tile.a[t] + tile.table[1][t % 8] + tile.pairs[t % 4].y",
        # The place behind the last element, as an end; and arrays that begin with 1.
        "for (float *p = &tile.a[0], *end = &tile.a[32]; p != end; ++p) out[t] += *p",
        "float* end = &tile.a[32]; out[t] = end[-1]",
        "float* one = &tile.a[-1]; for (int i = 1; i <= n; ++i) out[t] += one[i]",
        # The whole structure as a row of numbers, from its first member on.
        "float* all = tile.a; for (int i = t; i < 57; i += 32) all[i] = 0",
        "if (t == 0) memset(tile.a, 0, sizeof(tile.a) + sizeof(tile.pairs))",
        # A table as one row; a member that stands for what follows it.
        "if (t < 16) out[t] = tile.table[0][t]",
        "if (t == 0 && blockIdx.x == 0) out[t] = tile.rest[t + n / 32]",
        "Bits b; b.f[t % 2] = 1; b.f[1 - t % 2] = 2; out[t] = b.u[t % 2]",
    ],
)
def test_what_stays_in_its_member_or_is_meant_is_not_found(body: str, tmp_path: Path) -> None:
    assert found_in(body, tmp_path) == []
