"""References for the outputs of user kernels: arrays, or the results of a Python function.

The function is the only user code besides the kernel that memlab runs, and only on request, on the
command line or from Python.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device import structure_arrays
from memlab.device.inputs import POISON_BYTE, array_bytes, load_array
from memlab.device.structure_arrays import array_type, element_type
from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    Argument,
    ArrayAlias,
    Arrays,
    Buffer,
    Launch,
    NullPointer,
    Reference,
    Scalar,
    Structure,
    TensorMap,
    nested_arguments,
)
from memlab.kernels.user.arguments import array_files
from memlab.kernels.user.arguments.specifications import ExpectedOutput
from memlab.kernels.user.kernel import UserKernel

MAX_SOURCE_BYTES = 16 << 20
"""The limit of a Python file's size."""

_MAX_LISTED = 8
_COMPARED_BYTES = 1 << 20  # of two arrays at once


def output_references(kernel: UserKernel, launch: Launch) -> dict[str, Reference]:
    """The references of the outputs, by name; outputs without a reference are missing.

    Args:
        kernel: The user kernel, with its expected outputs and its reference function.
        launch: The launch of the kernel.

    Raises:
        UsageError: A file is missing or does not hold such an array, or there is no such output or
            function.
    """
    references = {}
    for expected in kernel.expect:
        output, reference = _array_reference(expected, launch)
        references[output.name] = reference
    if kernel.reference:
        computed = _UserReference(kernel.reference, launch, frozenset(references))
        for output in launch.outputs:
            references.setdefault(output.name, computed.of(output))
    return references


def _array_reference(expected: str | ExpectedOutput, launch: Launch) -> tuple[Buffer, Reference]:
    """Read `IDX=@FILE.npy`, or an array from Python: its output and the reference.

    Raises:
        UsageError: It is malformed, there is no such output, or it does not hold such an array.
    """
    if isinstance(expected, ExpectedOutput):
        output = _find_output(expected.which, f"expect[{expected.which!r}]", launch)
        return output, _reference_from_array(
            _flat_reference(expected.values, output, "expect holds")
        )
    which, _, path = (part.strip() for part in expected.partition("="))
    if not path.startswith("@") or not path[1:]:
        raise UsageError(
            f"--expect {expected!r} is not IDX=@FILE.npy: write the number of an argument, from 0, "
            "or its name"
        )
    output = _find_output(which, f"--expect {expected!r}", launch)
    return output, _reference_from_array(_file_reference(path[1:], output))


def _find_output(which: str, option: str, launch: Launch) -> Buffer:
    """The output of this name, or at this argument index.

    Raises:
        UsageError: There is none; `option` begins the message.
    """
    outputs = {output.name: output for output in launch.outputs}
    numbers = {argument.name: index for index, argument in enumerate(launch.user_arguments)}
    if which.isdecimal() and int(which) < len(launch.user_arguments):
        which = launch.user_arguments[int(which)].name
    if which not in outputs:
        listed = ", ".join(
            f"{numbers[name]} ({name})" if name in numbers else name for name in outputs
        )
        hint = f"outputs are {listed}" if outputs else "declare one out: or inout:"
        raise UsageError(f"{option} names no output of the kernel: {hint}")
    return outputs[which]


def _file_reference(path: str, output: Buffer) -> NDArray[Any]:
    """The expected elements in a file, shape (elements,), of any type of real numbers.

    The file stays mapped into memory, so that only the compared elements are read.

    Raises:
        UsageError: The file cannot be read, or does not hold so many real numbers.
    """
    values = array_files.open_array(path)
    # Files have no name for bfloat16: NumPy writes it as two raw bytes.
    if values.dtype == np.dtype("V2") and output.dtype == "bfloat16":
        values = values.view(element_type(output.dtype))
    elif output.structure is not None:
        _check_structures(values, output, f"{path} holds")
    elif values.dtype.kind not in "fiub":
        raise UsageError(
            f"{path} holds {values.dtype}, and the expected {output.name} must be real numbers: "
            "convert it with numpy"
        )
    if values.size != output.elements:
        raise UsageError(
            f"{path} holds {values.dtype}{list(values.shape)}, and {output.name} has "
            f"{list(output.shape)}: give as many elements"
        )
    return values.reshape(-1)


