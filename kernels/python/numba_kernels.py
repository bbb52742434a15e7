"""Kernels of Numba: a function decorated with `numba.cuda.jit`, compiled to PTX without a GPU.

Numba passes an array as seven or more parameters: the object that manages its memory and its
parent (both null on a GPU), the number of elements, the bytes of one, the pointer, then the extent
and the stride in bytes of each dimension (`numba.cuda.np.arrayobj`, the structure `array`).

NVVM compiles without link-time optimization (LTO), whose output is no PTX, so the machine code may
differ from that of Numba's own default on a GPU.
"""

from __future__ import annotations

import ast
import inspect
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import dtype_bytes
from memlab.kernels.python.parameters import number_of, one_line, parsed_arguments, source_of
from memlab.kernels.signature import KernelParameter
from memlab.kernels.user.arguments.layout import ArgumentLayout
from memlab.kernels.user.arguments.specifications import (
    NUMPY_DTYPES,
    AliasSpecification,
    ArraySpecification,
    NullSpecification,
    ScalarSpecification,
    Specification,
)
from memlab.kernels.user.compiled_source import CompiledSource
from memlab.kernels.user.kernel import UserKernel, parse_defines

INSTALL_ADVICE = "pip install 'memlab[numba]'"

_WORD_BYTES = 8
_SHORT_DTYPES = {name: short for short, name in NUMPY_DTYPES.items()} | {"boolean": "bool"}
_FLAGS_OF_NVRTC = ("include", "std", "ftz", "prec_div", "prec_sqrt", "fmad")
_MISSING_LIBRARY = ("DynamicLibNotFoundError", "NvvmSupportError")
"""The errors of cuda-pathfinder and Numba where there is no NVVM."""
_NEWER_THAN_ANY_DRIVER = (99, 0, 0)
_LACKING = re.compile(r"module '(numpy|llvmlite)[\w.]*' has no attribute '(\w+)'")
_PLACE = re.compile(r'File "[^"]*", line (\d+)|\((\d+)\)$', re.M)
_ENTRY = re.compile(r"^\s*\.visible\s+\.entry\s+([\w$]+)", re.M)
_DECLARED = re.compile(r"^\.extern\s+\.func\b[^;{]*?([\w$]+)\s*(?:\([^;{]*)?;\n?", re.M)
_HEADER = re.compile(r"^\s*\.(?:version|target|address_size)\b.*\n", re.M)
_LINES = re.compile(r"^\s*\.(?:loc|file)\b.*\n", re.M)


def named(code: Any) -> UserKernel:
    """The user kernel of a function of Numba, with the grid and block of `function[grid, block]`.

    Raises:
        UsageError: The object is no kernel for a GPU.
    """
    dispatcher = getattr(code, "dispatcher", code)
    function = getattr(dispatcher, "py_func", None)
    options = getattr(dispatcher, "targetoptions", {})
    if not isinstance(function, FunctionType):
        raise UsageError(
            f"a {type(code).__name__} of Numba is no kernel: give a function with @cuda.jit, or "
            "function[grid, block]"
        )
    if not type(dispatcher).__module__.startswith("numba.cuda.") or options.get("device"):
        kind = "a device function" if options.get("device") else "compiled for the CPU"
        raise UsageError(
            f"{function.__name__} is {kind}, not a kernel: decorate it with numba.cuda.jit alone"
        )
    source = source_of(function.__code__)
    kernel = UserKernel(
        source.path,
        function.__name__,
        "" if source.is_file else function.__name__,
        code=dispatcher,
    )
    if dispatcher is code:
        return kernel
    return replace(kernel, grid=code.griddim, block=code.blockdim, shared=code.sharedmem)


