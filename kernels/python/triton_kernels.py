"""Triton kernels: compiled for a device without one, and launched as Triton would launch them.

Triton compiles a kernel for its arguments: for their types, for addresses and numbers that are
multiples of 16, and for numbers that are 1, which become constants. `warmup`, Triton's own function
for compilation ahead of time, decides this here too; only its driver is replaced by one that names
the device's architecture. Triton itself is imported by whoever made the kernel.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any

from memlab.errors import MemlabWarning, UsageError
from memlab.kernels.launch import dtype_bytes
from memlab.kernels.python.parameters import check_whole, number_of, source_of, with_macros
from memlab.kernels.signature import KernelParameter
from memlab.kernels.user.arguments import python_values
from memlab.kernels.user.arguments.fills import is_number
from memlab.kernels.user.arguments.layout import ArgumentLayout
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import (
    NUMPY_DTYPES,
    ArraySpecification,
    NullSpecification,
    ScalarSpecification,
    Specification,
    StructureSpecification,
)
from memlab.kernels.user.compiled_source import CompiledSource
from memlab.kernels.user.kernel import (
    LAUNCH_OPTIONS,
    UserKernel,
    apply_launch_options,
    parse_defines,
)

WARP_SIZE = 32
_OWN_FIELDS = (
    *("source", "entry", "name", "code", "objects", "symbols", "grid", "args", "defines"),
    *("expect", "reference", "tolerance", "restrict"),
)
"""The fields of a user kernel that a Triton kernel may have."""
_HINTS = {
    "block": "num_warps sets the threads of a block, 32 for each",
    "shared": "Triton's compiler decides it",
    "max_registers": "write maxnreg=64",
}
"""What to give in place of other fields."""
_SCRATCH = ("global_scratch", "profile_scratch")
"""The parameters that Triton adds behind the kernel's own, in this order."""
_POINTER_BYTES = 8
_TYPES = {
    "u1": "bool",
    "i1": "bool",
    **{f"{letter}{bits}": f"{letter}{bits}" for letter in "iu" for bits in (8, 16, 32, 64)},
    **{f"fp{bits}": f"f{bits}" for bits in (16, 32, 64)},
    "bf16": "bf16",
}
"""memlab's short names of Triton's types."""
_ENTRY = re.compile(r"\.entry\b[^()]*\(([^()]*)\)")
"""The parameters of the kernel in PTX."""
_ERROR_PLACE = re.compile(r"(?P<code>[^\n]*)\n *\^\n?(?P<reason>.*)\Z", re.S)
"""The end of Triton's messages: the line, a mark below it, and what is wrong."""


@dataclass(frozen=True)
class _Array:
    """What Triton, and the functions that a kernel's author gives it, ask of an array.

    Attributes:
        dtype: NumPy's name of the type of its elements, which is PyTorch's too.
        shape: Elements in each dimension.
    """

    dtype: str
    shape: tuple[int, ...]

    def data_ptr(self) -> int:
        """An address as memlab's arrays have them, aligned to 256 bytes."""
        return 0

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def stride(self, dimension: int) -> int:
        """The elements from one index of a dimension to the next."""
        return math.prod(self.shape[dimension % len(self.shape) + 1 :])


@dataclass(frozen=True)
class _OfflineDriver:
    """The driver that Triton asks which device it compiles for.

    Attributes:
        target: Triton's `GPUTarget`.
    """

    target: Any

    def get_current_device(self) -> str:
        """The key of Triton's cache of compiled kernels; a GPU's is its number."""
        return f"memlab sm_{self.target.arch}"

    def get_current_stream(self, device: str) -> int:
        """No stream: nothing is launched."""
        return 0

    def get_current_target(self) -> Any:
        """The architecture to compile for."""
        return self.target


def named(code: Any) -> UserKernel:
    """The user kernel that an object of Triton's stands for.

    Args:
        code: What `triton.jit`, `triton.autotune` or `triton.heuristics` made.

    Raises:
        UsageError: It is no kernel that Triton compiles.
    """
    function = _base_function(code)
    source = source_of(function.fn.__code__)
    name = function.__name__
    return UserKernel(source.path, name, "" if source.is_file else name, code=code)