def _reference_from_array(values: NDArray[Any]) -> Reference:
    def reference(inputs: Arrays, index: NDArray[np.int64]) -> NDArray[Any]:
        return values[index]

    return reference


def _flat_reference(value: Any, output: Buffer, origin: str) -> NDArray[Any]:
    """The reference of an output, shape (elements,): what NumPy has no number type for, in float64.

    Args:
        value: Anything that NumPy can convert to an array.
        output: The output.
        origin: The beginning of messages: `saxpy.py:saxpy returned`.

    Raises:
        UsageError: It is not an array of real numbers in the output's shape.
    """
    values: NDArray[Any] | None
    array: NDArray[Any] | None = None
    try:
        array = np.asarray(value)
        if array.ndim == 0 and output.elements == 1:
            array = array.reshape(1)
        if output.structure is not None:
            _check_structures(array, output, origin)
            return _flat_of_shape(array, output, origin)
        if array.dtype.kind == "O":  # for example Python integers of up to 64 bits
            array = np.array(array.tolist())
        real = array if array.dtype.kind not in "cmMSU" else None
        whole = array.dtype.kind in "iub"
        if real is None or whole or array.dtype.kind == "f":  # floats are converted piece by piece
            values = real
        else:
            values = real.astype(np.float64)
    except (TypeError, ValueError):
        values = None
    if values is None:
        kind = "" if array is None else array.dtype.name
        hint = "give an array of them"
        if kind.startswith("complex"):
            hint = f"it is {kind}; give its real part, or the view of its numbers, array.view()"
        raise UsageError(f"{origin} no real numbers for {output.name}: {hint}")
    return _flat_of_shape(values, output, origin)


def _check_structures(values: NDArray[Any], output: Buffer, origin: str) -> None:
    """Refuse expected structures whose numbers are not those of an output, whatever their types.

    Raises:
        UsageError: They are others.
    """
    wanted = structure_arrays.mismatch(values.dtype, array_type(output), converted=True)
    if wanted:
        raise UsageError(
            f"{origin} {structure_arrays.type_text(values.dtype)} for {output.name}, an array of "
            f"{wanted}: give such structures; their numbers may have any real type"
        )


def _flat_of_shape(values: NDArray[Any], output: Buffer, origin: str) -> NDArray[Any]:
    """The expected elements, shape (elements,).

    Raises:
        UsageError: They are not of the output's shape; `origin` begins the message.
    """
    if values.shape not in (output.shape, (output.elements,)):
        raise UsageError(
            f"{origin} an array of shape {list(values.shape)} for {output.name}, "
            f"which has {list(output.shape)}: give one of that shape"
        )
    return values.reshape(-1)


