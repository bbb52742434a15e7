"""Reads a cubin: the resources that a kernel needs, and its launch bounds.

A cubin is an ELF file. Its sections and attributes are those that `cuobjdump --dump-elf` and
`nvdisasm` print; both tools agree with this module for compute capability 7.5 to 12.0.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import TYPE_CHECKING

from memlab.device.compiler.elf import Section, read_sections, symbol_names
from memlab.device.measurement import Resources
from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.signature import LaunchBounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RESERVED_SHARED_BYTES = 1024
"""Shared memory per block that the system reserves from compute capability 9.0 on. The cubin
includes it, and names its end `.nv.reservedSmem.cap` (CUDA C++ Programming Guide, Compute
Capabilities: "reserved shared memory per thread block")."""

# Attributes of `.nv.info`, by the names that cuobjdump prints.
EIATTR_MAX_THREADS = 0x05
EIATTR_REQNTID = 0x10
EIATTR_FRAME_SIZE = 0x11
EIATTR_MIN_STACK_SIZE = 0x12
EIATTR_KPARAM_INFO = 0x17
EIATTR_REGCOUNT = 0x2F
EIATTR_CTA_PER_CLUSTER = 0x3D
EIFMT_SVAL = 4  # the value follows the record; in other formats it is two bytes in the record
UNKNOWN_STACK_SIZE = 0xFFFFFFFF


def kernel_resources(cubin: bytes, entry: str) -> Resources:
    """Read the resources that a kernel needs, without a GPU.

    Registers are those that the code uses. If the compiler could not bound the call depth of a
    kernel (recursion), the local bytes are those of the kernel's own frame.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    sections = _sections_with(cubin, entry)
    attributes = dict(_function_attributes(sections, entry))
    local_bytes = attributes.get(EIATTR_MIN_STACK_SIZE, UNKNOWN_STACK_SIZE)
    if local_bytes == UNKNOWN_STACK_SIZE:
        local_bytes = attributes.get(EIATTR_FRAME_SIZE, 0)
    shared = sections.get(f".nv.shared.{entry}")
    shared_bytes = 0
    if shared is not None:
        reserved = RESERVED_SHARED_BYTES if ".nv.shared.reserved.0" in sections else 0
        shared_bytes = shared.size - reserved
    return Resources(
        registers_per_thread=attributes[EIATTR_REGCOUNT],
        static_shared_bytes=shared_bytes,
        local_bytes_per_thread=local_bytes,
    )


def machine_code_sha256(cubin: bytes, entry: str) -> str:
    """Hash a kernel's machine code: the bytes of its section of instructions.

    Line information, other kernels and the names of files do not change them.

    Returns:
        SHA-256, hexadecimal.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    return hashlib.sha256(_sections_with(cubin, entry)[f".text.{entry}"].data).hexdigest()


def machine_code_bytes(cubin: bytes, entry: str) -> int:
    """The size of a kernel's machine code, bytes.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    return _sections_with(cubin, entry)[f".text.{entry}"].size


def launch_bounds(cubin: bytes, entry: str) -> LaunchBounds:
    """Read the launch bounds of a kernel: a driver refuses other blocks and clusters.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    sections = _sections_with(cubin, entry)
    records = dict(_long_attributes(sections[f".nv.info.{entry}"]))
    block = records.get(EIATTR_REQNTID, b"")
    most = records.get(EIATTR_MAX_THREADS, b"")
    cluster = records.get(EIATTR_CTA_PER_CLUSTER, b"")
    return LaunchBounds(
        max_threads=math.prod(struct.unpack("<3I", most)) if most else 0,
        block=struct.unpack("<3I", block) if block else None,
        cluster=struct.unpack("<3I", cluster) if cluster else None,
    )


def kernel_names(cubin: bytes) -> list[str]:
    """The names of the kernels in a cubin, sorted; empty if the bytes are no cubin."""
    try:
        return _kernel_names(section.name for section in read_sections(cubin))
    except ValueError:
        return []


def parameter_sizes(cubin: bytes, entry: str) -> tuple[int, ...]:
    """The sizes of a kernel's parameters, bytes, in their order.

    Raises:
        UsageError: The bytes are no cubin, or hold no kernel of this name.
    """
    sections = _sections_with(cubin, entry)
    sizes = {}
    for attribute, data in _long_attributes(sections[f".nv.info.{entry}"]):
        if attribute == EIATTR_KPARAM_INFO and len(data) == 12:
            # Its number and offset, then bit fields whose upper 14 bits are the size.
            _, number, _, packed = struct.unpack("<IHHI", data)
            sizes[number] = packed >> 18
    return tuple(size for _, size in sorted(sizes.items()))


def _sections_with(cubin: bytes, entry: str) -> dict[str, Section]:
    """Read the sections by name, and make sure that there is a kernel of this name."""
    try:
        sections = {section.name: section for section in read_sections(cubin)}
    except ValueError as error:
        message = f"not a cubin ({error}): compile it with memlab.device.compiler.compile"
        raise UsageError(message) from error
    if f".text.{entry}" not in sections:
        message = (
            f"the compiled code has no kernel {entry!r}, "
            f"{suggest_nearest(entry, _kernel_names(sections))}; "
            'a kernel keeps its name when it is declared extern "C" __global__'
        )
        raise UsageError(message)
    return sections


def _kernel_names(sections: Iterable[str]) -> list[str]:
    """The names of the kernels: every kernel has a section of attributes."""
    prefix = ".nv.info."
    return sorted(name.removeprefix(prefix) for name in sections if name.startswith(prefix))


def _function_attributes(sections: Mapping[str, Section], entry: str) -> Iterator[tuple[int, int]]:
    """The attributes in `.nv.info` that hold one number for this function."""
    symbols = symbol_names(sections[".symtab"])
    for attribute, data in _long_attributes(sections[".nv.info"]):
        if len(data) == 8:
            symbol, value = struct.unpack("<II", data)
            if symbols[symbol] == entry:
                yield attribute, value


def _long_attributes(info: Section) -> Iterator[tuple[int, bytes]]:
    """The attributes in a section whose values are longer than two bytes.

    A record is one byte of format, one byte of attribute, and two bytes of value or size.
    """
    data = info.data
    position = 0
    while position < len(data):
        value_format, attribute, size = struct.unpack_from("<BBH", data, position)
        position += 4
        if value_format == EIFMT_SVAL:
            yield attribute, data[position : position + size]
            position += size
