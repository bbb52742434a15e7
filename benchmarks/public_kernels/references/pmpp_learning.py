"""References of the kernels of PMPP-Learning."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def matrix_vector(matrix: Array, vector: Array, _out: Array, rows: int, columns: int) -> Array:
    """A matrix times a vector."""
    return np.asarray(matrix.reshape(rows, columns).astype(float) @ vector.astype(float))


def maximum(values: Array, largest: Array, _length: int) -> None:
    """The maximum of the array and of what was there."""
    largest[0] = max(largest[0], values.max())


def merge(first: Array, _m: int, second: Array, _n: int, _out: Array) -> Array:
    """Both arrays, sorted."""
    return np.sort(np.concatenate((first, second)))


def scatter(keys: Array, out: Array, scanned: Array, count: int, bit: int, ones: int) -> Array:
    """Keys with a zero in front, in their order, those with a one behind."""
    one = (keys >> bit) & 1 == 1
    place = np.where(one, count - ones + scanned, np.arange(count) - scanned)
    found = out.copy()
    found[place] = keys
    return found


def spmv_jds(
    rows: int,
    diagonals: int,
    columns: Array,
    values: Array,
    permutation: Array,
    starts: Array,
    x: Array,
    out: Array,
) -> Array:
    """The sum over the diagonals, for each row that a diagonal reaches."""
    total = np.zeros(rows)
    for start, end in itertools.pairwise(starts[: diagonals + 1]):
        count = min(max(int(end) - int(start), 0), rows)
        part = slice(start, start + count)
        total[:count] += values[part].astype(float) * x[columns[part]]
    found = np.empty(len(out))
    found[permutation] = total
    return found


def frontier(*arguments: Any) -> tuple[Array, None, Array]:
    """Levels and their number; the order of the queue is open.

    The edges of vertex i are edge i alone, as the command fills the graph.
    """
    graph, levels, previous, _, count, found, level = arguments
    targets = np.unique(_targets(graph)[previous[:count]])
    fresh = targets[levels[targets] == -1]
    reached = levels.copy()
    reached[fresh] = level
    return reached, None, found + len(fresh)


def _targets(graph: Any) -> Array:
    """The member with the vertices that edges lead to."""
    return np.asarray(graph[1] if isinstance(graph, tuple | list) else graph["dst"])


def max_pooling(images: Array, _out: Array, *sizes: int) -> Array:
    """The maximum of each window."""
    count, channels, height, width, window, rows, columns = sizes
    split = images.reshape(count, channels, rows, window, columns, window)
    assert (rows * window, columns * window) == (height, width)
    return np.asarray(split.max((3, 5))).ravel()


def bezier_line(line: int, lines: Array, points: int) -> Array:
    """The points of one quadratic Bezier curve, at equal steps of its parameter."""
    found = lines.copy()
    u = np.arange(points) / (points - 1)
    weights = np.stack(((1 - u) ** 2, 2 * u * (1 - u), u**2), axis=1)
    control = lines["CP"][line].astype(float).reshape(3, 2)
    found["vertexPos"][line][: 2 * points] = (weights @ control).reshape(-1)
    return found
