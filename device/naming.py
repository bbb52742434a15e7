"""Addresses as elements of a program's arrays, in the source's own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from memlab.device.execution import Execution
from memlab.device.symbols import dimensions, source_name
from memlab.device.trace_records import Element
from memlab.kernels.launch import Launch

WORD_BYTES = 4


@dataclass(frozen=True)
class Array:
    """Where an array lies in its state space, and how it is subscripted.

    Attributes:
        name: Its name in the source.
        start: Address of its first byte.
        size: Bytes.
        element_bytes: Bytes of one element.
        shape: Elements in each dimension, row-major.
    """

    name: str
    start: int
    size: int
    element_bytes: int
    shape: tuple[int, ...]

    def element(self, space: str, index: int) -> Element:
        """The element at a row-major position; one that is outside continues the first row."""
        return Element(space, self.name, index, _subscripts(index, self.shape))


class Names:
    """Finds the element that an address belongs to."""

    def __init__(self, launch: Launch, execution: Execution) -> None:
        program, shapes = execution.program, {each.name: each.shape for each in launch.buffers}
        sizes = program.sizes
        declared = dimensions(launch.source, launch.defines)
        dynamic = max(program.shared.values(), default=0)  # an array sized at launch is the last
        shared_bytes = dynamic + launch.dynamic_shared_bytes
        self._known: dict[tuple[str, int, int], tuple[Element, ...]] = {}
        self._arrays: dict[str, list[Array]] = {
            "global": [
                Array(
                    source_name(each.name),
                    each.address,
                    each.size,
                    each.element_bytes,
                    shapes.get(each.name, (each.size // each.element_bytes,)),
                )
                for each in execution.memory.allocations
            ],
            "shared": _arrays(program.shared, sizes, shared_bytes, declared),
            "const": _arrays(program.const, sizes, len(program.const_image), declared),
            "local": _arrays(program.local, sizes, program.local_bytes, declared),
        }

    def arrays(self, space: str) -> tuple[Array, ...]:
        """The arrays of a state space, by rising address."""
        return tuple(self._arrays.get(space, ()))

    def knows(self, space: str) -> bool:
        """Whether a state space holds arrays of the program."""
        return space in self._arrays

    def elements(self, space: str, address: int, size: int) -> tuple[Element, ...]:
        """Name what lies in `size` bytes from an address on."""
        key = (space, address, size)
        if key not in self._known:
            self._known[key] = self._find(*key)
        return self._known[key]

    def _find(self, space: str, address: int, size: int) -> tuple[Element, ...]:
        array = next(
            each
            for each in reversed(self._arrays[space])
            if each.start <= address < each.start + max(each.size, 1)
        )
        first = (address - array.start) // array.element_bytes
        return tuple(
            array.element(space, index)
            for index in range(first, first + max(size // array.element_bytes, 1))
        )


def _subscripts(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for extent in reversed(shape[1:]):
        index, inner = divmod(index, extent)
        found.append(inner)
    return (index, *reversed(found))


def _arrays(
    places: Mapping[str, int],
    sizes: Mapping[str, int],
    end: int,
    declared: Mapping[str, tuple[int, ...]],
) -> list[Array]:
    """Arrays by their places; where the source does not say their dimensions, rows of words."""
    arrays = []
    for symbol, start in sorted(places.items(), key=lambda each: each[1]):
        name = source_name(symbol)
        size = sizes.get(symbol) or end - start
        shape = declared.get(name)
        if shape is None or size % max(prod(shape), 1):
            shape = (-(-size // WORD_BYTES),)
        arrays.append(Array(name, start, size, max(size // max(prod(shape), 1), 1), shape))
    return arrays