def with_own_options(
    kernel: UserKernel, options: Mapping[str, Any]
) -> tuple[UserKernel, dict[str, Any]]:
    """Take the options that are Triton's, as its launches do: `BLOCK=1024, num_warps=8`.

    Args:
        kernel: A kernel that `named` made.
        options: The options of memlab, and Triton's by their names.

    Returns:
        The kernel with the options that are objects, and the options for `apply_launch_options`:
        Triton's numbers and texts are macros there, which may be lists in a sweep.
    """
    function = _base_function(kernel.code)
    kept, objects = {}, dict(kernel.objects)
    macros: dict[str, Any] = {}
    runtime = {each.name for each in function.params if not each.is_constexpr}
    for name, value in options.items():
        if name == "grid" and callable(value):
            objects[name] = value
        elif name in LAUNCH_OPTIONS and name not in function.arg_names:
            kept[name] = value
        elif name in runtime:
            objects[name] = _converted(value)
        elif not _is_plain(value):
            objects[name] = value
        else:
            macros[name] = _macro_value(value)
    return replace(kernel, objects=tuple(objects.items())), with_macros(kept, macros)


def swept_options(kernel: UserKernel, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a sweep: all configurations of `triton.autotune`, if nothing else decides."""
    every = _configurations(kernel.code)
    macros = options.get("defines") or {}
    decided = {"config", *(name for each in every.values() for name in each)}
    if len(every) < 2 or not isinstance(macros, Mapping) or not decided.isdisjoint(macros):
        return dict(options)
    return {**options, "defines": {**macros, "config": list(every)}}


def adapted(kernel: UserKernel, architecture: tuple[int, int]) -> UserKernel:
    """The kernel, compiled for its arguments and a device.

    Its `args` are the first arguments. Its macros and objects are the others, the constants,
    Triton's options such as `num_warps`, and `config`, the number of one of the kernel's
    configurations or its text. Its grid may be a function of the meta-parameters.

    Args:
        kernel: A kernel that `named` made.
        architecture: The compute capability of the device.

    Raises:
        UsageError: An option or an argument is missing or wrong, or Triton refuses the kernel.
    """
    function = _base_function(kernel.code)
    _check_options(kernel)
    keywords = {name: _constant_value(text) for name, text in parse_defines(kernel).items()}
    keywords |= dict(kernel.objects)
    grid = keywords.pop("grid", None)
    arguments = _bind(function, kernel.args, keywords)
    shown, specifications = _read_arguments(function, arguments)
    chosen = _chosen_options(kernel.code, shown, keywords)
    compiled = _compile(function, shown, chosen, architecture)
    metadata = compiled.metadata
    if metadata.num_ctas > 1:
        raise UsageError(
            f"{function.__name__} has num_ctas={metadata.num_ctas}, and clusters of blocks are not "
            "laid out for Triton's programs: use num_ctas=1"
        )
    if grid is not None:
        extents = _called_grid(grid, {**shown, **chosen}, function)
        kernel = apply_launch_options(kernel, {"grid": extents})
    blocks = math.prod(int(extent) for extent in kernel.grid)
    given, parameters, passed = _parameters(compiled, specifications, blocks)
    reference = kernel.reference
    if callable(reference):
        reference = _reference(reference, function, shown, given)
    source = source_of(function.fn.__code__)
    settings = _settings(compiled, function, chosen)
    return replace(
        kernel,
        code=None,
        objects=(),
        block=(WARP_SIZE * metadata.num_warps,),
        shared=metadata.shared,
        defines=tuple(f"{name}={value}" for name, value in settings.items()),
        reference=reference,
        compiled=CompiledSource(
            _with_true_lines(compiled.asm["ptx"]),
            metadata.name,
            source.text,
            source.path,
            parameters,
            compiled.asm["cubin"],
            f"Triton {sys.modules['triton'].__version__}",
        ),
        layout=ArgumentLayout(passed, given),
    )


# --- The kernel and its options ----------------------------------------------------------------


def _decorators(kernel: Any) -> Iterator[Any]:
    """The kernel and what its decorators wrap, from outside; the last one is the function."""
    while kernel is not None and not inspect.isfunction(kernel):
        yield kernel
        kernel = getattr(kernel, "fn", None)


def _base_function(kernel: Any) -> Any:
    """What `triton.jit` made.

    Raises:
        UsageError: It is none, since Triton runs kernels in its interpreter.
    """
    *_, function = _decorators(kernel)
    if not hasattr(function, "params"):
        raise UsageError(
            f"Triton made a {type(function).__name__} of the kernel, which it does not compile: "
            "unset TRITON_INTERPRET before the kernel is defined"
        )
    return function


def _check_options(kernel: UserKernel) -> None:
    """Refuse launch options that only kernels in CUDA C++ have.

    Raises:
        UsageError: One is given.
    """
    for option in fields(kernel):
        if option.name in _OWN_FIELDS or getattr(kernel, option.name) == option.default:
            continue
        hint = _HINTS.get(option.name, "Triton has no such option")
        raise UsageError(f"a Triton kernel takes no {option.name}: leave it out ({hint})")


def _is_plain(value: Any) -> bool:
    """Whether a text says what a value is: a number or a text, or a list of these in a sweep."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _macro_value(value: Any) -> Any:
    """A plain value as a macro takes it, which knows numbers and texts."""
    if isinstance(value, list | tuple):
        return [_macro_value(part) for part in value]
    return str(value) if value is None or isinstance(value, bool) else value


def _constant_value(text: str) -> Any:
    """The value of a constant, from its text."""
    if text == "None":
        return None
    return number_of(text) if is_number(text) else text


def _bind(function: Any, args: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of their parameters; `keywords` keeps Triton's options.

    Raises:
        UsageError: There are too many, or one is given twice.
    """
    names = list(function.arg_names)
    if len(args) > len(names):
        raise UsageError(
            f"{function.__name__} takes {len(names)} arguments ({', '.join(names)}), got "
            f"{len(args)}: leave out the last"
        )
    arguments = dict(zip(names, args, strict=False))
    for name in [name for name in keywords if name in names]:
        if name in arguments:
            raise UsageError(f"{name} is given in args and by its name: leave out one of them")
        arguments[name] = keywords.pop(name)
    return arguments


# --- Arguments ---------------------------------------------------------------------------------


def _read_arguments(
    function: Any, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Specification]]:
    """Read the arguments.

    Returns:
        What Triton is shown for each argument, by its name; and what is passed for each array and
        number, by name, `x.0` in a tuple.

    Raises:
        UsageError: An argument is none that Triton takes.
    """
    passed: dict[str, Specification] = {}

    def read(name: str, value: Any) -> Any:
        if isinstance(value, StructureSpecification):
            value = value.values
        if isinstance(value, tuple):
            return tuple(read(f"{name}.{number}", part) for number, part in enumerate(value))
        passed[name] = _parsed(name, value)
        return _shim(name, passed[name])

    shown = {
        each.name: _constant(arguments[each.name])
        if each.is_constexpr
        else read(each.name, arguments[each.name])
        for each in function.params
        if each.name in arguments
    }
    return shown, passed


def _constant(value: Any) -> Any:
    """The value of a constant, which may have been read as an argument."""
    if isinstance(value, ScalarSpecification):
        return _number(value)
    return None if isinstance(value, NullSpecification) else value


def _converted(value: Any) -> Any:
    """An argument as text or specification; tuples stay, since Triton takes them as they are."""
    if isinstance(value, tuple):
        return tuple(map(_converted, value))
    return python_values.convert_argument(value)


def _parsed(name: str, value: Any) -> Specification:
    try:
        argument = python_values.convert_argument(value)
        return parse_specification(argument) if isinstance(argument, str) else argument
    except UsageError as error:
        raise UsageError(f"argument {name}: {error}") from None


def _shim(name: str, argument: Specification) -> Any:
    """What Triton is shown in place of an argument.

    Raises:
        UsageError: Triton takes no such argument.
    """
    check_whole(argument, f"argument {name}")
    if isinstance(argument, ArraySpecification) and argument.dtype in NUMPY_DTYPES:
        return _Array(NUMPY_DTYPES[argument.dtype], argument.shape)
    if isinstance(argument, NullSpecification):
        return None
    if not isinstance(argument, ScalarSpecification):
        raise UsageError(
            f"argument {name}: Triton takes arrays, numbers and tuples of them, got "
            f"{argument.text!r}: write one of these"
        )
    return _number(argument)


def _number(argument: ScalarSpecification) -> bool | int | float:
    """A number as Python has it: Triton derives its type from that."""
    if argument.dtype == "bool" or isinstance(argument.value, bool):
        return bool(argument.value)
    if argument.dtype:
        return int(argument.value) if argument.dtype[0] in "iu" else float(argument.value)
    return number_of(argument.text)


# --- Configurations and the grid ---------------------------------------------------------------


def _configurations(kernel: Any) -> dict[str, dict[str, Any]]:
    """The options in each configuration of `triton.autotune`, by a text that tells them apart."""
    every = next((each.configs for each in _decorators(kernel) if hasattr(each, "configs")), ())
    options = [_config_options(each) for each in every]
    varied = [
        name
        for name in dict.fromkeys(name for each in options for name in each)
        if any(each.get(name) != options[0].get(name) for each in options)
    ]
    return {
        " ".join(f"{name}={each[name]}" for name in varied if name in each): each
        for each in options
    }


def _config_options(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.all_kwargs().items() if value is not None}


def _chosen_options(
    kernel: Any, arguments: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Triton's options, with the values that its decorators choose.

    `triton.heuristics` computes meta-parameters. Of the configurations of `triton.autotune` the one
    of `config` is taken, or else the first that agrees with what is given.

    Raises:
        UsageError: There is no such configuration.
        MemlabWarning: Others could have been taken.
    """
    options = {name: value for name, value in given.items() if name != "config"}
    wanted = given.get("config")
    if wanted is not None and not _configurations(kernel):
        raise UsageError(
            "config chooses one of triton.autotune's, and the kernel has none: leave it out"
        )
    for each in _decorators(kernel):
        if hasattr(each, "configs"):
            options = _configured(each, wanted, arguments, options)
        elif hasattr(each, "values") and hasattr(each, "fn"):
            for name, compute in each.values.items():
                options[name] = compute({**arguments, **options})
    return options


def _configured(
    tuner: Any, wanted: Any, arguments: Mapping[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """The options with those of a configuration; what is given counts more."""
    every = _configurations(tuner)
    if wanted is not None:
        by_number = {str(number): each for number, each in enumerate(every.values())}
        chosen = every.get(str(wanted), by_number.get(str(wanted)))
        if chosen is None or isinstance(wanted, bool):
            raise UsageError(
                f"config takes the number of a configuration, 0 to {len(every) - 1}, or its text, "
                f"got {wanted!r}: choose one of {', '.join(map(repr, every))}"
            )
        return {**chosen, **options}
    tuner.nargs = dict(arguments)
    fitting = [
        each
        for each in map(_config_options, tuner.prune_configs(dict(options)))
        if all(options.get(name, value) == value for name, value in each.items())
    ]
    if len(fitting) > 1:
        text = next((text for text, each in every.items() if each == fitting[0]), str(fitting[0]))
        warnings.warn(
            f"{tuner.base_fn.__name__} has {len(fitting)} configurations, and the first runs, "
            f"{text!r}: memlab.sweep ranks all, config={text!r} chooses one",
            MemlabWarning,
            stacklevel=9,  # the caller of `memlab.run`
        )
    return {**fitting[0], **options} if fitting else options


def _called_grid(grid: Any, values: Mapping[str, Any], function: Any) -> tuple[int, ...]:
    """The grid that a function of the meta-parameters returns.

    Raises:
        UsageError: It fails.
    """
    defaults = {each.name: each.default for each in function.params if each.has_default}
    try:
        extents = grid({**defaults, **values})
        return tuple(extents) if isinstance(extents, Sequence) else (extents,)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"the function grid failed ({reason}): correct it") from error


# --- Compilation -------------------------------------------------------------------------------


def _compile(
    function: Any,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    architecture: tuple[int, int],
) -> Any:
    """Triton's `CompiledKernel` for the arguments and a device.

    Raises:
        UsageError: Triton refuses the kernel or an option.
    """
    name = function.__name__
    missing = [
        each.name
        for each in function.params
        if not each.has_default and each.name not in arguments and each.name not in options
    ]
    if missing:
        raise UsageError(
            f"{name} lacks {', '.join(missing)}: give arguments in args=[...], and constants by "
            f"their names, as in {missing[-1]}=1024"
        )
    try:
        with _offline_driver(architecture), redirect_stdout(sys.stderr):
            return function.warmup(grid=(1,), **arguments, **options)
    except Exception as error:  # Triton, MLIR and LLVM raise what they like
        raise UsageError(f"Triton does not compile {name}: {_error_text(error)}") from error


@contextmanager
def _offline_driver(architecture: tuple[int, int]) -> Iterator[None]:
    """Let Triton compile for an architecture, whether or not there is a GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    before = dict(vars(driver))
    target = GPUTarget("cuda", 10 * architecture[0] + architecture[1], WARP_SIZE)
    driver.set_active(_OfflineDriver(target))
    try:
        yield
    finally:
        vars(driver).update(before)


def _error_text(error: BaseException) -> str:
    """What Triton says in one line: the reason, and the line of the kernel that it shows."""
    text = str(error)
    if place := _ERROR_PLACE.search(text):
        reason, code = (" ".join(place[group].split()) for group in ("reason", "code"))
        reason = reason or " ".join(str(error.__cause__ or "refused").split())
        return f"{reason} in '{code}': correct the line"
    reason = " ".join(text.split()) or type(error).__name__
    return f"{type(error).__name__}: {reason[:300]}: correct the kernel or its options"


# --- What a launch needs -----------------------------------------------------------------------


def _parameters(
    compiled: Any, specifications: Mapping[str, Specification], blocks: int
) -> tuple[tuple[str, ...], tuple[KernelParameter, ...], tuple[Specification, ...]]:
    """The parameters of the compiled kernel.

    Triton passes no constant, and no argument that it compiled in since it is 1 or None. Behind the
    others come addresses of its own memory.

    Returns:
        The names of those that stand for the user's arguments, all parameters, and what is passed
        for each of these.
    """
    kinds = _leaf_types(compiled.src.signature)
    parameters = [_parameter(name, kind) for name, kind in kinds.items()]
    passed = [specifications[name] for name in kinds]
    declared = _ENTRY.search(compiled.asm["ptx"])
    hidden = (declared[1].count(".param") if declared else 0) - len(parameters)
    for name in _SCRATCH[:hidden]:
        size = getattr(compiled.metadata, f"{name}_size", 0) * blocks
        parameters.append(KernelParameter(name, "pointer", "u8", "void *", _POINTER_BYTES, 1))
        passed.append(_parsed(name, f"inout:u8[{size}]=zeros" if size else "null"))
    return tuple(kinds), tuple(parameters), tuple(passed)


def _leaf_types(signature: Mapping[str, Any]) -> dict[str, str]:
    """Triton's types of what is passed, by the name of the argument; `x.0` in a tuple."""
    found: dict[str, str] = {}

    def collect(name: str, kind: Any) -> None:
        if isinstance(kind, tuple | list):
            for number, part in enumerate(kind):
                collect(f"{name}.{number}", part)
        elif kind != "constexpr":
            found[name] = kind

    for name, kind in signature.items():
        collect(name, kind)
    return found


def _parameter(name: str, kind: str) -> KernelParameter:
    """A parameter of one of Triton's types: `*fp32`, `i32`.

    Raises:
        UsageError: memlab passes nothing of this type.
    """
    dtype = _TYPES.get(kind.removeprefix("*k").removeprefix("*"))
    if dtype is None:
        raise UsageError(
            f"argument {name} has Triton's type {kind}, which memlab does not pass: "
            f"use one of {', '.join(_TYPES)}"
        )
    if kind.startswith("*"):
        return KernelParameter(name, "pointer", dtype, kind, _POINTER_BYTES, dtype_bytes(dtype))
    return KernelParameter(name, "scalar", dtype, kind, dtype_bytes(dtype))


def _with_true_lines(ptx: str) -> str:
    """The PTX without the `.loc` of inline assembly, before which the true one stands.

    LLVM writes one for each line of the assembly, and counts the source's lines on.
    """
    lines, inside = ptx.split("\n"), False
    for number, line in enumerate(lines):
        if "inline asm" in line:
            inside = "begin" in line
        elif inside and line.lstrip().startswith(".loc"):
            lines[number] = ""  # those of the machine code are lines of the PTX
    return "\n".join(lines)


def _settings(compiled: Any, function: Any, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What tells this compilation from others: the constants, and the options."""
    names, constants = function.arg_names, compiled.src.constants
    constant = {names[path[0]]: value for path, value in constants.items() if len(path) == 1}
    metadata = compiled.metadata
    return {
        **{
            each.name: constant[each.name]
            for each in function.params
            if each.is_constexpr and each.name in constant
        },
        **{name: getattr(metadata, name) for name in ("num_warps", "num_stages")},
        **{
            name: value
            for name, value in chosen.items()
            if name not in (*names, "num_ctas") and value is not None
        },
    }


def _reference(
    reference: Callable[..., Any],
    function: Any,
    arguments: Mapping[str, Any],
    given: Sequence[str],
) -> Callable[..., Any]:
    """A reference that takes the kernel's arguments, also those that Triton compiled in.

    Args:
        reference: The user's function of all arguments that are no constants of the kernel.
        function: What `triton.jit` made.
        arguments: What Triton is shown, by name.
        given: The names of those that are passed, `x.0` in a tuple.
    """

    def value(name: str, shown: Any, launched: Mapping[str, Any]) -> Any:
        if isinstance(shown, tuple):
            return tuple(value(f"{name}.{n}", part, launched) for n, part in enumerate(shown))
        return launched.get(name, shown)

    @wraps(reference)
    def called(*values: Any) -> Any:
        launched = dict(zip(given, values, strict=True))
        return reference(
            *(
                value(each.name, arguments[each.name], launched)
                for each in function.params
                if not each.is_constexpr and each.name in arguments
            )
        )

    return called
