"""Expressions: their values beside Python's own, and all that is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.errors import UsageError
from memlab.kernels.user import expressions
from memlab.kernels.user.kernel import UserKernel, apply_launch_options
from memlab.kernels.user.symbols import evaluated

SYMBOLS = {"N": 1_000_003, "B": 256, "T": Fraction(5, 2)}


def operands() -> st.SearchStrategy[str]:
    leaves = st.integers(0, 50).map(str) | st.sampled_from(["N", "B"])
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.tuples(parts, st.sampled_from(["+", "-", "*", "//", "%"]), parts).map(
                lambda made: f"({made[0]} {made[1]} {made[2]})"
            ),
            st.tuples(st.sampled_from(["min", "max"]), parts, parts).map(
                lambda made: f"{made[0]}({made[1]}, {made[2]})"
            ),
            parts.map("-{}".format),
        ),
        max_leaves=12,
    )


@given(operands())
def test_whole_numbers_are_those_of_python(text: str) -> None:
    try:
        expected = eval(text, {"N": SYMBOLS["N"], "B": SYMBOLS["B"]})
    except ZeroDivisionError:
        with pytest.raises(UsageError, match="divides by zero"):
            expressions.evaluate(text, SYMBOLS)
        return

    assert expressions.evaluate(text, SYMBOLS) == expected


@given(st.integers(-(2**70), 2**70), st.integers(1, 2**40))
def test_quotients_are_rounded_exactly(number: int, divisor: int) -> None:
    symbols = {"A": number, "D": divisor}

    assert expressions.whole("ceil(A/D)", symbols) == -(-number // divisor)
    assert expressions.whole("floor(A/D)", symbols) == number // divisor


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1K", 1024),
        ("1.5M", 1_572_864),
        ("2G//4M", 512),
        ("2**10 - 2**-1 * 2", 1023),
        ("0x10 + 1_000", 1016),
        ("0.1 * 3", Fraction(3, 10)),
        ("ceil(T) + floor(T) - +T*2", 0),
    ],
)
def test_numbers_and_suffixes(text: str, value: Fraction) -> None:
    assert expressions.evaluate(text, SYMBOLS) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__import__('os')", "is no expression"),
        ("N.real", "is no expression"),
        ("[N][0]", "is no expression"),
        ("(lambda: 1)()", "is no expression"),
        ("N if B else 1", "is no expression"),
        ("True + 1", "is no expression"),
        ("ceil(1, 2)", "is no expression"),
        ("N N", "is no expression"),
        ("", "is no expression"),
        ("(" * 900, "is no expression"),
        ("1" * 1001, "at most 1000"),
        ("9**9**9", "more than 4096 bits"),
        ("(2**4000)**2", "more than 4096 bits"),
        ("2**T", "exponent"),
        ("M + 1", "unknown symbol 'M' (known: B, N, T): give it with --set M=VALUE"),
    ],
)
def test_what_is_no_expression_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        expressions.evaluate(text, SYMBOLS)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_conditions() -> None:
    assert expressions.holds("B*4 <= 1K < N and not N % 2 == 0", SYMBOLS)
    assert not expressions.holds("B > 256 or N != 1000003", SYMBOLS)
    with pytest.raises(UsageError, match="is no condition"):
        expressions.holds("N", SYMBOLS)


def test_symbols_may_name_others_but_not_themselves() -> None:
    assert expressions.symbol_values({"A": "2*N", "N": "1K"}) == {"A": 2048, "N": 1024}
    with pytest.raises(UsageError, match="A needs itself: A -> N -> A"):
        expressions.symbol_values({"A": "2*N", "N": "A"})


def test_all_options_of_a_kernel_are_computed() -> None:
    kernel = apply_launch_options(
        UserKernel("k.cu", "scale<T, float, 3>"),
        {
            "symbols": {"N": "1K", "B": 128, "T": "B//16"},
            "grid": "ceil(N/B),min(N,TILE)",
            "block": ("B", 2),
            "shared": "B*4",
            "max_registers": "T*4",
            "defines": ["TILE=T*2", "TYPE=float", "WIDE", "SUM=T+x"],
            "args": [
                "f32[N, B+1]=uniform:-N:N",
                "i32[4]=N",
                "N/B",
                "f64=N/3",
                "struct=1,N/4,-1",
                "inout:u8[2]=arange",
                "null",
                "f32[]=@N.npy",
                "inf",
            ],
            "constants": ["table=N"],
            "restrict": ["B*TILE <= 4K"],
        },
    )

    made = evaluated(kernel)

    assert made == evaluated(made)
    assert (made.entry, made.grid, made.block) == ("scale<8, float, 3>", (8, 16), (128, 2))
    assert (made.shared, made.max_registers) == (512, 32)
    assert made.defines == ("TILE=16", "TYPE=float", "WIDE", "SUM=T+x")
    assert made.args == (
        "f32[1024,129]=uniform:-1024:1024",
        "i32[4]=1024",
        "8",
        f"f64={1024 / 3!r}",
        "struct=1,256,-1",
        "inout:u8[2]=arange",
        "null",
        "f32[]=@N.npy",
        "inf",
    )
    assert made.constants == ("table=1024",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grid": "N/3"}, "--grid: 'N/3' is 341.33"),
        ({"block": "N-N"}, "--block 'N-N': block takes one to three whole numbers"),
        ({"shared": "-N"}, "--shared '-N': shared must be a whole number from 0"),
        ({"args": ["f32[4]", "i32=N/3"]}, "argument 1: 'N/3' is 341.33"),
        ({"args": ["f32[Q]"]}, "argument 0: 'Q' names the unknown symbol 'Q'"),
        ({"constants": ["t=Q"]}, "--const 't=Q': 'Q' names the unknown symbol"),
        ({"restrict": ["N < 10"]}, "breaks the restriction 'N < 10' (N=1024)"),
        ({"symbols": ["grid=1"]}, "is the name of a launch option"),
        ({"symbols": ["min=1"]}, "min has a meaning in expressions"),
        ({"symbols": ["A"]}, "gives no value"),
        ({"symbols": {"A": [1]}}, "symbols takes names with numbers"),
        ({"grid": "N N"}, "grid takes one to three whole numbers"),
    ],
)
def test_a_wrong_expression_is_named_with_its_option(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as error:
        evaluated(apply_launch_options(UserKernel("k.cu", symbols=("N=1K",)), options))

    assert said in str(error.value)
    assert "\n" not in str(error.value)
