"""What the outputs of one's own kernels must hold: arrays in files, or a function in Python.

The function is the one place where memlab runs code besides the kernel, and only where the user
asks for it on the command line.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.inputs import POISON_BYTE, element_type, load_array
from memlab.errors import UsageError, nearest
from memlab.kernels.launch import (
    Argument,
    Arrays,
    Buffer,
    Launch,
    Null,
    Reference,
    Scalar,
    Structure,
)
from memlab.kernels.own import OwnKernel

LARGEST_SOURCE_BYTES = 16 << 20
"""No Python file is longer."""


def references(kernel: OwnKernel, launch: Launch) -> dict[str, Reference]:
    """What each output must hold, by its name; those that nothing is said of are missing.

    Args:
        kernel: What was chosen.
        launch: Its launch.

    Raises:
        UsageError: A file is not there or does not hold such an array, there is no such output,
            or no such function.
    """
    found = {}
    for text in kernel.expect:
        output, path = _expected(text, launch)
        load_array(path, output.shape, output.dtype)  # so that a wrong one is told before the run
        found[output.name] = _from_file(path, output)
    if kernel.reference:
        computed = _Computed(kernel.reference, launch, frozenset(found))
        for output in launch.outputs:
            found.setdefault(output.name, computed.of(output))
    return found


def _expected(text: str, launch: Launch) -> tuple[Buffer, str]:
    """Read `IDX=@FILE.npy`: which output must hold what is in which file.

    Raises:
        UsageError: It is malformed, or there is no such output.
    """
    which, _, path = (part.strip() for part in text.partition("="))
    if not path.startswith("@") or not path[1:]:
        raise UsageError(
            f"--expect {text!r} is not IDX=@FILE.npy: write the number of an argument, from 0, "
            "or its name"
        )
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
        raise UsageError(f"--expect {text!r} names no output of the kernel: {hint}")
    return outputs[which], path[1:]


def _from_file(path: str, output: Buffer) -> Reference:
    def reference(inputs: Arrays, index: NDArray[np.int64]) -> NDArray[Any]:
        return load_array(path, output.shape, output.dtype).reshape(-1)[index]

    return reference


class _Computed:
    """What the user's function gives for one launch; it is called once."""

    def __init__(self, where: str, launch: Launch, known: frozenset[str]) -> None:
        """Load the function; outputs that are `known` it may pass over."""
        self._where, self._launch, self._known = where, launch, known
        self._function = _load(where)
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
        given = {each.name: _before(each, inputs) for each in self._launch.arguments}
        returned = _guarded(self._where, lambda: self._function(*given.values()))
        by_name = self._by_name(given if returned is None else returned)
        if not self._known and all(by_name.get(each.name) is None for each in self._launch.outputs):
            raise UsageError(
                f"{self._where} returned nothing for any output: return an array for one at least"
            )
        return {
            each.name: self._values(each, by_name.get(each.name))
            for each in self._launch.outputs
            if each.name not in self._known
        }

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
                    hint = nearest(str(name), known)
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

    def _values(self, output: Buffer, value: Any) -> NDArray[Any] | None:
        """What was returned for an output, flat: integers as they are, all others in float64.

        None stays None: it says nothing of this output.

        Raises:
            UsageError: It is no array of real numbers in the output's shape.
        """
        if value is None:
            return None
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
            raise UsageError(
                f"{self._where} returned no real numbers for {output.name}: return an array"
            )
        if values.shape not in (output.shape, (output.elements,)):
            raise UsageError(
                f"{self._where} returned an array of shape {list(values.shape)} for {output.name}, "
                f"which has {list(output.shape)}: return one of that shape"
            )
        return values.reshape(-1)


def _before(argument: Argument, inputs: Arrays) -> Any:
    """An argument as the kernel finds it; of an array a copy, for the function may work in it.

    A structure is the tuple of its numbers, or its bytes where a file gave these; a null pointer is
    None.
    """
    if isinstance(argument, Scalar):
        return bool(argument.value) if argument.dtype == "bool" else argument.value
    if isinstance(argument, Structure) and argument.path:
        return load_array(argument.path, (argument.nbytes,), "uint8").copy()
    if isinstance(argument, Structure):
        return tuple(_before(member, inputs) for _, member in argument.members)
    if isinstance(argument, Null):
        return None
    if argument.name in inputs:
        return inputs[argument.name].copy()
    poisoned = np.full(argument.nbytes, POISON_BYTE, np.uint8)
    return poisoned.view(element_type(argument.dtype)).reshape(argument.shape)


def _load(where: str) -> Callable[..., Any]:
    """Run a Python file and give one of its functions.

    Raises:
        UsageError: The file cannot be read or fails, or has no such function.
    """
    file, _, name = where.rpartition(":")
    path = Path(file)
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_SOURCE_BYTES:
            raise UsageError(f"--reference {where}: {file} is no Python file: check its name")
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--reference {where}: cannot read {file} ({reason})") from None
    space: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    _guarded(where, lambda: exec(compile(text, str(path), "exec"), space))
    function = space.get(name)
    if not callable(function):
        functions = [key for key, value in space.items() if callable(value) and key[0] != "_"]
        hint = nearest(name, functions) if functions else f"define it: def {name}(...)"
        raise UsageError(f"{file} has no function {name!r}: {hint}")
    called: Callable[..., Any] = function
    return called


def _guarded(where: str, work: Callable[[], Any]) -> Any:
    """Do what runs the user's code; what it prints goes to stderr, for stdout has the result.

    Raises:
        UsageError: It failed; says how and in which line.
    """
    try:
        with redirect_stdout(sys.stderr):
            return work()
    except (Exception, SystemExit) as error:
        file = str(Path(where.rpartition(":")[0]))
        calls = traceback.extract_tb(error.__traceback__)
        lines = [each.lineno for each in calls if each.filename == file]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        place = "" if line is None else f" in line {line}"
        said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        raise UsageError(
            f"--reference {where} failed{place} ({said}): correct the function"
        ) from None
