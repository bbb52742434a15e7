"""nvcc, NVIDIA's compiler driver, which compiles what NVRTC refuses: it reads the host's headers.

Only its passes for device code are used: the preprocessor of the host's compiler, NVIDIA's front
end, and ptxas. nvcc gives its arguments to a shell. So none of them is a user's text: definitions
are in a file, the user's headers are copies in a temporary folder, to whose folders links lead, and
the source stands there too, behind a line that gives its real name.

What the preprocessor read is known afterwards, from the markers in its output. Where it read a file
outside the named folders, those of the system's headers and CUDA's, nothing of the result is shown.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from memlab.device.compiler import headers
from memlab.device.compiler.assembler_log import with_source_lines
from memlab.device.compiler.cache import file_state
from memlab.device.compiler.cuda_tools import find_cuda_tool
from memlab.device.compiler.headers import HeaderChanges, IncludedHeaders
from memlab.device.compiler.translation_unit import (
    CompilerAnswer,
    CompilerOutput,
    TranslationUnit,
)
from memlab.errors import DeviceError, UsageError

INSTALL_ADVICE = "pip install 'memlab[nvcc]'"

PROBE_TIMEOUT_S = 30.0
"""The limit for asking nvcc and the host's compiler what they use, seconds."""

_SOURCE = "memlab_source.cu"
_DEFINITIONS = "memlab_definitions.h"
_COPIES = "memlab_copies"
_SOURCE_FOLDER, _INCLUDE_FOLDER = "memlab_beside", "memlab_include"
_STUB_FOLDER, _EMPTY_FOLDER = "memlab_stubs", "memlab_empty"
_TOOLKIT_FOLDER = "memlab_toolkit"
_DEPTH = 8
"""How often a name of a header that is left out may begin with `../`."""

_NAME_VARIABLE = "memlab_name_expression"
_OWN_OPTIONS = (
    "--expt-relaxed-constexpr",  # constexpr functions of the host, as NVRTC allows them
    "--extended-lambda",
    "-Wno-deprecated-gpu-targets",
    "-allow-unsupported-compiler",  # it preprocesses only
)
_REMEDIES = {"requires separate compilation mode": "-rdc=true"}
"""Options by the pattern of the message that asks for each: beside a kernel that launches kernels
the others of the file still run."""
_NVRTC_ONLY = frozenset({"--device-int128", "-default-device"})
_SAFE_OPTION = re.compile(r"-[-\w=.,+]+")
"""Options without characters that a shell interprets."""

_ENTERED = re.compile(r'^# \d+ "((?:[^"\\\n]|\\.)*)" 1\b', re.M)
_GCC_MESSAGE = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+)(?::\d+)?: (?P<kind>fatal error|error|warning): (?P<text>.*)$"
)
_GCC_CONTEXT = re.compile(
    r"(?:In file included from|\s+from) .*[:,]$|compilation terminated\.|\s*(?:\d+ )?\s*\|"
)
_MISSING_FILE = re.compile(r"(\S.*): No such file or directory")
_PTX_FILE = re.compile(r'^(\s*\.file\s+\d+\s+")([^"]+)(")', re.M)
_NAME_VALUE = re.compile(
    rf"^(?:\.visible )?\.global[^\n]* (?P<variable>\w*{_NAME_VARIABLE}\w*)"
    r" = (?:generic\()?(?P<kernel>[\w$]+)\)?;\n",
    re.M,
)
_VERSION = re.compile(r"__CUDACC_VER_MAJOR__=(\d+) .*__CUDACC_VER_MINOR__=(\d+) .*_BUILD__=(\d+)")
_FOLDER_OPTION = re.compile(r'"(?:-I|-isystem" ")?([^"]+)"')


@dataclass(frozen=True)
class Toolchain:
    """nvcc, and what it uses.

    Attributes:
        nvcc: Its path.
        host_compiler: The path of the host's compiler.
        version: Both versions, such as `nvcc 13.5.37 with gcc 12.2.0`.
        folders: The folders of CUDA's headers and of the system's, in the order of the search.
    """

    nvcc: Path
    host_compiler: Path
    version: str
    folders: tuple[Path, ...]


