"""What the outputs of one's own kernels must hold: arrays, or what a function in Python gives.

The function is the one place where memlab runs code besides the kernel, and only where the user
asks for it, on the command line or from Python.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.inputs import POISON_BYTE, element_type, load_array
from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    Argument,
    Arrays,
    Buffer,
    Launch,
    NullPointer,
    Reference,
    Scalar,
    Structure,
)
from memlab.kernels.user.arguments import ExpectedOutput
from memlab.kernels.user.kernel import UserKernel

MAX_SOURCE_BYTES = 16 << 20
"""No Python file is longer."""


def output_references(kernel: UserKernel, launch: Launch) -> dict[str, Reference]:
    """What each output must hold, by its name; those that nothing is said of are missing.

    Args:
        kernel: What was chosen.
        launch: Its launch.

    Raises:
        UsageError: A file is not there or does not hold such an array, there is no such output,
            or no such function.
    """
    found = {}
    for expected in kernel.expect:
        output, reference = _array_reference(expected, launch)
        found[output.name] = reference
    if kernel.reference:
        computed = _UserReference(kernel.reference, launch, frozenset(found))
        for output in launch.outputs:
            found.setdefault(output.name, computed.of(output))
    return found


def _array_reference(expected: str | ExpectedOutput, launch: Launch) -> tuple[Buffer, Reference]:
    """Read `IDX=@FILE.npy`, or an array that was given: of which output, and what it must hold.

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
    load_array(path[1:], output.shape, output.dtype)  # so that a wrong one is told before the run
    return output, _reference_from_file(path[1:], output)


def _find_output(which: str, said: str, launch: Launch) -> Buffer:
    """The output of this name, or that is the argument of this number.

    Raises:
        UsageError: There is none.
    """
    outputs = {each.name: each for each in launch.outputs}
    if which.isdecimal() and int(which) < len(launch.arguments):
        which = launch.arguments[int(which)].name
    if which not in outputs:
        numbered = ", ".join(
            f"{index} ({each.name})"
            for index, each in enumerate(launch.arguments)
            if each.name in outputs
        )
        hint = f"outputs are {numbered}" if outputs else "declare one out: or inout:"
        raise UsageError(f"{said} names no output of the kernel: {hint}")
    return outputs[which]


def _reference_from_file(path: str, output: Buffer) -> Reference:
    def reference(inputs: Arrays, index: NDArray[np.int64]) -> NDArray[Any]:
        return load_array(path, output.shape, output.dtype).reshape(-1)[index]

    return reference


def _reference_from_array(values: NDArray[Any]) -> Reference:
    def reference(inputs: Arrays, index: NDArray[np.int64]) -> NDArray[Any]:
        return values[index]

    return reference


def _flat_reference(value: Any, output: Buffer, said: str) -> NDArray[Any]:
    """What an output must hold, flat: integers as they are, all others in float64.

    Args:
        value: What NumPy takes for an array.
        output: The output.
        said: Who gave it, for messages: `saxpy.py:saxpy returned`.

    Raises:
        UsageError: It is no array of real numbers in the output's shape.
    """
    values: NDArray[Any] | None
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":  # such as Python's integers, which may fit 64 bits
            array = np.array(array.tolist())
        real = array if array.dtype.kind != "c" else None
        whole = array.dtype.kind in "iub"
        values = array if whole else None if real is None else real.astype(np.float64)
    except (TypeError, ValueError):
        values = None
    if values is None:
        raise UsageError(f"{said} no real numbers for {output.name}: give an array of them")
    if values.shape not in (output.shape, (output.elements,)):
        raise UsageError(
            f"{said} an array of shape {list(values.shape)} for {output.name}, "
            f"which has {list(output.shape)}: give one of that shape"
        )
    return values.reshape(-1)