def adapted(kernel: UserKernel, architecture: tuple[int, int]) -> UserKernel:
    """Compile a kernel for the types of its arguments, and lay these out as Numba does.

    Raises:
        UsageError: Numba cannot compile it, an argument is of a type that Numba or memlab does not
            pass, or a flag of NVRTC is given.
    """
    for option in _FLAGS_OF_NVRTC:
        if getattr(kernel, option) not in ("", None, ()):
            raise UsageError(
                f"{kernel.entry} is compiled by Numba, which has no option {option}: leave it out"
            )
    _require_numba_cuda()
    dispatcher = kernel.code
    function = _with_constants(dispatcher.py_func, kernel)
    given = parsed_arguments(kernel, list(inspect.signature(function).parameters))
    arrays = {name: each for name, each in given.items() if isinstance(each, ArraySpecification)}
    types = _chosen_types(
        dispatcher,
        [_numba_type(name, value, arrays) for name, value in given.items()],
        kernel.entry,
    )
    layout = [
        part
        for (name, value), kind in zip(given.items(), types, strict=True)
        for part in _parts(name, value, kind, arrays)
    ]
    ptx = _compile(function, tuple(types), dispatcher.targetoptions, kernel, architecture)
    entry = _ENTRY.search(ptx)
    source = source_of(function.__code__)
    most = dispatcher.targetoptions.get("max_registers")
    return replace(
        kernel,
        code=None,
        max_registers=most if kernel.max_registers is None else kernel.max_registers,
        compiled=CompiledSource(
            ptx,
            entry[1] if entry else "",
            source.text,
            source.path,
            tuple(part.parameter for part in layout),
        ),
        layout=ArgumentLayout(tuple(part.argument for part in layout), tuple(given)),
    )


def _require_numba_cuda() -> None:
    """Refuse the `numba.cuda` that old versions of Numba bring, which compiles otherwise.

    Raises:
        UsageError: It is not that of the package numba-cuda.
    """
    from numba import cuda

    if not hasattr(cuda, "compile_all"):
        raise UsageError(
            "this numba.cuda is Numba's own or an old one, and memlab needs that of the package "
            f"numba-cuda: {INSTALL_ADVICE}"
        )


@dataclass(frozen=True)
class _Part:
    """One parameter of the compiled kernel, with its argument."""

    parameter: KernelParameter
    argument: Specification


def _numba_type(name: str, value: Specification, arrays: dict[str, ArraySpecification]) -> Any:
    """The type that Numba gives to an argument.

    Raises:
        UsageError: Numba has none for it.
    """
    from numba.cuda import types

    if isinstance(value, AliasSpecification) and value.array in arrays:
        value = arrays[value.array]
    if isinstance(value, ArraySpecification):
        return types.Array(_element_type(types, value.dtype, name), len(value.shape), "C")
    if isinstance(value, ScalarSpecification) and (value.dtype or value.numpy_dtype):
        return _element_type(types, value.dtype or value.numpy_dtype, name)
    if isinstance(value, ScalarSpecification):
        number = value.value if isinstance(value.value, bool) else number_of(value.text)
        if isinstance(number, bool):
            return types.boolean
        if isinstance(number, float):
            return types.float64
        return types.int64 if number < 2**63 else types.uint64
    advice = (
        "pass an array in its place"
        if isinstance(value, NullSpecification)
        else "pass the parts of a tuple or a record as arguments of their own"
    )
    raise UsageError(
        f"argument {name}: memlab passes numbers and arrays to kernels of Numba, got "
        f"{value.text!r}: {advice}"
    )


def _element_type(types: Any, short: str, name: str) -> Any:
    kind = getattr(types, {"bool": "boolean"}.get(short, NUMPY_DTYPES[short]), None)
    if kind is None or short == "bf16":  # NumPy arrays of bfloat16 have no type in Numba
        raise UsageError(f"argument {name}: Numba has no arrays and numbers of {short}: use f32")
    return kind


def _chosen_types(dispatcher: Any, types: list[Any], name: str) -> list[Any]:
    """The types to compile for: those of the arguments, or of the signature that takes them.

    Raises:
        UsageError: The kernel has signatures, and none takes these arguments.
    """
    if dispatcher._can_compile:
        return types
    declared = [list(signature) for signature in dispatcher.overloads]
    for signature in declared:
        if len(signature) == len(types) and all(map(_takes, signature, types)):
            return signature
    listed = " or ".join(f"({', '.join(map(str, signature))})" for signature in declared)
    raise UsageError(
        f"{name} is compiled for {listed}, not for ({', '.join(map(str, types))}): pass such "
        "arguments, or leave the signature out of @cuda.jit"
    )


def _takes(declared: Any, given: Any) -> bool:
    """Whether a declared type takes an argument: arrays as they are, numbers by their value."""
    from numba.cuda import types

    if isinstance(declared, types.Array) and isinstance(given, types.Array):
        same = (declared.dtype, declared.ndim) == (given.dtype, given.ndim)
        return same and declared.layout in ("C", "A")
    if isinstance(declared, types.Array) or isinstance(given, types.Array):
        return False
    return isinstance(declared, types.Float) or not isinstance(given, types.Float)