@cache
def find_toolchain() -> Toolchain | None:
    """Find nvcc and ask it what it uses; None if there is no nvcc.

    Raises:
        DeviceError: It does not work; mostly it finds no compiler of the host.
    """
    nvcc = find_cuda_tool("nvcc")
    if nvcc is None:
        return None
    # A dry run prints the commands.
    plan = _output_of([str(nvcc), "--dryrun", "-ptx", "-x", "cu", os.devnull, "-o", os.devnull])
    command = next((line[3:] for line in plan.splitlines() if re.search(r" -E -x ", line)), "")
    version = _VERSION.search(plan)
    words = shlex.split(command)
    if not words or version is None:
        first = next((line for line in plan.splitlines() if not line.startswith("#$")), "no output")
        raise DeviceError(f"{nvcc} does not work ({first.strip()}): reinstall it")
    search_path = next(
        (line.partition("PATH=")[2] for line in plan.splitlines() if line.startswith("#$ PATH=")),
        os.environ.get("PATH", ""),
    )
    host = _which(words[0], search_path)
    if host is None:
        raise DeviceError(
            f"nvcc needs the host's compiler {words[0]}, which is not there: install g++"
        )
    answer = _output_of([str(host), "-E", "-v", "-x", "c++", os.devnull])
    listed = answer.partition("search starts here:")[2].partition("End of search list")[0]
    system = [line.strip() for line in listed.splitlines() if line.startswith(" ")]
    found = re.search(r"^(\w+) version (\S+)|^.*?(clang) version (\S+)", answer, re.M)
    if not system or found is None:
        raise DeviceError(
            f"nvcc needs the host's compiler {host}, which does not work with C++: install g++"
        )
    host_name = " ".join(word for word in found.groups() if word)
    cuda = [
        Path(folder)
        for line in plan.splitlines()
        if re.match(r"#\$ (?:SYSTEM_)?INCLUDES=", line)
        for folder in _FOLDER_OPTION.findall(line.partition("=")[2])
    ]
    return Toolchain(
        nvcc,
        host,
        f"nvcc {'.'.join(version.groups())} with {host_name}",
        tuple(path for path in (*cuda, *map(Path, system)) if path.is_dir()),
    )


def remedies(log: str) -> dict[str, str]:
    """The options that a log asks for, by the pattern of the message that asks for each."""
    return {pattern: option for pattern, option in _REMEDIES.items() if re.search(pattern, log)}


def run_nvcc(
    unit: TranslationUnit,
    included: IncludedHeaders,
    changes: HeaderChanges,
    toolchain: Toolchain,
    folder: Path,
) -> CompilerAnswer:
    """Compile.

    Args:
        unit: The translation unit.
        included: The headers that it can include.
        changes: What differs from them.
        toolchain: nvcc and what it uses.
        folder: An empty folder for its files.

    Returns:
        The output, the log of a failure, or the error if nvcc cannot be used.
    """
    try:
        named = _lay_out(folder, unit, included, changes)
        options = _safe_options(unit)
        folders = [f"-I{name}" for name in named if name.startswith(_INCLUDE_FOLDER)]
        toolkit = [name for name in named if name.startswith(_TOOLKIT_FOLDER)]
        front_end = [
            *(
                "-ptx",
                f"{_SOURCE_FOLDER}/{_SOURCE}",
                "-o",
                "kernel.ptx",
                "--keep",
                "--keep-dir",
                ".",
            ),
            *("-Xcompiler", "-imacros", "-Xcompiler", _DEFINITIONS),
            *("-Xcompiler", "-fno-diagnostics-show-caret", *folders),
            *("-Xcompiler", f"-idirafter{_STUB_FOLDER}"),
            *(word for name in toolkit for word in ("-Xcompiler", f"-idirafter{name}")),
            *("-Xcompiler", f"-idirafter{_empty_search_folder()}"),
            *("-Xcicc", "--orig_src_path_name", "-Xcicc", f"/{_SOURCE}"),  # names do not change
        ]
        failed, log = _call_nvcc(toolchain, folder, [*front_end, *options])
        read = _files_read(folder)
        outside = _file_outside(read, folder, named, toolchain)
        if outside is not None:
            message = (
                f"{unit.source_name} or its headers include {outside}, which lies outside the "
                f"folder of {unit.source_name} and those named: add -I {outside.parent}"
            )
            return UsageError(message)
        log = log.replace(f"{_SOURCE_FOLDER}/{_SOURCE}", unit.source_name)
        log = _readable_log(log, folder, named, toolchain)
        if failed:
            ptx_file = folder / "kernel.ptx"  # there if ptxas refuses it
            text = ptx_file.read_text() if ptx_file.is_file() else ""
            ptx = _with_real_files(text, folder, unit.source_name, named)
            return with_source_lines(log, ptx, unit.source_name) or "nvcc failed without a message"
        ptx, lowered = _without_name_variable((folder / "kernel.ptx").read_text())
        ptx = _with_real_files(ptx, folder, unit.source_name, named)
        (folder / "kernel.ptx").write_text(ptx)
        assembler = ["-cubin", "kernel.ptx", "-o", "kernel.cubin"]
        failed, messages = _call_nvcc(toolchain, folder, [*assembler, *options])
        log = "\n".join(text for text in (log, messages.strip()) if text)
        if failed:
            return with_source_lines(log, ptx, unit.source_name) or "ptxas failed without a message"
        if unit.name_expression and not lowered:
            return f"__nv_name_map(1): error: {unit.name_expression} names no function"
        tools = [toolchain.nvcc, toolchain.host_compiler]
        system = [path for path in read if not path.is_relative_to(folder)]
        states = (file_state(path) for path in dict.fromkeys([*tools, *system]))
        return CompilerOutput(
            ptx.rstrip("\n"),
            (folder / "kernel.cubin").read_bytes(),
            log,
            lowered,
            compiler=toolchain.version,
            left_out=tuple(n for n in changes.left_out if _empty_header(folder, n) in read),
            files=tuple(state for state in states if state is not None),
        )
    except (OSError, DeviceError) as error:
        return error if isinstance(error, DeviceError) else DeviceError(f"nvcc: {error}")