class _UserReference:
    """The results of the user's function for one launch; the function is called once."""

    def __init__(
        self, function: str | Callable[..., Any], launch: Launch, known: frozenset[str]
    ) -> None:
        """Load the function, which may leave out the `known` outputs."""
        self._launch, self._known = launch, known
        if isinstance(function, str):
            self._name, self._file = function, str(Path(function.rpartition(":")[0]))
            self._option = f"--reference {function}"
            self._function = _load_function(function, self._file)
        else:
            self._name = str(getattr(function, "__name__", type(function).__name__))
            own = inspect.unwrap(function)
            self._file = getattr(getattr(own, "__code__", None), "co_filename", "")
            self._function, self._option = function, f"the reference {self._name}"
        self._results: dict[str, NDArray[Any] | None] = {}

    def of(self, output: Buffer) -> Reference:
        """The reference of an output."""

        def reference(inputs: Arrays, index: NDArray[np.int64]) -> NDArray[Any] | None:
            if not self._results:
                self._results = self._call(inputs)
            values = self._results[output.name]
            return values if values is None or index.size == values.size else values[index]

        return reference

    def _call(self, inputs: Arrays) -> dict[str, NDArray[Any] | None]:
        arrays = {buffer.name: _initial_array(buffer, inputs) for buffer in self._launch.buffers}
        arguments = [_initial_value(argument, arrays) for argument in self._launch.user_arguments]
        outputs = [output for output in self._launch.outputs if output.name not in self._known]
        returned = _call_user_code(self._option, self._file, lambda: self._function(*arguments))
        if returned is None:
            self._check_filled(arrays, outputs, inputs)
        by_name = arrays if returned is None else self._by_name(returned)
        if not self._known and all(
            by_name.get(output.name) is None for output in self._launch.outputs
        ):
            raise UsageError(
                f"{self._name} returned nothing for any output: return an array for one at least"
            )
        references: dict[str, NDArray[Any] | None] = {}
        for output in outputs:
            value = by_name.get(output.name)
            references[output.name] = (
                None if value is None else _flat_reference(value, output, f"{self._name} returned")
            )
        return references

    def _check_filled(self, arrays: Arrays, outputs: Sequence[Buffer], inputs: Arrays) -> None:
        """Refuse a function that neither returned nor changed anything: its `return` is missing.

        Raises:
            UsageError: No output was changed, or one without initial values was not.
        """
        unchanged = [
            output for output in outputs if _is_unchanged(arrays[output.name], output, inputs)
        ]
        if len(unchanged) < len(outputs):
            unchanged = [output for output in unchanged if output.role == "out"]
        left = [output.name for output in unchanged]
        if left:
            them = "it" if len(left) == 1 else "them"
            raise UsageError(
                f"{self._name} returned nothing and left {', '.join(left)} as "
                f"{'it was' if len(left) == 1 else 'they were'}: return {them} or fill {them}"
            )

    def _by_name(self, returned: Any) -> Mapping[str, Any]:
        """The returned arrays by the names of outputs; None for outputs that are not verified.

        Raises:
            UsageError: There is no such argument, or a tuple does not have one item per output.
        """
        names = [output.name for output in self._launch.outputs]
        lists = {
            argument.name: outputs
            for argument in nested_arguments(self._launch.user_arguments)
            if (outputs := _pointed_outputs(argument))
        }
        if isinstance(returned, Mapping):
            known = {
                argument.name for argument in nested_arguments(self._launch.user_arguments)
            }.union(names)
            for name in returned:
                if name not in known:
                    hint = suggest_nearest(str(name), sorted(known))
                    raise UsageError(f"{self._name} returned something for {name!r}: {hint}")
            flat: dict[str, Any] = {}
            for name, value in returned.items():
                flat |= self._spread(name, value, lists)
            return flat
        arrays = returned if isinstance(returned, tuple) else (returned,)
        pointed = {name for outputs in lists.values() for name in outputs}
        groups = [
            argument.name
            for argument in nested_arguments(self._launch.user_arguments)
            if argument.name in lists or (argument.name in names and argument.name not in pointed)
        ]
        if lists and len(arrays) == len(groups):
            flat = {}
            for name, value in zip(groups, arrays, strict=True):
                flat |= self._spread(name, value, lists)
            return flat
        if len(arrays) != len(names):
            raise UsageError(
                f"{self._name} returned {len(arrays)} arrays; the outputs are "
                f"{', '.join(names) or 'none'}: return one for each, in this order, None for one "
                "that is not to be verified"
            )
        return dict(zip(names, arrays, strict=True))

    def _spread(
        self, name: str, value: Any, lists: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Any]:
        """The values returned for one argument, by the names of outputs.

        Raises:
            UsageError: The argument is an array of pointers, and there is no value for each output.
        """
        if name not in lists or value is None:
            return {name: value}
        outputs = lists[name]
        try:
            count = len(value)
        except TypeError:
            count = 0
        if isinstance(value, Mapping) or count != len(outputs):
            raise UsageError(
                f"{self._name} returned {count} arrays for {name}, whose outputs are "
                f"{', '.join(outputs[:_MAX_LISTED])}{', ...' if outputs[_MAX_LISTED:] else ''}: "
                "return a list with one for each"
            )
        return dict(zip(outputs, value, strict=True))


def _pointed_outputs(argument: Argument) -> tuple[str, ...]:
    """The outputs that the pointers of an array point to; none for another argument."""
    if not isinstance(argument, Buffer) or argument.structure is not None:
        return ()
    return tuple(
        member.name
        for _, member in argument.members
        if isinstance(member, Buffer) and member.role != "in" and not member.members
    )