def _parts(
    name: str, value: Specification, kind: Any, arrays: dict[str, ArraySpecification]
) -> Iterator[_Part]:
    """The parameters that pass an argument."""
    if isinstance(value, ScalarSpecification):
        dtype = _SHORT_DTYPES[str(kind)] if str(kind) != "bool" else "bool"
        parameter = KernelParameter(name, "scalar", dtype, str(kind), dtype_bytes(dtype))
        yield _Part(parameter, replace(value, dtype=dtype if value.dtype else ""))
        return
    array = arrays[value.array] if isinstance(value, AliasSpecification) else value
    assert isinstance(array, ArraySpecification)  # `_numba_type` has refused the rest
    size = dtype_bytes(array.dtype)
    for part in ("meminfo", "parent"):
        pointer = KernelParameter(f"{name}.{part}", "pointer", "", "void *", _WORD_BYTES)
        yield _Part(pointer, NullSpecification())
    elements, strides = 1, []
    for extent in reversed(array.shape):
        strides.append(size * elements)
        elements *= extent
    yield _word(f"{name}.nitems", elements)
    yield _word(f"{name}.itemsize", size)
    yield _Part(
        KernelParameter(name, "pointer", array.dtype, str(kind), _WORD_BYTES, element_bytes=size),
        value,
    )
    for what, numbers in (("shape", array.shape), ("strides", reversed(strides))):
        for axis, number in enumerate(numbers):
            yield _word(f"{name}.{what}[{axis}]", number)


def _word(name: str, number: int) -> _Part:
    return _Part(
        KernelParameter(name, "scalar", "i64", "int64", _WORD_BYTES),
        ScalarSpecification("", number, str(number)),
    )


def _with_constants(function: FunctionType, kernel: UserKernel) -> FunctionType:
    """The function with other values of the names that `defines` gives: of its module or closure.

    Raises:
        UsageError: The function uses no such name, a device function uses it too, or a value is
            no number.
    """
    values: dict[str, Any] = {}
    for name, text in parse_defines(kernel).items():
        try:
            values[name] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            raise UsageError(
                f"defines {name}={text}: a constant of {kernel.entry} must be a number"
            ) from None
    if not values:
        return function
    code = function.__code__
    read = {
        name: function.__globals__[name] for name in code.co_names if name in function.__globals__
    }
    used = set(code.co_freevars) | set(read)
    for name in values:
        if name not in used:
            constants = {key for key, value in read.items() if isinstance(value, int | float)}
            known = sorted(constants | set(code.co_freevars))
            hint = suggest_nearest(name, known) if known else "it uses none"
            raise UsageError(f"{kernel.entry} uses no constant {name!r}: {hint}")
        for called in map(function.__globals__.get, code.co_names):
            other = getattr(called, "py_func", None)
            if isinstance(other, FunctionType) and name in other.__code__.co_names:
                raise UsageError(
                    f"{kernel.entry} calls {other.__name__}, which uses {name} too: pass it to "
                    f"{other.__name__} as an argument"
                )
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(CellType(values[name]) if name in values else cell for name, cell in cells)
    changed = FunctionType(
        code,
        {**function.__globals__, **values},
        function.__name__,
        function.__defaults__,
        closure or None,
    )
    changed.__module__ = function.__module__
    return changed


def _compile(
    function: FunctionType,
    types: Sequence[Any],
    options: dict[str, Any],
    kernel: UserKernel,
    architecture: tuple[int, int],
) -> str:
    """Compile a function to one PTX module.

    Raises:
        UsageError: Numba cannot, or a part of it is missing.
    """
    if options.get("link"):
        raise UsageError(
            f"{kernel.entry} links {', '.join(map(str, options['link']))}, and memlab executes "
            "PTX alone: write that code in Python"
        )
    from numba import cuda

    debug = bool(options.get("debug"))
    bounds = options.get("launch_bounds")
    try:
        with _compiling_for(architecture):
            parts, _ = cuda.compile_all(
                function,
                tuple(types),
                debug=debug,
                lineinfo=not debug,
                device=False,
                fastmath=kernel.use_fast_math or bool(options.get("fastmath")),
                cc=architecture,
                opt=bool(options.get("opt", True)),
                abi="numba",
                output="ptx",
                **({} if bounds is None else {"launch_bounds": bounds}),
            )
    except Exception as error:  # its own errors, and those of the function's constants
        if "driver library" in str(error):  # `cuda.core`, of a release that memlab does not know
            raise UsageError(
                f"{kernel.entry} uses what Numba writes in CUDA C++, such as float16, and this "
                "release of cuda-core compiles that with a GPU's driver only: use float32, or "
                "pip install -U cuda-core"
            ) from None
        if isinstance(error, ImportError) or type(error).__name__ in _MISSING_LIBRARY:
            raise UsageError(f"Numba is not whole ({one_line(error)}): {INSTALL_ADVICE}") from None
        if misfit := _misfit(error):
            raise UsageError(misfit) from error
        raise UsageError(_refusal(kernel.entry, function, error)) from error
    return _linked([_text(part, kernel.entry) for part in parts])