def _lay_out(
    folder: Path, unit: TranslationUnit, included: IncludedHeaders, changes: HeaderChanges
) -> Mapping[str, str]:
    """Write the source, its headers and the definitions, and link the folders to search.

    Returns:
        What the links stand for in messages: the user's spelling of each folder.
    """
    contents = dict(included.own)
    for _, path, real in included.lookups:
        content = contents[real]
        if path in changes.texts:
            content = changes.texts[path].encode(errors="surrogateescape")
        for parent in Path(path).parents:  # of sub/../x.h, sub must exist
            _copy_of(folder, str(parent)).mkdir(parents=True, exist_ok=True)
        _copy_of(folder, path).write_bytes(content)
    defined = [option[2:] for option in unit.options if option.startswith("-D")]
    defined += [f"{name}={value}" for name, value in unit.defines.items()]
    pairs = (text.partition("=") for text in defined)
    definitions = "".join(
        f"#define {name} {value if equals else 1}\n" for name, equals, value in pairs
    )
    (folder / _DEFINITIONS).write_text(definitions, errors="surrogateescape")
    marker = _quoted(unit.source_name)
    source = f"# 1 {marker}\n{unit.source}\n"
    if unit.name_expression:  # the variable's initial value instantiates and names the kernel
        source += (
            f'# 1 "__nv_name_map"\n__device__ const void* const volatile {_NAME_VARIABLE} = '
            f"(const void*)(&{unit.name_expression});\n"
        )
    # nvcc has CUDA's headers itself, and finds the replacements last.
    own = (*headers.package_folders(), *headers.toolkit_folders(), str(headers.HOST_HEADERS))
    named = {_SOURCE_FOLDER: str(Path(unit.source_name).parent)}
    for index, include in enumerate(dict.fromkeys(headers.include_folders(unit.options))):
        if include not in own:
            named[f"{_INCLUDE_FOLDER}{index}"] = include
    for name, target in named.items():
        _copy_of(folder, target).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(_copy_of(folder, target), target_is_directory=True)
    (folder / _SOURCE_FOLDER / _SOURCE).write_text(source, errors="surrogateescape")
    named[_STUB_FOLDER] = str(headers.HOST_HEADERS)
    (folder / _STUB_FOLDER).symlink_to(headers.HOST_HEADERS, target_is_directory=True)
    for index, path in enumerate(headers.toolkit_folders()):  # nvcc's may be pip's, which has less
        named[f"{_TOOLKIT_FOLDER}{index}"] = path
        (folder / f"{_TOOLKIT_FOLDER}{index}").symlink_to(path, target_is_directory=True)
    search = folder / _empty_search_folder()
    search.mkdir(parents=True)
    for name in changes.left_out:
        empty = _empty_header(folder, name)
        if empty.is_relative_to(folder / _EMPTY_FOLDER):
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
    return named


def _copy_of(folder: Path, path: str) -> Path:
    """Where the copy of a user's file or folder lies."""
    absolute = os.path.normpath(Path.cwd() / path)
    return folder / _COPIES / Path(absolute).relative_to("/")


def _empty_header(folder: Path, name: str) -> Path:
    """Where the empty replacement of a header lies."""
    return Path(os.path.normpath(folder / _empty_search_folder() / name))


def _empty_search_folder() -> str:
    """The folder in which empty headers are searched, so deep that `../` leads nowhere else."""
    return "/".join([_EMPTY_FOLDER, *("d" * _DEPTH)])


