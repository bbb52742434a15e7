"""Arrays that launches read from files: sparse matrices, indices, permutations.

All are drawn from a fixed seed, so that the GPU and the emulated device get the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 20


def data_folder() -> Path:
    """Where the files lie on this machine; another version of this module has another folder."""
    version = sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    return Path(tempfile.gettempdir()) / f"memlab-truth-{version}"


def write_array(file: Path) -> None:
    """Write the array that a file is named for, unless it is there."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    family = file.stem.partition("-")[0] if file.stem in _PARTS else file.stem
    arrays = {file.stem: MAKERS[family](_generator(family))} if family in MAKERS else {}
    arrays = arrays or _sparse_arrays(family)
    for name, array in arrays.items():
        partial = file.with_name(f".{name}.{id(array)}.npy")
        np.save(partial, array)
        partial.replace(file.with_name(f"{name}.npy"))


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng([SEED, *name.encode()])


def _sparse_arrays(family: str) -> dict[str, NDArray[Any]]:
    """A matrix in compressed sparse rows: the starts of rows, columns and values."""
    generator = _generator(family)
    lengths, column = SPARSE[family](generator)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    value = generator.random(start[-1], np.float32)
    return {
        f"{family}-start": start,
        f"{family}-column": column.astype(np.int32),
        f"{family}-value": value,
    }


