"""Reads a cubin: what a kernel needs of the multiprocessor, and the memory instructions it runs.

A cubin is an ELF file. Its sections and attributes are those that `cuobjdump --dump-elf` and
`nvdisasm` print; both tools agree with this module for compute capability 7.5 to 12.0.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.dwarf.lineprogram import LineProgram
from elftools.dwarf.structs import DWARFStructs
from elftools.elf.elffile import ELFFile

from memlab.device.measurement import Resources
from memlab.errors import UsageError, nearest
from memlab.kernels.signature import LaunchBounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elftools.elf.sections import Section

InstructionKind: TypeAlias = Literal[
    "generic_load",
    "generic_store",
    "generic_atomic",
    "global_load",
    "global_store",
    "global_atomic",
    "global_to_shared",
    "shared_load",
    "shared_store",
    "shared_atomic",
    "local_load",
    "local_store",
]
"""The memory that an instruction names; generic ones find it from the address."""

RESERVED_SHARED_BYTES = 1024
"""Shared memory a block that the system keeps for itself from compute capability 9.0 on; the
cubin counts it in, and names its end `.nv.reservedSmem.cap` (CUDA C++ Programming Guide,
Compute Capabilities: "reserved shared memory per thread block")."""

# Attributes of `.nv.info`, by the names that cuobjdump prints.
EIATTR_MAX_THREADS = 0x05
EIATTR_REQNTID = 0x10
EIATTR_FRAME_SIZE = 0x11
EIATTR_MIN_STACK_SIZE = 0x12
EIATTR_REGCOUNT = 0x2F
EIFMT_SVAL = 4  # The attribute's value follows it; of the other formats it is two bytes inline.
UNKNOWN_STACK_SIZE = 0xFFFFFFFF

INSTRUCTION_BYTES = 16
"""Size of one instruction from compute capability 7.0 on."""

# The low 9 bits of an instruction are its opcode; the 3 above them say where operands lie.
_WITH_WIDTH: dict[int, InstructionKind] = {
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
_OF_32_BYTES: dict[int, InstructionKind] = {
    0x17E: "global_load",  # LDG.ENL2.256
    0x17F: "global_store",  # STG.ENL2.256
}
_OF_MATRICES: dict[int, InstructionKind] = {  # 1, 2 or 4 matrices in bits 72 to 73.
    0x03B: "shared_load",  # LDSM
    0x044: "shared_store",  # STSM
}
_WITHOUT_WIDTH: dict[int, InstructionKind] = {
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


@dataclass(frozen=True)
class MachineInstruction:
    """One memory instruction of the machine code.

    Attributes:
        offset: Bytes from the start of the kernel's code.
        kind: What it does to which memory.
        width_bytes: Bytes it moves for each thread; None for atomics and asynchronous copies,
            whose encoding gives no plain width.
        line: The source line it was compiled from, counted from 1; 0 where there is none.
        file: Base name of that line's file: the kernel's own or a header; empty where none.
    """

    offset: int
    kind: InstructionKind
    width_bytes: int | None
    line: int
    file: str


def entries(cubin: bytes) -> tuple[str, ...]:
    """Name the kernels in a cubin, in alphabetical order.

    Raises:
        UsageError: The bytes are no cubin.
    """
    return _entries(_open(cubin))


def resources(cubin: bytes, entry: str) -> Resources:
    """Read what a kernel needs, without a GPU.

    Registers are those the code uses. A kernel whose call depth the compiler could not bound
    (recursion) has the local bytes of its own frame alone.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    elf = _open(cubin)
    _code(elf, entry)
    attributes = dict(_attributes(elf, entry))
    local_bytes = attributes.get(EIATTR_MIN_STACK_SIZE, UNKNOWN_STACK_SIZE)
    if local_bytes == UNKNOWN_STACK_SIZE:
        local_bytes = attributes.get(EIATTR_FRAME_SIZE, 0)
    shared = elf.get_section_by_name(f".nv.shared.{entry}")
    shared_bytes = 0
    if shared is not None:
        reserved = elf.get_section_by_name(".nv.shared.reserved.0")
        shared_bytes = shared["sh_size"] - (RESERVED_SHARED_BYTES if reserved is not None else 0)
    return Resources(
        registers_per_thread=attributes[EIATTR_REGCOUNT],
        static_shared_bytes=shared_bytes,
        local_bytes_per_thread=local_bytes,
    )


def launch_bounds(cubin: bytes, entry: str) -> LaunchBounds:
    """Read which blocks a kernel may be launched with: a driver refuses all others.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    elf = _open(cubin)
    _code(elf, entry)
    records = dict(_records(elf.get_section_by_name(f".nv.info.{entry}")))
    block = records.get(EIATTR_REQNTID, b"")
    most = records.get(EIATTR_MAX_THREADS, b"")
    return LaunchBounds(
        most_threads=math.prod(struct.unpack("<3I", most)) if most else 0,
        block=struct.unpack("<3I", block) if block else None,
    )


def opcode_counts(cubin: bytes, entry: str) -> Counter[int]:
    """Count the machine instructions of a kernel by opcode: the low 9 bits of each.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    return Counter(map(_opcode, _words(_code(_open(cubin), entry))))