@contextmanager
def _compiling_for(architecture: tuple[int, int]) -> Iterator[None]:
    """Have device functions compiled for an architecture, whether or not there is a GPU.

    Numba asks the current GPU for its architecture. What Numba writes in CUDA C++, such as float16,
    `cuda.core` compiles, which asks the driver for its version, only to warn if that is too old.
    """
    from numba.cuda import dispatcher

    replaced: list[tuple[Any, str, Any]] = [
        (
            dispatcher,
            "get_current_device",
            lambda: SimpleNamespace(compute_capability=architecture),
        )
    ]
    with suppress(ImportError):
        program: Any = import_module("cuda.core._program")
        replaced.append((program, "driver_version", lambda: _NEWER_THAN_ANY_DRIVER))
    found = [each for each in replaced if hasattr(*each[:2])]
    kept = [getattr(module, name) for module, name, _ in found]
    for module, name, other in found:
        setattr(module, name, other)
    try:
        yield
    finally:
        for (module, name, _), own in zip(found, kept, strict=True):
            setattr(module, name, own)


def _misfit(error: Exception) -> str:
    """The message where Numba lacks a part of another package; empty for another error.

    Numba names the part in its own code then. What the kernel names, Numba looks up by `getattr`.
    """
    found = _LACKING.search(str(error)) if isinstance(error, AttributeError) else None
    own_code = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    if found is None or not any(f".{found[2]}" in line for line in own_code):
        return ""
    versions = []
    for package in ("numba-cuda", "numba", found[1]):
        with suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    return (
        f"Numba does not fit the installed {found[1]} ({', '.join(versions)}: "
        f"{one_line(error)}): pip install -U 'memlab[numba]', which brings versions that fit"
    )


def _refusal(name: str, function: FunctionType, error: Exception) -> str:
    """The message for a function that Numba cannot compile: the reason, and the line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Failed in", "During:", "File "))]
    reason = (reasons or [type(error).__name__])[0].rstrip(":")
    if reason.endswith("signature") and len(reasons) > 1:
        reason += f" {reasons[1].removeprefix('>>> ')}"
    places = _PLACE.findall(str(error))
    number = next((int(first or second) for first, second in places), 0)
    place = f" in line {number}" if number else ""
    file = function.__code__.co_filename
    return f"Numba cannot compile {name}{place} of {file} ({reason}): correct the function"


def _text(part: Any, name: str) -> str:
    """The PTX of one part of what Numba compiled.

    Raises:
        UsageError: It is machine code, or code of another form.
    """
    content = getattr(part, "code", part)
    if getattr(part, "code_type", "ptx") == "ptx" and isinstance(content, bytes | str):
        text = content.decode() if isinstance(content, bytes) else content
        return text.rstrip("\0")
    raise UsageError(
        f"{name} links {type(part).__name__}, and memlab executes PTX alone: write that code in "
        "Python"
    )


def _linked(modules: list[str]) -> str:
    """One module of several: those after the first define functions that the first declares."""
    first, *others = modules
    added = [_LINES.sub("", _HEADER.sub("", other)) for other in others]

    def keep(match: re.Match[str]) -> str:
        defined = re.compile(rf"\.func\b[^;{{]*?\b{re.escape(match[1])}\s*\([^;{{]*\)\s*\{{")
        return "" if any(defined.search(other) for other in added) else match[0]

    text = _DECLARED.sub(keep, first)
    header = [match.end() for match in _HEADER.finditer(text)]
    start = header[-1] if header else 0
    return text[:start] + "\n".join(added) + text[start:]