class _UserReference:
    """What the user's function gives for one launch; it is called once."""

    def __init__(
        self, where: str | Callable[..., Any], launch: Launch, known: frozenset[str]
    ) -> None:
        """Load the function; outputs that are `known` it may pass over."""
        self._launch, self._known = launch, known
        if isinstance(where, str):
            self._where, self._file = where, str(Path(where.rpartition(":")[0]))
            self._option = f"--reference {where}"
            self._function = _load_function(where, self._file)
        else:
            self._where = str(getattr(where, "__name__", type(where).__name__))
            self._file = getattr(getattr(where, "__code__", None), "co_filename", "")
            self._function, self._option = where, f"the reference {self._where}"
        self._found: dict[str, NDArray[Any] | None] = {}

    def of(self, output: Buffer) -> Reference:
        """What an output must hold."""

        def reference(inputs: Arrays, index: NDArray[np.int64]) -> NDArray[Any] | None:
            if not self._found:
                self._found = self._call(inputs)
            values = self._found[output.name]
            return values if values is None or index.size == values.size else values[index]

        return reference

    def _call(self, inputs: Arrays) -> dict[str, NDArray[Any] | None]:
        given = {each.name: _initial_value(each, inputs) for each in self._launch.arguments}
        outputs = [each for each in self._launch.outputs if each.name not in self._known]
        returned = _call_user_code(
            self._option, self._file, lambda: self._function(*given.values())
        )
        if returned is None:
            self._check_filled(given, outputs, inputs)
        by_name = self._by_name(given if returned is None else returned)
        if not self._known and all(by_name.get(each.name) is None for each in self._launch.outputs):
            raise UsageError(
                f"{self._where} returned nothing for any output: return an array for one at least"
            )
        return {
            each.name: None
            if value is None
            else _flat_reference(value, each, f"{self._where} returned")
            for each in outputs
            for value in (by_name.get(each.name),)
        }

    def _check_filled(
        self, given: Mapping[str, Any], outputs: Sequence[Buffer], inputs: Arrays
    ) -> None:
        """Refuse a function that neither returned nor changed anything: a `return` is forgotten.

        Raises:
            UsageError: So it is of all outputs, or of one that holds nothing yet.
        """
        same = [
            each
            for each in outputs
            if given[each.name].tobytes() == _initial_value(each, inputs).tobytes()
        ]
        empty = [each for each in same if each.role == "out"]
        left = [each.name for each in (same if len(same) == len(outputs) else empty)]
        if left:
            them = "it" if len(left) == 1 else "them"
            raise UsageError(
                f"{self._where} returned nothing and left {', '.join(left)} as "
                f"{'it was' if len(left) == 1 else 'they were'}: return {them} or fill {them}"
            )

    def _by_name(self, returned: Any) -> Mapping[str, Any]:
        """What was returned, by the names of outputs; of those left out, nothing is said.

        Raises:
            UsageError: There is no such argument, or a tuple has not one place for each output.
        """
        names = [each.name for each in self._launch.outputs]
        if isinstance(returned, Mapping):
            known = [each.name for each in self._launch.arguments]
            for name in returned:
                if name not in known:
                    hint = suggest_nearest(str(name), known)
                    raise UsageError(f"{self._where} returned something for {name!r}: {hint}")
            return returned
        arrays = returned if isinstance(returned, tuple) else (returned,)
        if len(arrays) != len(names):
            raise UsageError(
                f"{self._where} returned {len(arrays)} arrays; the outputs are "
                f"{', '.join(names) or 'none'}: return one for each, in this order, None for one "
                "that is not to be verified"
            )
        return dict(zip(names, arrays, strict=True))


def _initial_value(argument: Argument, inputs: Arrays) -> Any:
    """An argument as the kernel finds it; of an array a copy, for the function may work in it.

    A structure is the tuple of its numbers, or its bytes where a file gave these; a null pointer is
    None.
    """
    if isinstance(argument, Scalar):
        return bool(argument.value) if argument.dtype == "bool" else argument.value
    if isinstance(argument, Structure) and argument.path:
        return load_array(argument.path, (argument.nbytes,), "uint8").copy()
    if isinstance(argument, Structure):
        return tuple(_initial_value(member, inputs) for _, member in argument.members)
    if isinstance(argument, NullPointer):
        return None
    if argument.name in inputs:
        return inputs[argument.name].copy()
    poisoned = np.full(argument.nbytes, POISON_BYTE, np.uint8)
    return poisoned.view(element_type(argument.dtype)).reshape(argument.shape)


def _load_function(where: str, file: str) -> Callable[..., Any]:
    """Run a Python file and give one of its functions.

    Raises:
        UsageError: The file cannot be read or fails, or has no such function.
    """
    name, path = where.rpartition(":")[2], Path(file)
    try:
        if not path.is_file() or path.stat().st_size > MAX_SOURCE_BYTES:
            raise UsageError(f"--reference {where}: {file} is no Python file: check its name")
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
    """Do what runs the user's code; what it prints goes to stderr, for stdout has the result.

    Args:
        function: How messages name the function.
        file: The file that it is in, as its code names it.
        work: What runs it.

    Raises:
        UsageError: It failed; says how and in which line.
    """
    try:
        with redirect_stdout(sys.stderr):
            return work()
    except (Exception, SystemExit) as error:
        calls = traceback.extract_tb(error.__traceback__)
        lines = [each.lineno for each in calls if each.filename == file]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        place = "" if line is None else f" in line {line}"
        said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        raise UsageError(f"{function} failed{place} ({said}): correct the function") from error