def machine_memory_instructions(cubin: bytes, entry: str) -> tuple[MachineInstruction, ...]:
    """List the memory instructions of a kernel in the order of its machine code.

    The PTX does not tell them: ptxas merges neighbouring accesses of one thread, unrolls, and
    spills. Constant memory (an operand of any instruction), textures and bulk copies are not
    listed. Lines are there if the cubin was compiled with `-lineinfo`.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    elf = _open(cubin)
    code = _code(elf, entry)
    line_starts, lines = _line_table(elf, code)
    found = []
    for index, word in enumerate(_words(code)):
        access = memory_access(word)
        if access is None:
            continue
        kind, width_bytes = access
        offset = index * INSTRUCTION_BYTES
        row = bisect_right(line_starts, offset) - 1
        line, file = lines[row] if row >= 0 else (0, "")
        found.append(MachineInstruction(offset, kind, width_bytes, line, file))
    return tuple(found)


def _open(cubin: bytes) -> ELFFile:
    try:
        return ELFFile(BytesIO(cubin))
    except ELFError as error:
        message = f"not a cubin ({error}): compile it with memlab.device.compile"
        raise UsageError(message) from error


def _entries(elf: ELFFile) -> tuple[str, ...]:
    """Names of the kernels: each has its own section of attributes."""
    prefix = ".nv.info."
    names = (section.name for section in elf.iter_sections())
    return tuple(sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix)))


def _code(elf: ELFFile, entry: str) -> Section:
    """The section with the kernel's instructions."""
    section = elf.get_section_by_name(f".text.{entry}")
    if section is None:
        message = (
            f"the compiled code has no kernel {entry!r}, {nearest(entry, _entries(elf))}; "
            'a kernel keeps its name when it is declared extern "C" __global__'
        )
        raise UsageError(message)
    return section


def _attributes(elf: ELFFile, entry: str) -> Iterator[tuple[int, int]]:
    """The attributes in `.nv.info` that give one number for one function, for this function."""
    symbols: Any = elf.get_section_by_name(".symtab")
    for attribute, data in _records(elf.get_section_by_name(".nv.info")):
        if len(data) == 8:
            symbol, value = struct.unpack("<II", data)
            if symbols.get_symbol(symbol).name == entry:
                yield attribute, value


def _records(info: Any) -> Iterator[tuple[int, bytes]]:
    """The attributes of a section of them whose values are longer than two bytes.

    A record is its format and its attribute, a byte each, then two bytes of value or size.
    """
    data = info.data()
    position = 0
    while position < len(data):
        value_format, attribute, size = struct.unpack_from("<BBH", data, position)
        position += 4
        if value_format == EIFMT_SVAL:
            yield attribute, data[position : position + size]
            position += size


def _words(code: Section) -> Iterator[int]:
    data = code.data()
    for offset in range(0, len(data), INSTRUCTION_BYTES):
        yield int.from_bytes(data[offset : offset + INSTRUCTION_BYTES], "little")


def _opcode(word: int) -> int:
    return word & 0x1FF


def memory_access(word: int) -> tuple[InstructionKind, int | None] | None:
    """The kind and the bytes a thread of a memory instruction; None for any other."""
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


def _line_table(elf: ELFFile, code: Section) -> tuple[list[int], list[tuple[int, str]]]:
    """Where in the code each run of instructions with one source line starts, and that line.

    Returns:
        The offsets in rising order, and for each the line with the base name of its file.
    """
    section = elf.get_section_by_name(".debug_line")
    if section is None:
        return [], []
    starts = iter(_function_starts(elf))
    rows: list[tuple[int, tuple[int, str]]] = []
    stream = BytesIO(section.data())
    unit = 0
    while unit < section["sh_size"]:
        (unit_length, version) = struct.unpack_from("<IH", stream.getbuffer(), unit)
        end = unit + 4 + unit_length
        structs = DWARFStructs(
            little_endian=True, dwarf_format=32, address_size=8, dwarf_version=version
        )
        header = struct_parse(structs.Dwarf_lineprog_header, stream, unit)
        program = LineProgram(header, stream, structs, stream.tell(), end)
        states = [each.state for each in program.get_entries() if each.state]
        for sequence in _sequences(states):
            section_index, start = next(starts)
            if elf.get_section(section_index).name != code.name:
                continue
            for state in sequence:
                file = header["file_entry"][state.file - 1].name.decode()
                rows.append((start + state.address, (state.line, file)))
        unit = end
    rows.sort(key=lambda row: row[0])
    return [offset for offset, _ in rows], [line for _, line in rows]


def _function_starts(elf: ELFFile) -> Iterator[tuple[int, int]]:
    """The section and the offset in it of each sequence of the line table, in its order.

    A sequence starts with the address of a function, which is left to a relocation.
    """
    relocations: Any = elf.get_section_by_name(".rela.debug_line")  # From 9.0 on; `.rel` before.
    if relocations is None:
        relocations = elf.get_section_by_name(".rel.debug_line")
    symbols: Any = elf.get_section(relocations["sh_link"])
    for relocation in sorted(relocations.iter_relocations(), key=lambda each: each["r_offset"]):
        symbol = symbols.get_symbol(relocation["r_info_sym"])
        addend = relocation["r_addend"] if relocation.is_RELA() else 0
        yield symbol["st_shndx"], symbol["st_value"] + addend


def _sequences(states: list[Any]) -> Iterator[list[Any]]:
    """Split line-table rows at the ends of their sequences."""
    sequence: list[Any] = []
    for state in states:
        if state.end_sequence:
            yield sequence
            sequence = []
        else:
            sequence.append(state)
