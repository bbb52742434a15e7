"""The machine code in a cubin, as far as tests ask it what ptxas made of a kernel.

The low 9 bits of an instruction are its opcode; the 3 above them say where operands lie. A file of
nvdisasm's reading, `data/nvdisasm-instructions.txt`, shows that the opcodes here are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TypeAlias

from elftools.elf.elffile import ELFFile

Access: TypeAlias = tuple[str, int | None]
"""An access of an instruction: its kind and memory, and the bytes per thread; None for
atomics and asynchronous copies, whose encoding gives no plain width."""

INSTRUCTION_BYTES = 16
"""Size of one instruction from compute capability 7.0 on."""

_WITH_WIDTH = {
    0x180: "generic_load",  # LD
    0x181: "global_load",  # LDG
    0x183: "local_load",  # LDL
    0x184: "shared_load",  # LDS
    0x185: "generic_store",  # ST
    0x186: "global_store",  # STG
    0x187: "local_store",  # STL
    0x188: "shared_store",  # STS
}
_WIDTHS_BYTES = (1, 1, 2, 2, 4, 8, 16)  # U8, S8, U16, S16, 32, 64, 128 in bits 73 to 75.
_OF_32_BYTES = {
    0x17E: "global_load",  # LDG.ENL2.256
    0x17F: "global_store",  # STG.ENL2.256
}
_OF_MATRICES = {  # 1, 2 or 4 matrices in bits 72 to 73.
    0x03B: "shared_load",  # LDSM
    0x044: "shared_store",  # STSM
}
_WITHOUT_WIDTH = {
    0x18A: "generic_atomic",  # ATOM
    0x18B: "generic_atomic",  # ATOM.CAS
    0x18C: "shared_atomic",  # ATOMS
    0x18D: "shared_atomic",  # ATOMS.CAS
    0x18E: "global_atomic",  # RED, REDG
    0x1A2: "generic_atomic",  # ATOM, floating point from 9.0 on
    0x1A3: "global_atomic",  # ATOMG, floating point from 9.0 on
    0x1A6: "global_atomic",  # REDG, floating point from 9.0 on
    0x1A8: "global_atomic",  # ATOMG
    0x1A9: "global_atomic",  # ATOMG.CAS
    0x1AE: "global_to_shared",  # LDGSTS
}


def opcodes(cubin: bytes, entry: str) -> list[int]:
    """The opcodes of a kernel's instructions."""
    return [_opcode(word) for word in _instructions(cubin, entry)]


def accesses(cubin: bytes, entry: str) -> list[Access]:
    """The memory accesses of a kernel's instructions.

    Constant memory, an operand of any instruction, textures and bulk copies are not among them.
    """
    return [access for word in _instructions(cubin, entry) if (access := access_of(word))]


def access_of(word: int) -> Access | None:
    """The memory access of an instruction; None if it has none."""
    opcode = _opcode(word)
    if opcode in _WITH_WIDTH:
        return _WITH_WIDTH[opcode], _WIDTHS_BYTES[word >> 73 & 7]
    if opcode in _OF_32_BYTES:
        return _OF_32_BYTES[opcode], 32
    if opcode in _OF_MATRICES:
        return _OF_MATRICES[opcode], 4 << (word >> 72 & 3)
    if opcode in _WITHOUT_WIDTH:
        return _WITHOUT_WIDTH[opcode], None
    return None


def _instructions(cubin: bytes, entry: str) -> Iterator[int]:
    code = ELFFile(BytesIO(cubin)).get_section_by_name(f".text.{entry}").data()
    for start in range(0, len(code), INSTRUCTION_BYTES):
        yield int.from_bytes(code[start : start + INSTRUCTION_BYTES], "little")


def _opcode(word: int) -> int:
    return word & 0x1FF
