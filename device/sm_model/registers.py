"""The registers that an instruction reads, by the bank of the register file that holds them.

A sub-core's registers lie in two banks, by even and odd numbers, and each bank reads one register
of a warp per clock. An operand that the instruction before kept (`.reuse`) is not read again
(Huerta et al., "Analyzing Modern NVIDIA GPU Cores", MICRO 2025, section 5.3). A register that
several operands name is read once: a loop of 11 instructions that names 14 even registers, among
them those of squares twice, issued 0.92 instructions a clock on an H100 (`escape-times`,
`docs/results/h100-held-out-5.csv`), not 11 / 14. Of pairs of registers nothing shows that:
`integrate-double` took the time of two reads (`docs/results/h200-truth.csv`).
"""

from __future__ import annotations

import re

from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.sm_model.records import BANKS

_REGISTER = re.compile(r"(?<![\w.])R(\d+)(\.reuse)?(\.64)?")
_WITHOUT_RESULT = frozenset(
    ("STG", "ST", "STS", "STL", "RED", "REDG", "LDGSTS", "STSM", "BAR", "EXIT", "BRA", "RET")
)
_PAIRS = frozenset(("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"))
_MATRIX_SOURCES = (4, 2, 4)
"""Registers of the operands of HMMA.16816.F32."""


def register_reads(
    step: MachineInstruction, previous: MachineInstruction | None
) -> tuple[float, float]:
    """Registers that an instruction reads from each bank.

    Args:
        step: The instruction.
        previous: The one before it, whose operands may have been kept; None for none.
    """
    kept = _kept(previous) if previous is not None else set()
    reads, seen = [0.0] * BANKS, set[int]()
    for place, (operand, registers) in enumerate(_sources(step)):
        if (place, operand) in kept or (len(registers) == 1 and operand in seen):
            continue
        seen.add(operand)
        for register in registers:
            reads[register % BANKS] += 1.0
    return reads[0], reads[1]


def _kept(step: MachineInstruction) -> set[tuple[int, int]]:
    """The operands that stay for the next instruction: their places and registers."""
    kept = set()
    for place, text in enumerate(_source_texts(step)):
        match = _REGISTER.search(text)
        if match and match[2]:
            kept.add((place, int(match[1])))
    return kept


def _source_texts(step: MachineInstruction) -> list[str]:
    """The operands that are read, in order."""
    operands = list(step.operands)
    if step.name not in _WITHOUT_RESULT and operands and operands[0].startswith("R"):
        operands = operands[1:]
    return [operand for operand in operands if not operand.lstrip("!").startswith(("P", "UP"))]


def _sources(step: MachineInstruction) -> list[tuple[int, range]]:
    """The registers of each operand that is read: the first, and all of them."""
    found = []
    for place, text in enumerate(_source_texts(step)):
        match = _REGISTER.search(text)
        number = int(match[1]) if match else -1
        found.append(
            (number, range(number, number + _count(step, place, match)) if match else range(0))
        )
    return found


def _count(step: MachineInstruction, place: int, match: re.Match[str]) -> int:
    """How many registers an operand takes."""
    if step.name.endswith("MMA") and step.name != "HFMA2":
        return _MATRIX_SOURCES[min(place, 2)]
    if match[3] or step.name in _PAIRS:
        return 2
    if ".WIDE" in step.opcode and place == 2:
        return 2
    if step.name in _WITHOUT_RESULT and place > 0:
        return 4 if ".128" in step.opcode else 2 if ".64" in step.opcode else 1
    return 1