def _safe_options(unit: TranslationUnit) -> list[str]:
    """The options besides definitions and folders.

    Raises:
        DeviceError: One holds characters that a shell interprets.
    """
    unit = replace(unit, defines={})
    options = [
        option
        for option in unit.arguments
        if option not in _NVRTC_ONLY and not option.startswith(("-D", "-I", "--include-path="))
    ]
    for option in options:
        if not _SAFE_OPTION.fullmatch(option):
            raise DeviceError(f"nvcc is not given the option {option!r}: leave it out")
    return [*options, *_OWN_OPTIONS]


def _call_nvcc(toolchain: Toolchain, folder: Path, options: Sequence[str]) -> tuple[bool, str]:
    """Whether nvcc failed, and what it printed."""
    environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    done = subprocess.run(
        [str(toolchain.nvcc), *options],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode != 0, done.stdout.decode(errors="replace")


def _files_read(folder: Path) -> list[Path]:
    """The files that the preprocessor entered, without links; empty if it failed."""
    texts = (path.read_text(errors="surrogateescape") for path in folder.glob("*.ii"))
    names = dict.fromkeys(name for text in texts for name in _ENTERED.findall(text))
    paths = (folder / re.sub(r"\\(.)", r"\1", name) for name in names)
    return list(dict.fromkeys(path.resolve() for path in paths))


def _allowed_folders(
    folder: Path, named: Mapping[str, str], toolchain: Toolchain
) -> tuple[Path, ...]:
    return (folder, *(Path(path).resolve() for path in named.values()), *toolchain.folders)


def _file_outside(
    files: Sequence[Path], folder: Path, named: Mapping[str, str], toolchain: Toolchain
) -> Path | None:
    """The first of the files that is in none of the folders that may be read."""
    allowed = _allowed_folders(folder, named, toolchain)
    return next((path for path in files if not _is_below(path, allowed)), None)


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder.resolve()) for folder in folders)


def _readable_log(log: str, folder: Path, named: Mapping[str, str], toolchain: Toolchain) -> str:
    """The log with the user's folders, and the preprocessor's messages in the front end's form."""
    allowed = _allowed_folders(folder, named, toolchain)
    lines = []
    for line in log.splitlines():
        message = _GCC_MESSAGE.match(line)
        if message is None:
            if not _GCC_CONTEXT.match(line):
                lines.append(line)
            continue
        # Where the preprocessor failed, no marker tells what it read.
        place = (folder / message["file"]).resolve()
        may_show = _is_below(place, allowed) or not place.exists()
        if not may_show:
            continue
        kind, text = message["kind"], message["text"]
        missing = _MISSING_FILE.fullmatch(text)
        text = f'cannot open source file "{missing[1]}"' if missing else text
        kind = kind.replace("fatal", "catastrophic")
        lines.append(f"{message['file']}({message['line']}): {kind}: {text}")
    return _with_named_folders("\n".join(lines).strip(), named)


def _with_named_folders(text: str, named: Mapping[str, str]) -> str:
    """A text in which the user's spellings stand for the links."""
    for name, path in sorted(named.items(), reverse=True):  # include10 before include1
        text = text.replace(f"{name}/", "" if path == "." else f"{path}/")
    return text


def _with_real_files(ptx: str, folder: Path, source_name: str, named: Mapping[str, str]) -> str:
    """PTX whose `.file` directives give the files as the user does; nvcc makes paths absolute."""
    own = os.path.normpath(folder / source_name)

    def rename(match: re.Match[str]) -> str:
        path = match[2]
        if os.path.normpath(path) == own:
            path = source_name
        elif path.startswith(f"{folder}/"):
            path = _with_named_folders(path.removeprefix(f"{folder}/"), named)
        return f"{match[1]}{path}{match[3]}"

    return _PTX_FILE.sub(rename, ptx)


def _without_name_variable(ptx: str) -> tuple[str, str]:
    """PTX without the variable whose value is the kernel that was asked for, and its name."""
    found = _NAME_VALUE.search(ptx)
    if found is None:
        return ptx, ""
    # Debug information has the variable's address.
    named = ptx.replace(found[0], "").replace(f".b64 {found['variable']}", ".b64 0")
    return named, found["kernel"]


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\") + '"'


def _which(command: str, search_path: str) -> Path | None:
    found = shutil.which(command, path=search_path)
    return None if found is None else Path(found).resolve()


def _output_of(command: Sequence[str]) -> str:
    """What a program prints.

    Raises:
        DeviceError: It cannot be started, or takes too long.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{command[0]} cannot be used ({error}): reinstall it") from error
    return done.stdout.decode(errors="replace")
