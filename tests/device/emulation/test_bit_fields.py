"""Structures by value with bit-fields and unions: the kernel reads what the argument says."""

from __future__ import annotations

from typing import Any

import pytest

import memlab
from memlab.errors import UsageError

SOURCE = """
struct Bits {
  unsigned a : 3; unsigned b : 5; int c : 7; unsigned char d; bool e : 1;
  unsigned long long f : 40; unsigned g : 32; short h : 9;
};
__global__ void bits(Bits s, long long* y) {
  y[0] = s.a; y[1] = s.b; y[2] = s.c; y[3] = s.d; y[4] = s.e; y[5] = s.f; y[6] = s.g; y[7] = s.h;
}
union Either { float f; int i; };
union Pair { struct { short low, high; } parts; int whole; };
struct Holder { char tag; Either either; Pair pair; };
__global__ void unions(Holder s, long long* y) {
  y[0] = s.tag; y[1] = s.either.i; y[2] = s.pair.whole;
}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bits") / "b.cu"
    path.write_text(SOURCE)
    return str(path)


def run(file: str, kernel: str, structure: Any, count: int) -> list[int]:
    made = memlab.run(f"{file}:{kernel}", grid=1, block=1, args=[structure, f"out:i64[{count}]"])
    return [int(value) for value in made.outputs["y"]]


@pytest.mark.parametrize(
    "values",
    [
        (5, 17, -3, 200, 1, 2**39 + 7, 2**32 - 1, -256),
        (7, 31, -64, 255, 0, 2**40 - 1, 0, 255),
        (0, 1, 63, 0, 1, 1, 2**31, -1),
    ],
)
def test_bit_fields_hold_their_values(file: str, values: tuple[int, ...]) -> None:
    assert run(file, "bits", values, 8) == list(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("8,0,0,0,0,0,0,0", "(s, Bits).a (unsigned int : 3) has 3 bits, got '8': write a whole"),
        ("0,0,64,0,0,0,0,0", "c (int : 7) has 7 bits, got '64': write a whole number from -64 to"),
        ("0,0,-65,0,0,0,0,0", "has 7 bits, got '-65'"),
        ("0,0,0,0,0,0,0,256", "h (short : 9) has 9 bits, got '256'"),
        ("0,0,0", "is a structure of 8 numbers, got 'struct=0,0,0'"),
    ],
)
def test_a_bit_field_refuses_what_it_cannot_hold(file: str, values: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        run(file, "bits", f"struct={values}", 8)

    assert said in str(error.value)


def test_the_first_member_of_a_union_is_given(file: str) -> None:
    assert run(file, "unions", (7, 1.0, 3, 2), 3) == [7, 0x3F800000, 2 * 65536 + 3]
