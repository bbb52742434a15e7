"""Reads the CUDA code in a cubin, a fat binary, a library or a program, by NVIDIA's `cuobjdump`.

cuobjdump knows all forms and compressions of such files. It reads the user's file, and runs in a
child process with limits, since the file may come from anyone.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from memlab.device.compiler import forked_process, ptx_text
from memlab.device.compiler.cuda_tools import find_cuda_tool
from memlab.errors import DeviceError, UsageError

_EXTRACTED = re.compile(r"\.(sm_\d+[af]?)\.cubin$")
_FATAL = re.compile(r"^cuobjdump (?:fatal|error)\s*:\s*(.*)$", re.M)
_CHILD_TIMEOUT_S = forked_process.COMPILE_TIMEOUT_S - 5


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture.

    Attributes:
        target: The architecture, and whether it is for this one alone.
        code: The ELF file.
    """

    target: ptx_text.PtxTarget
    code: bytes


@lru_cache(maxsize=8)
def ptx_modules(path: Path, _modified_ns: int, _nbytes: int) -> tuple[str, ...]:
    """The PTX of a file, module by module; `state_of` gives the arguments.

    Raises:
        UsageError: The file holds no CUDA code, or is damaged.
        DeviceError: There is no cuobjdump.
    """
    text = _run_cuobjdump(path, ["-ptx"])[0].decode(errors="replace")
    return tuple(ptx_text.split_modules(text))


@lru_cache(maxsize=8)
def cubins(path: Path, _modified_ns: int, _nbytes: int) -> tuple[Cubin, ...]:
    """The machine code of a file; `state_of` gives the arguments.

    Of files of one name for one architecture, the last is kept, as cuobjdump does.

    Raises:
        UsageError, DeviceError: As `ptx_modules`.
    """
    _, files = _run_cuobjdump(path, ["-xelf", "all"])
    return tuple(
        Cubin(ptx_text.read_target(name[1]), code)
        for file, code in files.items()
        if (name := _EXTRACTED.search(file))
    )


def state_of(path: str) -> tuple[Path, int, int]:
    """A file as it is now: its path, the time of its last change in nanoseconds, and its bytes.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        resolved = Path(path).resolve(strict=True)
        state = resolved.stat()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path} ({reason}): check its name") from None
    return resolved, state.st_mtime_ns, state.st_size


def _run_cuobjdump(path: Path, options: Sequence[str]) -> tuple[bytes, dict[str, bytes]]:
    """Run cuobjdump on a file; return its output, and the files that it wrote, by name."""
    tool = find_cuda_tool("cuobjdump")
    if tool is None:
        raise DeviceError(
            f"there is no cuobjdump to read {path.name}: pip install 'memlab[nvcc]' brings it"
        )
    command = [str(tool), *options, str(path)]
    try:
        answer = forked_process.call_in_child(partial(_run, command))
    except forked_process.ChildProcessLostError as lost:
        raise UsageError(f"cuobjdump {lost} on {path.name}: name a file with PTX") from None
    if isinstance(answer, str):
        raise UsageError(f"{path.name}: {answer}: name a file with CUDA code, or with PTX")
    return answer


def _run(command: Sequence[str]) -> tuple[bytes, dict[str, bytes]] | str:
    """Run a command in a folder of its own; return the output and the files, or why it failed."""
    with tempfile.TemporaryDirectory(prefix="memlab-") as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CHILD_TIMEOUT_S,
                check=False,
            )
            written = [file for file in sorted(Path(folder).iterdir()) if file.is_file()]
            files = {file.name: file.read_bytes() for file in written}
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"cuobjdump cannot be run ({error})"
    messages = (done.stdout + done.stderr).decode(errors="replace")
    if "does not contain device code" in messages:
        return "it holds no CUDA code"
    if done.returncode:
        fatal = _FATAL.search(messages)
        return f"cuobjdump cannot read it ({fatal[1] if fatal else f'code {done.returncode}'})"
    return done.stdout, files
