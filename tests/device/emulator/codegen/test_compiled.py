"""Compiled functions do what the same Python functions do, on random numbers."""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any

import numpy as np
import pytest
from llvmlite import ir

from memlab.device.emulator.codegen.compiled import Compiled, compiled, set_bits
from memlab.device.emulator.codegen.lanes import count_bits
from memlab.device.emulator.codegen.llvm import Library, compile_module
from memlab.device.emulator.codegen.records import (
    Byte,
    Half,
    Int32,
    Pointer,
    Record,
    Word,
    dtype_of,
)

TIMES = 300


@compiled
def collatz(a: int) -> int:
    steps = 0
    while a != 1:
        odd = a % 2
        if odd:
            a = 3 * a
            a += 1
        else:
            a = a // 2
        steps += 1
        if steps >= 50:
            break
    return steps


@compiled(exported=True)
def steps_of(a: int, b: int) -> int:
    low, high = min(a, b), max(a, b)
    total = 0
    for number in range(low & 15, high & 63):
        if number == 7:
            continue
        if number > 40:
            return -total
        total += collatz(number + 1) << (number & 3)
    return total


@compiled(exported=True)
def logic(a: int, b: int) -> int:
    found = 0
    if -5 <= a < b or (b and not a & 3):
        found |= 1
    if a in (1, 2, b) and (a > 0 or b > 0):
        found |= 2
    if not (a == b or a * 2 == -b):
        found |= 4
    found += (a < b) + (b != 0)
    return found if a ^ b else ~found


@compiled(exported=True)
def arithmetic(a: int, b: int) -> int:
    c = min(a, b) - max(a * 3, 5) * 2
    c -= 1 - b
    return (c >> 2) ^ (a & b | 3) + -c


@compiled(exported=True)
def first_divisor(a: int, b: int) -> int:
    number = (a & 1023) + 2
    while True:
        for divisor in range(2, number):
            if number % divisor == 0:
                return divisor
        number += (b & 7) + 1


@compiled(exported=True)
def unrolled(a: int, b: int) -> int:
    total = 0
    for factor, term in ((2, 3), (5, a)):
        total = total * factor + term
        for bit in (0, 4):
            if b >> bit & 1:
                total += bit + 1
    return total


FUNCTIONS: list[Any] = [steps_of, logic, arithmetic, first_divisor, unrolled]


@cache
def native(function: Any) -> Library:
    """A function, compiled; the code stays loaded."""
    module = ir.Module()
    function.declared(module)
    return Library([compile_module(module)], [function.name])


def interpreted(function: Any) -> Callable[..., int]:
    """The Python function itself; what it calls is interpreted too."""
    names = dict(function.function.__globals__)
    for name, value in names.items():
        if isinstance(value, Compiled):
            names[name] = value.function
    return type(function.function)(function.function.__code__, names)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.name)
def test_it_computes_what_python_computes(function: Any) -> None:
    kinds = [ctypes.c_int64] * 3
    run, expected = native(function).function(function.name, *kinds), interpreted(function)
    random = np.random.default_rng(0)
    results = set()
    for _ in range(TIMES):
        a, b = random.integers(-9, 10, 2).tolist()
        if random.integers(2):
            a, b = random.integers(-(2**40), 2**40, 2).tolist()
        assert run(a, b) == expected(a, b), (a, b)
        results.add(run(a, b))
    assert len(results) > 4


class Inner(Record):
    small: Byte
    signed: Int32


class Outer(Record):
    half: Half
    inner: Inner
    real: float
    items: Pointer[Word]
    sums: Annotated[Pointer[int], 4]


@compiled(exported=True)
def change(record: Outer, count: int) -> None:
    record.inner.small += 200
    record.inner.signed = record.inner.signed * 3 - record.half
    record.real = record.real / 2.0
    if not record.items:
        return
    for number in range(count):
        record.items[number] -= 1
        record.sums[number & 3] += record.items[number]


@pytest.mark.parametrize("has_items", [False, True])
def test_records_are_those_of_numpy(has_items: bool) -> None:
    record, items = np.zeros((), dtype_of(Outer)), np.array([0, 5, 2**31, 9, 7], np.uint32)
    record["half"], record["inner"]["small"], record["inner"]["signed"] = 65535, 100, -(2**30)
    record["real"], record["items"] = 3.5, items.ctypes.data if has_items else 0
    run = native(change).function("change", None, ctypes.c_void_p, ctypes.c_int64)
    run(record.ctypes.data, len(items))
    assert record["inner"]["small"] == (100 + 200) % 256  # cut to the width of the field
    assert record["inner"]["signed"] == np.int64(-3 * 2**30 - 65535).astype(np.int32)
    assert record["real"] == 1.75
    after = [2**32 - 1, 4, 2**31 - 1, 8, 6] if has_items else [0, 5, 2**31, 9, 7]
    assert items.tolist() == after
    sums = [after[0] + after[4], after[1], after[2], after[3]] if has_items else [0] * 4
    assert record["sums"].tolist() == sums


@compiled(exported=True)
def sum_of_bits(mask: Word) -> int:
    total = 0
    for place in set_bits(mask):
        total += place
    return total * 100 + count_bits(mask)


def test_loops_over_bits_and_words_as_arguments() -> None:
    run = native(sum_of_bits).function("sum_of_bits", ctypes.c_int64, ctypes.c_uint32)
    for mask in (0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x1234_5678):
        places = [place for place in range(32) if mask >> place & 1]
        assert run(mask) == sum(places) * 100 + len(places)


# ruff: noqa: RET503


def wrong_programs() -> Iterator[tuple[Any, str]]:
    @compiled
    def forgets(a: int) -> int:
        if a:
            return 1

    yield forgets, "without a result"

    @compiled
    def unknown(a: int) -> int:
        return a + nowhere  # noqa: F821

    yield unknown, "nowhere is not known"

    @compiled
    def deletes(a: int) -> int:
        del a
        return 1

    yield deletes, "Delete cannot be compiled"

    @compiled
    def unreachable(a: int) -> int:
        return a
        a += 1

    yield unreachable, "never reached"


@pytest.mark.parametrize(
    ("function", "problem"), list(wrong_programs()), ids=lambda x: getattr(x, "name", "")
)
def test_what_cannot_be_compiled_is_named(function: Any, problem: str) -> None:
    with pytest.raises(SyntaxError, match=f"{function.name}, its line .*{problem}"):
        function.declared(ir.Module())
