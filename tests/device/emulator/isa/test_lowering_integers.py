"""The machine code of integers, bits, comparisons, selections and words, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_rows import Case, CompiledRows
from row_sources import assert_same, make_sources

from memlab.device.emulator.isa.table import TABLE
from tests.reference.integer_rows import OPCODES
from tests.reference.table import reference

_JOINED = [f"lop3.{join}.b32 d|p" for join in ("or", "and")]
_NEEDS_CONSTANTS = {"lop3.b32", *_JOINED, "wmma.address.row", "wmma.address.col"}
_COMPARISONS = [opcode for opcode in OPCODES if opcode.split(".")[0] in ("setp", "set")]
_OTHERS = [opcode for opcode in OPCODES if opcode not in {*_COMPARISONS, *_NEEDS_CONSTANTS}]
_SAMPLE_STEP = 11  # comparisons are many and alike; it divides neither their names nor their types


def check(opcodes: list[str]) -> None:
    compiled = CompiledRows(opcodes)
    with np.errstate(all="ignore"):
        for opcode in opcodes:
            packed = next((kind for kind in ("bf16x2", "f16x2") if kind in opcode), "")
            of = Case(opcode).of
            sources = make_sources((packed,) * len(of) if packed else of)
            results = compiled.run(opcode, sources)
            assert_same(opcode, results, reference(opcode)(*sources), sources)


def test_every_row_of_integers_bits_moves_and_atomics() -> None:
    check(_OTHERS)


@pytest.mark.parametrize(
    "start",
    [0, *(pytest.param(start, marks=pytest.mark.slow) for start in range(1, _SAMPLE_STEP))],
)
def test_comparisons(start: int) -> None:
    check(_COMPARISONS[start::_SAMPLE_STEP])


def test_every_table_of_three_bits() -> None:
    cases = {table: Case("lop3.b32", ((3, table),)) for table in range(256)}
    compiled = CompiledRows(cases.values())
    sources = make_sources(("b32", "b32", "b32"))
    for table, case in cases.items():
        expected = reference("lop3.b32")(*sources, np.uint32(table))
        assert_same(f"lop3 {table:#x}", compiled.run(case, sources), expected, sources)


@pytest.mark.parametrize("opcode", _JOINED)
def test_a_lookup_is_joined_with_a_predicate(opcode: str) -> None:
    words = [np.arange(64, dtype="u4") % n for n in (2, 3, 5)]
    other = np.arange(64) % 7 < 3
    case = Case(opcode, ((3, 0x80),))  # a & b & c

    found = CompiledRows([case]).run(case, [*words, other])

    for one, wanted in zip(found, reference(opcode)(*words, np.uint32(0x80), other), strict=True):
        np.testing.assert_array_equal(np.asarray(one).reshape(-1), wanted)


def test_constant_selectors_and_shift_amounts() -> None:
    numbers = {"prmt.b32": (0x5410, 0x7632, 0x3340, 0x0123, 0xBA98, 0x4567, 0x1F540)}
    for name in ("shl.b16", "shl.b32", "shl.b64", "shr.s16", "shr.u32", "shr.s64", "shr.b64"):
        numbers[name] = (0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 2**31, 2**32 - 1)
    cases = [
        (number, Case(opcode, ((len(TABLE[opcode].of) - 1, number),)))
        for opcode, constants in numbers.items()
        for number in constants
    ]
    compiled = CompiledRows(case for _, case in cases)
    for number, case in cases:
        sources = make_sources(case.of[:-1])
        expected = reference(case.opcode)(*sources, np.uint32(number))
        assert_same(f"{case.opcode} {number}", compiled.run(case, sources), expected, sources)


def test_addresses_of_matrices() -> None:
    cases = [
        (lanes, Case(f"wmma.address.{layout}", ((4, lanes),)))
        for lanes in (2, 4, 8)
        for layout in ("row", "col")
    ]
    compiled = CompiledRows(case for _, case in cases)
    for lanes, case in cases:
        sources = make_sources(case.of[:4] + case.of[5:])
        every = [*sources[:4], np.uint32(lanes), *sources[4:]]
        expected = reference(case.opcode)(*every)
        assert_same(case.opcode, compiled.run(case, sources), expected, sources)
