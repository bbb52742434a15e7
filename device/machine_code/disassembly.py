"""Disassembles a cubin by NVIDIA's `nvdisasm`, and reads its text."""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

from memlab.device.compiler import cache as compile_cache
from memlab.device.compiler.cuda_tools import find_cuda_tool, tool_version
from memlab.device.compiler.translation_unit import Architecture
from memlab.device.machine_code.instructions import (
    Control,
    MachineCode,
    MachineInstruction,
    decode_control,
    has_control,
)
from memlab.errors import DeviceError

_PACKAGE = "nvidia-cuda-nvdisasm"
_OPTIONS = ("-c", "-hex", "-gp")  # code only, with its encoding and the lines of the PTX
_TIMEOUT_S = 60

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
_ANY_SECTION = re.compile(r"\s*\.section\s")
_LABEL = re.compile(r"([.$\w]+):")
_FUNCTION = re.compile(r"\s*\.type\s+(\S+?),@function")
_LINE = re.compile(r'\s*//## File ".*?", line (\d+)')
_INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/")
_UPPER_WORD = re.compile(r"\s+/\* 0x([0-9a-f]{16}) \*/")
_TARGETS = re.compile(r'\(\*"(?:BRANCH|CALL)_TARGETS ([^"]*)"\*\)')
_TARGET = re.compile(r"`\(([^)]+)\)")
_STATEMENT = re.compile(r"(?:@(!?U?P[T\d]+)\s+)?(\S+)\s*(.*)", re.DOTALL)


class DisassemblyError(DeviceError):
    """There is no machine code to read: nvdisasm is missing, or cannot read this cubin."""


@lru_cache(maxsize=8)
def disassemble(cubin: bytes, entry: str, architecture: Architecture) -> MachineCode:
    """Read the machine code of a kernel.

    Args:
        cubin: The cubin.
        entry: The kernel's name in it.
        architecture: The compute capability that it was compiled for.

    Raises:
        DisassemblyError: nvdisasm is not installed, cannot read the cubin, or finds no such kernel.
    """
    return read_disassembly(_disassembled(cubin), entry, architecture)


def read_disassembly(text: str, entry: str, architecture: Architecture) -> MachineCode:
    """Read the machine code of a kernel from the text of `nvdisasm -c -hex -gp`.

    Raises:
        DisassemblyError: The text holds no such kernel.
    """
    lines = list(_lines_of(text, entry))
    addresses, functions = _addresses(lines)
    encodings = has_control(architecture)
    instructions = []
    ptx_line = 0
    for index, line in enumerate(lines):
        if match := _LINE.match(line):
            ptx_line = int(match[1])
        elif line.endswith(":") and addresses.get(line[:-1]) in functions:
            ptx_line = 0  # a function of the compiler's own has no lines
        elif match := _INSTRUCTION.match(line):
            upper = _UPPER_WORD.match(lines[index + 1]) if index + 1 < len(lines) else None
            if upper is None:
                raise DisassemblyError(f"nvdisasm's line is not understood: {line.strip()[:60]}")
            control = decode_control(int(upper[1], 16)) if encodings else None
            address, statement = int(match[1], 16), match[2]
            instructions.append(_instruction(address, statement, addresses, ptx_line, control))
    if not instructions:
        raise DisassemblyError(f"the cubin has no machine code of a kernel {entry!r}")
    return MachineCode(entry, architecture, tuple(instructions), functions)


@cache
def find_nvdisasm() -> Path:
    """The path of nvdisasm.

    Raises:
        DisassemblyError: There is none.
    """
    found = find_cuda_tool("nvdisasm")
    if found is None:
        raise DisassemblyError(f"nvdisasm is not installed: pip install {_PACKAGE}")
    return found


def _disassembled(cubin: bytes) -> str:
    """The text of nvdisasm, from the cache if there."""
    key = compile_cache.hash_groups(
        [("nvdisasm", *_OPTIONS, tool_version(find_nvdisasm(), _PACKAGE)), (cubin,)]
    )
    try:
        parts = compile_cache.load_parts(key)
        if parts is not None:
            return zlib.decompress(parts[0]).decode()
    except (IndexError, ValueError, zlib.error):
        pass  # damaged: it is made again
    text = _run_nvdisasm(cubin)
    compile_cache.store_parts(key, [zlib.compress(text.encode(), 1)])
    return text


def _run_nvdisasm(cubin: bytes) -> str:
    """Run nvdisasm on a cubin, which it reads from a file: here one in memory."""
    tool = find_nvdisasm()
    try:
        with os.fdopen(os.memfd_create("kernel.cubin"), "wb") as file:
            file.write(cubin)
            file.flush()
            number = file.fileno()
            result = subprocess.run(
                [tool, *_OPTIONS, f"/proc/self/fd/{number}"],
                capture_output=True,
                pass_fds=[number],
                timeout=_TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DisassemblyError(f"nvdisasm cannot be run ({error})") from error
    if result.returncode:
        reason = result.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise DisassemblyError(f"nvdisasm cannot read the cubin: {reason}")
    return result.stdout.decode(errors="replace")


def _lines_of(text: str, entry: str) -> Iterator[str]:
    """The lines of the section that holds a kernel."""
    inside = False
    for line in text.splitlines():
        if _ANY_SECTION.match(line):
            section = _SECTION.match(line)
            inside = section is not None and section[1] == entry
        elif inside:
            yield line


def _addresses(lines: Sequence[str]) -> tuple[dict[str, int], dict[int, str]]:
    """The addresses of labels, and the names of functions by their address.

    A label stands before the instruction that it names.
    """
    addresses: dict[str, int] = {}
    named: set[str] = set()
    waiting: list[str] = []
    for line in lines:
        if match := _INSTRUCTION.match(line):
            addresses.update(dict.fromkeys(waiting, int(match[1], 16)))
            waiting = []
        elif match := _FUNCTION.match(line):
            named.add(match[1])
        elif match := _LABEL.match(line):
            waiting.append(match[1])
    functions = {addresses[name]: name for name in named if addresses.get(name)}
    return addresses, functions


def _instruction(
    address: int,
    statement: str,
    addresses: dict[str, int],
    ptx_line: int,
    control: Control | None,
) -> MachineInstruction:
    """Read one instruction, without its encoding."""
    listed = _TARGETS.search(statement)
    targets = tuple(
        addresses[name] for name in (listed[1].split(",") if listed else ()) if name in addresses
    )
    match = _STATEMENT.match(_TARGETS.sub("", statement).strip())
    assert match is not None
    predicate, opcode, rest = match.groups()
    named = _TARGET.search(rest)
    return MachineInstruction(
        address=address,
        predicate=predicate or "",
        opcode=opcode,
        operands=tuple(part for part in re.split(r"\s*,\s*", rest.strip()) if part),
        target=addresses.get(named[1]) if named else None,
        ptx_line=ptx_line,
        control=control,
        targets=targets,
    )
