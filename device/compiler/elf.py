"""Sections and symbols of a cubin: ELF for 64 bits, little-endian, as the System V ABI defines it.

pyelftools reads the same, and debug information too, but importing it takes longer than all of
a run that reads nothing else of the cubin.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MAGIC = b"\x7fELF\x02\x01"  # with the class of 64 bits and the little-endian order
_NO_BITS = 8  # SHT_NOBITS: a section that takes memory, but no bytes of the file


@dataclass(frozen=True)
class Section:
    """A section of an ELF file.

    Attributes:
        name: Its name.
        size: Its size in memory, bytes.
        data: Its bytes in the file.
        linked: The bytes of the section that it refers to; for a table of symbols, their names.
    """

    name: str
    size: int
    data: bytes
    linked: bytes


def read_sections(file: bytes) -> list[Section]:
    """Read all sections of an ELF file.

    Raises:
        ValueError: The bytes are no such file.
    """
    if not file.startswith(_MAGIC):
        raise ValueError("it does not begin as ELF for 64 bits does")
    try:
        (table,) = struct.unpack_from("<Q", file, 40)
        entry_bytes, count, names_index = struct.unpack_from("<3H", file, 58)
        headers = [
            struct.unpack_from("<IIQQQQI", file, table + number * entry_bytes)
            for number in range(count)
        ]
        contents = [
            b"" if kind == _NO_BITS else file[offset : offset + size]
            for _, kind, _, _, offset, size, _ in headers
        ]
        return [
            Section(_text_at(contents[names_index], name), size, data, contents[link])
            for (name, _, _, _, _, size, link), data in zip(headers, contents, strict=True)
        ]
    except (struct.error, IndexError) as error:
        raise ValueError("it is cut off") from error


def symbol_names(table: Section) -> list[str]:
    """The names of the symbols in a table of symbols, in its order."""
    entries = struct.iter_unpack("<IBBHQQ", table.data)
    return [_text_at(table.linked, name) for name, *_ in entries]


def _text_at(data: bytes, start: int) -> str:
    """The text at a position, up to its NUL byte."""
    return data[start : data.find(b"\0", start)].decode(errors="replace")
