"""The registers that instructions read, by bank, against a count by hand."""

from __future__ import annotations

import pytest

from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.sm_model.registers import register_reads


def instruction(text: str) -> MachineInstruction:
    opcode, _, operands = text.partition(" ")
    parts = tuple(part.strip() for part in operands.split(","))
    return MachineInstruction(0, "", opcode, parts, None, 0, None)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("FFMA R1, R2, R4, R6", (3, 0)),
        ("FFMA R2, R3, R4, R6", (2, 1)),
        ("FMUL R7, R8, R8", (1, 0)),
        ("FFMA R2, R3, -R3, R6", (1, 1)),
        ("DMUL R8, R2, R2", (2, 2)),
        ("IADD3 R4, R5, -0x1, RZ", (0, 1)),
        ("IMAD.WIDE R12, R7, 0x4, R8", (1, 2)),
        ("ISETP.GE.AND P0, PT, R7, UR4, PT", (0, 1)),
        ("LDG.E R3, desc[UR4][R2.64]", (1, 1)),
        ("STG.E.128 desc[UR4][R2.64], R4", (3, 3)),
        ("DFMA R8, R2, R4, R6", (3, 3)),
        ("HMMA.16816.F32 R52, R84, R76, R52", (5, 5)),
        ("ULDC UR4, c[0x0][0x220]", (0, 0)),
    ],
)
def test_registers_by_bank(text: str, reads: tuple[int, int]) -> None:
    assert register_reads(instruction(text), None) == reads


def test_a_kept_operand_is_not_read_again() -> None:
    first = instruction("FFMA R44, R66.reuse, R87, R44")

    assert register_reads(instruction("FFMA R43, R66, R90, R43"), first) == (1, 1)
    assert register_reads(instruction("FFMA R43, R90, R66, R43"), first) == (2, 1)
