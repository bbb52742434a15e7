"""The machine code of `cvt`, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_rows import Case, CompiledRows
from row_sources import assert_same, make_sources

from tests.reference.conversion_rows import OPCODES
from tests.reference.table import reference


def test_every_conversion() -> None:
    compiled = CompiledRows(OPCODES)
    with np.errstate(all="ignore"):
        for opcode in OPCODES:
            sources = make_sources(Case(opcode).of)
            results = compiled.run(opcode, sources)
            of_one_type = len(set(opcode.split(".")[-2:])) == 1  # passes a NaN on
            expected = reference(opcode)(*sources)
            assert_same(opcode, results, expected, sources, any_nan=of_one_type)


@pytest.mark.parametrize("number", ["e4m3", "e5m2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_every_byte(number: str, relu: str) -> None:
    opcode = f"cvt.rn{relu}.f16x2.{number}x2"
    pairs = np.arange(1 << 16, dtype=np.uint16)
    results = CompiledRows([opcode]).run(opcode, [pairs])
    assert_same(opcode, results, reference(opcode)(pairs), [pairs])


@pytest.mark.parametrize("number", ["e4m3", "e5m2"])
def test_every_half_to_a_byte(number: str) -> None:
    opcode = f"cvt.rn.satfinite.{number}x2.f16x2"
    pairs = np.arange(1 << 16, dtype=np.uint32) * np.uint32(0x10001)
    results = CompiledRows([opcode]).run(opcode, [pairs])
    assert_same(opcode, results, reference(opcode)(pairs), [pairs])