def _initial_value(argument: Argument, arrays: Arrays) -> Any:
    """The value of an argument before the launch.

    A structure is a tuple of its numbers and arrays, or its bytes if it comes from a file; an array
    of pointers is a list of arrays, one of structures with pointers a list of tuples; a null
    pointer is None. A pointer into an array is the whole array, one into the array of another
    argument its elements from there on.
    """
    if isinstance(argument, Scalar):
        return bool(argument.value) if argument.dtype == "bool" else argument.value
    if isinstance(argument, Structure) and argument.path:
        return load_array(argument.path, (argument.nbytes,), "uint8").copy()
    if isinstance(argument, Structure):
        return tuple(_initial_value(member, arrays) for _, member in argument.members)
    if isinstance(argument, NullPointer):
        return None
    if isinstance(argument, TensorMap):
        return _initial_value(argument.array, arrays)
    if isinstance(argument, Buffer) and argument.members:
        return _initial_elements(argument, arrays)
    if isinstance(argument, ArrayAlias):
        array = arrays[argument.array]
        return array.reshape(-1)[argument.start :] if argument.start else array
    return arrays[argument.name]


def _initial_elements(array: Buffer, arrays: Arrays) -> list[Any]:
    """The elements of an array of pointers, or of structures with pointers."""
    if array.structure is None:
        return [_initial_value(member, arrays) for _, member in array.members]
    held: list[list[tuple[int, Any]]] = [[] for _ in range(array.elements)]
    for offset, member in array.members:
        element, inside = divmod(offset, array.element_bytes)
        held[element].append((inside, _initial_value(member, arrays)))
    given = [{offset for offset, _ in members} for members in held]
    for element, structure in enumerate(arrays[array.name].reshape(-1)):
        held[element] += [
            (offset, value)
            for offset, value in structure_arrays.placed_numbers(structure)
            if offset not in given[element]
        ]
    return [tuple(value for _, value in sorted(members, key=itemgetter(0))) for members in held]


def _initial_array(buffer: Buffer, inputs: Arrays) -> NDArray[Any]:
    """A copy of an array before the launch, which the function may overwrite."""
    if buffer.name in inputs:
        return inputs[buffer.name].copy()
    poisoned = np.full(buffer.nbytes, POISON_BYTE, np.uint8)
    return poisoned.view(array_type(buffer)).reshape(buffer.shape)


def _is_unchanged(array: NDArray[Any], buffer: Buffer, inputs: Arrays) -> bool:
    """Whether an array holds what `_initial_array` gave; most differ in their first bytes."""
    held = array_bytes(np.ascontiguousarray(array))
    initial = array_bytes(inputs[buffer.name]) if buffer.name in inputs else None
    for start in range(0, held.size, _COMPARED_BYTES):
        piece = slice(start, start + _COMPARED_BYTES)
        if (held[piece] != (POISON_BYTE if initial is None else initial[piece])).any():
            return False
    return True


def _load_function(where: str, file: str) -> Callable[..., Any]:
    """Run a Python file and return one of its functions.

    Raises:
        UsageError: The file cannot be read or fails, or has no such function.
    """
    name, path = where.rpartition(":")[2], Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE_BYTES:
            raise UsageError(f"--reference {where}: {file} is not a Python file: check its name")
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--reference {where}: cannot read {file} ({reason})") from None
    space: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    _call_user_code(
        f"--reference {where}", file, lambda: exec(compile(text, str(path), "exec"), space)
    )
    function = space.get(name)
    if not callable(function):
        functions = [key for key, value in space.items() if callable(value) and key[0] != "_"]
        hint = suggest_nearest(name, functions) if functions else f"define it: def {name}(...)"
        raise UsageError(f"{file} has no function {name!r}: {hint}")
    called: Callable[..., Any] = function
    return called


def _call_user_code(function: str, file: str, work: Callable[[], Any]) -> Any:
    """Call user code; what it prints goes to stderr, since stdout holds the result.

    Args:
        function: The function's name for messages.
        file: The file name in the function's code.
        work: Calls the user code.

    Raises:
        UsageError: The code failed; the message has the error and the line.
    """
    try:
        with redirect_stdout(sys.stderr):
            return work()
    except (Exception, SystemExit) as error:
        calls = traceback.extract_tb(error.__traceback__)
        lines = [call.lineno for call in calls if call.filename == file]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        place = "" if line is None else f" in line {line}"
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        raise UsageError(f"{function} failed{place} ({reason}): correct the function") from error