def _random_matrix(generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """200,000 rows of 0 to 32 entries in any columns."""
    rows = 200_000
    lengths = generator.integers(0, 33, rows)
    return lengths, generator.integers(0, rows, lengths.sum())


def _mesh_matrix(generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """The five-point operator on a grid of 1024 by 1024."""
    side = 1024
    y, x = np.divmod(np.arange(side * side), side)
    steps = [(-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)]
    near = [(y + dy, x + dx) for dy, dx in steps]
    inside = np.stack([(b >= 0) & (b < side) & (a >= 0) & (a < side) for b, a in near], axis=1)
    column = np.stack([b * side + a for b, a in near], axis=1)
    return inside.sum(axis=1), column[inside]


def _skewed_matrix(generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """50,000 rows whose lengths follow a power law up to 4096, columns likewise: a social graph."""
    rows = 50_000
    lengths = np.minimum(8 / np.sqrt(1 - generator.random(rows)) ** 1.6, 4096).astype(np.int64)
    column = rows * generator.random(lengths.sum()) ** 3
    return lengths, column.astype(np.int64)


def _cycle(generator: np.random.Generator, size: int) -> NDArray[Any]:
    """One cycle through all elements, in random order."""
    order = generator.permutation(size)
    following = np.empty(size, np.int32)
    following[order] = np.roll(order, -1)
    return following


def _levels(generator: np.random.Generator) -> NDArray[Any]:
    """Levels of a search that has reached a fifth of 200,000 vertices; -1 for the others."""
    drawn = generator.random(200_000)
    return np.select([drawn < 0.1, drawn < 0.2], [2, 3], -1).astype(np.int32)


def _vertices(generator: np.random.Generator) -> NDArray[Any]:
    """The first edge and the number of edges, 1 to 11, of a million vertices."""
    counts = generator.integers(1, 12, 1_000_000, np.int32)
    return np.stack([np.cumsum(counts, dtype=np.int32) - counts, counts], axis=1)


def _boxes() -> list[list[int]]:
    """For each box of a cube of 10 by 10 by 10 the boxes that touch it."""
    side = range(10)
    steps = [(dz, dy, dx) for dz in (-1, 0, 1) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return [
        [
            100 * (z + dz) + 10 * (y + dy) + x + dx
            for dz, dy, dx in steps
            if (dz, dy, dx) != (0, 0, 0) and {z + dz, y + dy, x + dx} <= {*side}
        ]
        for z in side
        for y in side
        for x in side
    ]


def _box_neighbours(generator: np.random.Generator) -> NDArray[Any]:
    """The boxes that touch each box, 26 places a box, of which those at the border leave some."""
    return np.array([row + [0] * (26 - len(row)) for row in _boxes()], np.int32)


def _cell_neighbours(generator: np.random.Generator) -> NDArray[Any]:
    """Four neighbours of each of 97,152 cells, most of them near; -1 and -2 are borders."""
    cells = 97_152
    near = np.arange(cells) + generator.normal(0, 400, (4, cells)).astype(np.int64)
    drawn = generator.random((4, cells))
    far = generator.integers(0, cells, (4, cells))
    chosen = np.select([drawn < 0.01, drawn < 0.02, drawn < 0.1], [-1, -2, far], near % cells)
    return chosen.astype(np.int32)


def _regions(generator: np.random.Generator, count: int, side: float) -> NDArray[Any]:
    """Boxes in an image of some width: their left, top, right and lower borders."""
    corner = generator.random((count, 2)) * 0.75 * side
    size = (0.02 + 0.23 * generator.random((count, 2))) * side
    return np.asarray(np.concatenate([corner, corner + size], axis=1), np.float32)


def _near_atoms(generator: np.random.Generator) -> NDArray[Any]:
    """128 neighbours of each of 73,728 atoms that lie in the order of their places."""
    atoms = 73_728
    steps = generator.integers(1, 2000, (128, atoms))
    sides = generator.choice([-1, 1], (128, atoms))
    return np.asarray((np.arange(atoms) + steps * sides) % atoms, np.int32)


def _definite(generator: np.random.Generator) -> NDArray[Any]:
    """4096 symmetric, positive definite matrices of 16 by 16."""
    half = generator.random((4096, 16, 16))
    return np.asarray(half @ half.transpose(0, 2, 1) + 4 * np.eye(16), np.float32)


def _upward_graph(generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """A graph of 65,536 vertices, few of which have many edges; these lead to higher vertices."""
    vertices = 65_536
    ends = (vertices * generator.random((1_200_000, 2)) ** 1.5).astype(np.int64)
    low, high = ends.min(axis=1), ends.max(axis=1)
    edges = np.unique(low[low < high] * vertices + high[low < high])
    return np.bincount(edges // vertices, minlength=vertices), edges % vertices


def _edge_sources(generator: np.random.Generator) -> NDArray[Any]:
    """The vertices from which the edges of the upward graph lead."""
    lengths = _upward_graph(_generator("upward"))[0]
    return np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)


def _frontier(generator: np.random.Generator) -> NDArray[Any]:
    """The vertices that the search of `levels` reached last."""
    return np.flatnonzero(_levels(_generator("levels")) == 3).astype(np.int32)


def _weight_blocks(generator: np.random.Generator) -> NDArray[Any]:
    """4096 rows of 128 blocks: a scale in float16 and 32 weights of four bits."""
    scale = generator.uniform(0.001, 0.01, (4096, 128, 1)).astype(np.float16)
    weight = generator.integers(0, 256, (4096, 128, 16), np.uint8)
    return np.concatenate([scale.view(np.uint8), weight], axis=-1)


def _splat_ranges(generator: np.random.Generator) -> NDArray[Any]:
    """The first and the last place in a list of each of 4000 tiles: some 500 splats a tile."""
    ends = np.cumsum(generator.integers(100, 900, 4000, np.int32), dtype=np.int32)
    return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.int32)


def _join_keys(generator: np.random.Generator) -> NDArray[Any]:
    """A million different keys."""
    drawn = np.unique(generator.integers(0, (1 << 32) - 1, 1_100_000, np.uint32))
    return np.asarray(generator.permutation(drawn)[: 1 << 20])


def _join_table(generator: np.random.Generator) -> NDArray[Any]:
    """The keys and their numbers in a table of open addresses, which is half full."""
    keys, size = _join_keys(_generator("join-keys")), 1 << 21
    table = np.full((size, 2), 0xFFFFFFFF, np.uint32)
    pending = np.arange(len(keys))
    slot = (keys * np.uint32(2654435769) >> np.uint32(11)).astype(np.int64) % size
    while len(pending):
        free = np.flatnonzero(table[slot[pending], 0] == 0xFFFFFFFF)
        places, first = np.unique(slot[pending[free]], return_index=True)
        placed = pending[free[first]]
        table[places, 0], table[places, 1] = keys[placed], placed
        pending = np.setdiff1d(pending, placed, assume_unique=True)
        slot[pending] = (slot[pending] + 1) % size
    return table


def _join_probes(generator: np.random.Generator) -> NDArray[Any]:
    """Four million keys to look up, of which three in four are in the table."""
    keys, count = _join_keys(_generator("join-keys")), 1 << 22
    known = keys[generator.integers(0, len(keys), count)]
    other = generator.integers(0, (1 << 32) - 1, count, np.uint32)
    return np.where(generator.random(count) < 0.75, known, other)


def _spins(generator: np.random.Generator) -> NDArray[Any]:
    """Spins of one colour of a board of 4096 by 4096, up (1) or down (-1)."""
    return np.asarray(2 * generator.integers(0, 2, (4096, 2048), np.int8) - 1)


SPARSE: Mapping[str, Callable[[np.random.Generator], tuple[NDArray[Any], NDArray[Any]]]] = {
    "random": _random_matrix,
    "mesh": _mesh_matrix,
    "skewed": _skewed_matrix,
    "upward": _upward_graph,
}
"""Sparse matrices by name: functions that draw the lengths of the rows, and the columns."""

_PARTS = {f"{family}-{part}" for family in SPARSE for part in ("start", "column", "value")}

MAKERS: Mapping[str, Callable[[np.random.Generator], NDArray[Any]]] = {
    "halves": lambda generator: np.sort(
        generator.integers(0, 1 << 30, (512, 4096), np.int32), axis=1
    ).reshape(-1),
    "skewed-bins": lambda generator: (1024 * generator.random(1 << 20) ** 4).astype(np.int32),
    "sorted-index": lambda generator: np.sort(generator.integers(0, 1 << 24, 1 << 21, np.int32)),
    "sorted-others": lambda generator: np.sort(generator.integers(0, 1 << 24, 1 << 21, np.int32)),
    "regions": lambda generator: _regions(generator, 512, 1024.0),
    "detections": lambda generator: _regions(generator, 4000, 1024.0),
    "near-atoms": _near_atoms,
    "definite": _definite,
    "hot-index": lambda generator: ((1 << 24) * generator.random(1 << 21) ** 8).astype(np.int32),
    "shuffle": lambda generator: generator.permutation(1 << 21).astype(np.int32),
    "cycle-16m": lambda generator: _cycle(generator, 1 << 24),
    "cycle-1m": lambda generator: _cycle(generator, 1 << 20),
    "levels": _levels,
    "frontier": _frontier,
    "edge-sources": _edge_sources,
    "weight-blocks": _weight_blocks,
    "slots": lambda generator: generator.permutation(1 << 14)[:4096],
    "splat-ranges": _splat_ranges,
    "join-table": _join_table,
    "join-probes": _join_probes,
    "spins-own": _spins,
    "spins-other": _spins,
    "vertices": _vertices,
    "box-counts": lambda generator: np.array([len(row) for row in _boxes()], np.int32),
    "box-neighbours": _box_neighbours,
    "cell-neighbours": _cell_neighbours,
}
"""Other arrays by name."""


def array_names() -> list[str]:
    """The names of all arrays, which are those of their files without `.npy`."""
    return [*sorted(_PARTS), *MAKERS]
