"""Assembles a kernel that comes as PTX: machine code by ptxas, in a child process, with a cache."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache, partial
from pathlib import Path

from memlab.device.compiler import cache as compile_cache
from memlab.device.compiler import forked_process, ptx_text
from memlab.device.compiler.cuda_tools import find_cuda_tool, tool_version
from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit
from memlab.device.properties import architecture_name, version_text
from memlab.errors import UsageError

PTXAS_PACKAGE = "nvidia-cuda-nvcc"
"""The pip package that brings ptxas; the extra `nvcc` installs it."""
INSTALL_ADVICE = "pip install 'memlab[nvcc]'"
_NO_PTXAS = f"there is no ptxas to make machine code of the PTX: {INSTALL_ADVICE}"

_MESSAGE = re.compile(r"^ptxas [^,\n]*, line (\d+); (?:error|fatal)\s*: (.*)$", re.M)
_FATAL = re.compile(r"^ptxas (?:fatal|error)\s*: (?!Ptx assembly aborted)(.*)$", re.M)
_NOT_KNOWN = re.compile(
    r"Unsupported \.version [\d.]+|is not defined for option 'gpu-name'|Unsupported \.target"
)
"""Messages about what this release of ptxas does not know, whatever the code is."""
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)")
_CHILD_TIMEOUT_S = forked_process.COMPILE_TIMEOUT_S - 5  # ptxas ends before its parent does


def assemble(unit: TranslationUnit) -> CompilerOutput:
    """Make the machine code of a unit that has PTX, or take it from the cache.

    Returns:
        The PTX as it came, and its machine code; empty machine code, with the reason in `log`,
        where there is no ptxas, or one that is too old for the PTX.

    Raises:
        UsageError: The PTX is for another architecture, or ptxas refuses it.
    """
    check_target(unit)
    if unit.cubin:
        return CompilerOutput(unit.ptx, unit.cubin, "", "", unit.cubin_compiler)
    tool = find_cuda_tool("ptxas")
    if tool is None:
        return CompilerOutput(unit.ptx, b"", _NO_PTXAS, "")
    options = _options(unit)
    key = compile_cache.hash_groups(
        [("ptxas", tool_version(tool, PTXAS_PACKAGE)), options, (unit.ptx,)]
    )
    output = compile_cache.load_output(key)
    if output is None:
        output = _assembled(unit, tool, options)
        compile_cache.store_output(key, output)
    return output


def check_target(unit: TranslationUnit) -> None:
    """Refuse PTX that a driver would refuse on a GPU of the unit's architecture.

    Raises:
        UsageError: It has no target, is made for a later architecture or for one that is not this
            one, or has addresses of 32 bits.
    """
    if not unit.ptx:
        return
    target = ptx_text.target(unit.ptx)
    if target is None:
        raise UsageError("the PTX has no .target: write .target sm_80, say, below .version")
    if ptx_text.address_bits(unit.ptx) == 32:
        raise UsageError(
            "the PTX has addresses of 32 bits, and GPUs take 64: compile it with nvcc -m64"
        )
    if target.runs_as_ptx(unit.architecture):
        return
    kind = {"": "and later GPUs", "a": "alone", "f": "and its family"}[target.suffix]
    device = architecture_name(unit.architecture)
    raise UsageError(
        f"the PTX is for {target} {kind}, and the device is {device}: choose a device of compute "
        f"capability {version_text(divmod(target.number, 10))}, or make the PTX for {device}"
    )


def _options(unit: TranslationUnit) -> list[str]:
    """The options of ptxas: those of NVRTC that reach the assembler."""
    target = ptx_text.target(unit.ptx)
    suffix = target.suffix if target else ""
    options = [f"-arch={architecture_name(unit.architecture)}{suffix}", "-lineinfo"]
    for option in unit.options:
        if option.startswith("--maxrregcount="):
            options.append(option)
        elif option.startswith("--ptxas-options="):
            options.append(option.partition("=")[2])
    return options


def _assembled(unit: TranslationUnit, tool: Path, options: list[str]) -> CompilerOutput:
    """Run ptxas."""
    release = _release(tool)
    try:
        cubin, log = forked_process.call_in_child(partial(_run, tool, options, unit.ptx))
    except forked_process.ChildProcessLostError as lost:
        raise UsageError(
            f"ptxas {lost} on this PTX: remove parts to find the one that it cannot process"
        ) from None
    if cubin:
        return CompilerOutput(unit.ptx, cubin, log, "", f"ptxas {release}")
    if unknown := _NOT_KNOWN.search(log):
        reason = f"ptxas {release} makes no machine code of this PTX ({unknown[0]})"
        return CompilerOutput(unit.ptx, b"", f"{reason}: {INSTALL_ADVICE} brings a newer one", "")
    raise UsageError(_refusal(log))


def _run(tool: Path, options: list[str], ptx: str) -> tuple[bytes, str]:
    """Run ptxas on a text; return the machine code, empty if it failed, and the messages."""
    with tempfile.TemporaryDirectory(prefix="memlab-") as folder:
        text, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        try:
            text.write_text(ptx, encoding="utf-8", errors="replace", newline="")
            result = subprocess.run(
                [tool, *options, text.name, "-o", cubin.name],
                cwd=folder,
                capture_output=True,
                timeout=_CHILD_TIMEOUT_S,
                check=False,
            )
            log = (result.stdout + result.stderr).decode(errors="replace").strip()
            return (b"" if result.returncode else cubin.read_bytes()), log
        except subprocess.TimeoutExpired:
            return b"", f"ptxas fatal : no end within {_CHILD_TIMEOUT_S:g} s"
        except OSError as error:
            return b"", f"ptxas fatal : cannot be run ({error})"


def _refusal(log: str) -> str:
    """The message for PTX that ptxas refuses: its first error."""
    found = _MESSAGE.findall(log)
    if found:
        line, text = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"PTX line {line}: ptxas: {text}{more}: correct that line, or make the PTX again"
    fatal = _FATAL.search(log)
    reason = fatal[1] if fatal else (log.partition("\n")[0] or "no reason is given")
    return f"ptxas refuses the PTX: {reason}: make the PTX again"


@cache
def _release(tool: Path) -> str:
    """The release of ptxas, such as `13.0.88`; empty if it does not tell."""
    try:
        result = subprocess.run(
            [tool, "--version"], capture_output=True, timeout=_CHILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _RELEASE.search(result.stdout.decode(errors="replace"))
    return found[1] if found else ""
