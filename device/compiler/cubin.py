"""Reads a cubin: what a kernel needs of the multiprocessor, and how it may be launched.

A cubin is an ELF file. Its sections and attributes are those that `cuobjdump --dump-elf` and
`nvdisasm` print; both tools agree with this module for compute capability 7.5 to 12.0.
"""

from __future__ import annotations

import math
import struct
from io import BytesIO
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from memlab.device.measurement import Resources
from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.signature import LaunchBounds

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def kernel_resources(cubin: bytes, entry: str) -> Resources:
    """Read what a kernel needs, without a GPU.

    Registers are those the code uses. A kernel whose call depth the compiler could not bound
    (recursion) has the local bytes of its own frame alone.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    elf = _open_elf(cubin, entry)
    attributes = dict(_function_attributes(elf, entry))
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
    elf = _open_elf(cubin, entry)
    records = dict(_long_attributes(elf.get_section_by_name(f".nv.info.{entry}")))
    block = records.get(EIATTR_REQNTID, b"")
    most = records.get(EIATTR_MAX_THREADS, b"")
    return LaunchBounds(
        max_threads=math.prod(struct.unpack("<3I", most)) if most else 0,
        block=struct.unpack("<3I", block) if block else None,
    )


def _open_elf(cubin: bytes, entry: str) -> ELFFile:
    """The ELF file, in which there is a kernel of this name."""
    try:
        elf = ELFFile(BytesIO(cubin))
    except ELFError as error:
        message = f"not a cubin ({error}): compile it with memlab.device.compiler.compile"
        raise UsageError(message) from error
    if elf.get_section_by_name(f".text.{entry}") is None:
        message = (
            f"the compiled code has no kernel {entry!r}, "
            f"{suggest_nearest(entry, _kernel_names(elf))}; "
            'a kernel keeps its name when it is declared extern "C" __global__'
        )
        raise UsageError(message)
    return elf


def _kernel_names(elf: ELFFile) -> list[str]:
    """Names of the kernels: each has its own section of attributes."""
    prefix = ".nv.info."
    names = (section.name for section in elf.iter_sections())
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _function_attributes(elf: ELFFile, entry: str) -> Iterator[tuple[int, int]]:
    """The attributes in `.nv.info` that give one number for one function, for this function."""
    symbols: Any = elf.get_section_by_name(".symtab")
    for attribute, data in _long_attributes(elf.get_section_by_name(".nv.info")):
        if len(data) == 8:
            symbol, value = struct.unpack("<II", data)
            if symbols.get_symbol(symbol).name == entry:
                yield attribute, value


def _long_attributes(info: Any) -> Iterator[tuple[int, bytes]]:
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
