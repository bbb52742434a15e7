"""The kernels of which results are recorded: the catalog, the examples, those of the tests."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import ten_kernels
from launches import user_launch
from paths import DATA, REPOSITORY
from planted import PLANTED, Planted
from recorded_launches import (
    HOPPER,
    Architecture,
    record_check,
    record_kernel,
    record_run,
    record_trace,
    without_folder,
)
from recorded_results import Case, Record
from third_party import THIRD_PARTY_KERNELS, ThirdPartyKernel, third_party_launch

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.devices import launch_limits, open_device
from memlab.device.emulation import counting
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Dim3, Launch

Sizes = Mapping[str, int | str]


def cases() -> list[Case]:
    """All of them."""
    return [*_catalog(), *_samples(), *_user(), *_third_party(), *_zoo(), *_planted(), *_traces()]


# --- The catalog -------------------------------------------------------------------------------

_SQUARE, _ODD = {"width": 64}, {"m": 65, "k": 23, "n": 70}
_LARGE_TILE, _LARGE_ODD = {"width": 128}, {"m": 130, "k": 20, "n": 67}
_WGMMA: list[Sizes] = [_LARGE_TILE, {"m": 130, "k": 72, "n": 264}]
_COPY: list[Sizes] = [{"n": 4096}, {"n": 5001, "cache": "global"}]
_FILTER: list[Sizes] = [{"n": 4096}, {"n": 9133}]
_PLANE: list[Sizes] = [{"width": 96, "height": 64}, {"width": 101, "height": 75}]
_ATTENTION: list[Sizes] = [
    {"tokens": 128, "heads": 2, "head_size": 128},
    {"tokens": 77, "heads": 2, "causal": "yes"},
]

CATALOG_SIZES: dict[str, list[Sizes]] = {
    "naive": [_SQUARE, _ODD],
    "tiled": [_SQUARE, _ODD, {"width": 64, "tile": 32}, {"width": 50, "tile": 8}],
    "tiled-dynamic": [_SQUARE, _ODD],
    "coarsened": [_SQUARE, _ODD],
    "register-tiled-1d": [_SQUARE, _ODD],
    "register-tiled-2d": [_LARGE_TILE, _LARGE_ODD],
    "vectorized": [_LARGE_TILE, _LARGE_ODD],
    "double-buffered": [_LARGE_TILE, _LARGE_ODD],
    "warp-tiled": [{"width": 256}, _LARGE_ODD],
    "tensor-tf32": [_LARGE_TILE, _LARGE_ODD],
    "tensor-fp16": [_LARGE_TILE, _LARGE_ODD],
    "tensor-bf16": [_LARGE_TILE, _LARGE_ODD],
    **{name: _WGMMA for name in CATALOG if name.startswith("wgmma")},
    "blur": [*_PLANE, {"width": 40, "height": 33, "radius": 3}],
    "blur-tiled": [*_PLANE, {"width": 40, "height": 33, "radius": 3}],
    "blur-vectorized": [*_PLANE, {"width": 40, "height": 33, "radius": 3}],
    "aligned": _COPY,
    "permuted": _COPY,
    "misaligned": [*_COPY, {"n": 3000, "offset": 7}],
    "broadcast": _COPY,
    "scattered": _COPY,
    "strided": [*_COPY, {"n": 3000, "stride": 37}],
    "copy-vectorized": [{"n": 4096}, {"n": 5001}],
    "row-sum": [{"width": 128}, {"width": 261}],
    "row-sum-block": [{"width": 128}, {"width": 261}],
    "column-sum": [{"width": 128}, {"width": 261}],
    "column-sum-block": [{"width": 128}, {"width": 261}],
    "bank-stride": [{"n": 4096}, {"n": 5061, "stride": 7}, {"n": 4096, "stride": 32}],
    "transpose": _PLANE,
    "transpose-shared": _PLANE,
    "transpose-padded": _PLANE,
    "transpose-vectorized": _PLANE,
    "matmul-column-major": [_SQUARE, _ODD],
    "corner-turning": [_SQUARE, {**_ODD, "tile": 8}],
    "filter-registers": _FILTER,
    "filter-local": _FILTER,
    "filter-shared": _FILTER,
    "filter-constant": _FILTER,
    "filter-constant-divergent": _FILTER,
    "filter-global": _FILTER,
    "register-pressure": [{"n": 4096}, {"n": 3289, "registers": 32}],
    "attention-scores": _ATTENTION,
    "attention-softmax": _ATTENTION,
    "attention-values": _ATTENTION,
    "attention-tiled": _ATTENTION,
    "attention-mma": _ATTENTION,
    "attention-wgmma": _ATTENTION,
}
"""Sizes that blocks and tiles divide, and others."""


def catalog_launch(name: str, sizes: Sizes) -> Launch:
    """The launch of a kernel of the catalog."""
    return CATALOG[name].prepare(dict(sizes), launch_limits(open_device("h200").properties))


def _catalog() -> list[Case]:
    return [
        Case(
            f"catalog/{name}/{_text(sizes)}",
            "catalog",
            partial(_record_catalog, name, sizes),
            slow=number != 1,
        )
        for name, several in CATALOG_SIZES.items()
        for number, sizes in enumerate(several)
    ]


def _record_catalog(name: str, sizes: Sizes) -> Record:
    return record_run(catalog_launch(name, sizes))


def _text(sizes: Sizes) -> str:
    return ",".join(f"{name}={value}" for name, value in sizes.items())


# --- Samples of large grids --------------------------------------------------------------------

_LOW_LIMITS = {
    "WHOLE_GRID_LANE_INSTRUCTIONS": 1_000_000,
    "MAX_EXACT_LANE_INSTRUCTIONS": 2_000_000,
    "SAMPLE_LANE_INSTRUCTIONS": 1_000_000,
}
"""Limits of `counting` at which grids of a moderate size are sampled."""

_SAMPLED: tuple[tuple[str, Sizes], ...] = (
    ("naive", {"m": 300, "k": 40, "n": 333}),
    ("tiled", {"width": 256}),
    ("tiled", {"m": 250, "k": 100, "n": 333}),
    ("vectorized", {"width": 512}),
    ("blur-tiled", {"width": 500, "height": 300}),
    ("transpose-padded", {"width": 800, "height": 555}),
    ("scattered", {"n": 200_000}),
    ("strided", {"n": 200_001, "stride": 3}),
    ("row-sum", {"width": 1500}),
    ("filter-local", {"n": 150_001}),
)


def _samples() -> list[Case]:
    """Grids of which a part runs: by low limits, and by those of every run."""
    cases = [
        Case(
            f"sample/{name}/{_text(sizes)}",
            "samples",
            partial(_record_sample, partial(catalog_launch, name, sizes)),
            slow=number not in (2, 4, 6),
        )
        for number, (name, sizes) in enumerate(_SAMPLED)
    ]
    for make in (ten_kernels.histogram, ten_kernels.csr, ten_kernels.reduce_shuffle):
        name = f"sample/{make.__name__}/300000"
        record = partial(_record_own, make, 300_000, record=_record_sample_of)
        cases.append(Case(name, "samples", record, slow=True))
    for name, sizes in (("tiled", {"width": 1024}), ("scattered", {"n": 1 << 22})):
        label = f"sample/{name}/{_text(sizes)},usual-limits"
        cases.append(Case(label, "samples", partial(_record_catalog, name, sizes), slow=True))
    return cases


def _record_sample(make: Callable[[], Launch]) -> Record:
    return _record_sample_of(make())


def _record_sample_of(launch: Launch) -> Record:
    with patch.multiple(counting, **_LOW_LIMITS):
        return record_run(launch)


# --- User kernels: the examples, and ten typical ones ------------------------------------------

_EXAMPLES = {
    "saxpy.cu:saxpy": "--grid 40 --block 256 --arg f32=2.0 --arg f32[10000] "
    "--arg inout:f32[10000] --arg i32=10000",
    "particles.cu:structures": "--grid 20 --block 256 --arg inout:f32[5000,7] --arg i32=5000 "
    "--arg f32=0.01",
    "particles.cu:arrays": "--grid 20 --block 256 --arg inout:f32[3,5000] --arg f32[3,5000] "
    "--arg i32=5000 --arg f32=0.01",
    "hasty.cu:hasty": "--grid 2,2 --block 8,8 --arg f32[16,16] --arg f32[16,16] "
    "--arg out:f32[16,16] --arg i32=16",
}
_HASTY_ODD = "--grid 2,2 --block 8,8 --arg f32[14,14] --arg f32[14,14] --arg out:f32[14,14] "


def _user() -> list[Case]:
    cases = []
    for target, words in {**_EXAMPLES, "hasty.cu:hasty odd": _HASTY_ODD + "--arg i32=14"}.items():
        path, name = f"{REPOSITORY}/docs/examples/{target.split()[0]}", target.replace(" ", "-")
        for what, record in (("run", record_run), ("check", record_check)):
            make = partial(_record_words, path, words, record)
            cases.append(Case(f"{what}/{name}", "user-kernels", make))
    for make_case in ten_kernels.KERNELS:
        for count in (5000, 30_011):
            name = f"run/{make_case.__name__}/{count}"
            record = partial(_record_own, make_case, count, record=record_run)
            cases.append(Case(name, "user-kernels", record, slow=count != 5000))
        name = f"check/{make_case.__name__}/3000"
        record = partial(_record_own, make_case, 3000, record=record_check)
        cases.append(Case(name, "user-kernels", record, slow=True))
    return cases


def _record_words(path: str, words: str, record: Callable[[Launch], Record]) -> Record:
    return record(user_launch(path, shlex.split(words)))


def _record_own(
    make: Callable[[int], ten_kernels.Case], count: int, record: Callable[[Launch], Record]
) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        _, target, *words = make(count).words(Path(folder))
        return without_folder(record(user_launch(target, words)), folder)


# --- Kernels in the style of other projects ----------------------------------------------------


def _third_party() -> list[Case]:
    cases = []
    for make in THIRD_PARTY_KERNELS:
        for architecture in make().architectures:
            name = f"run/{make.__name__}/sm_{architecture[0]}{architecture[1]}"
            record = partial(
                _record_third_party, make, partial(record_run, architecture=architecture)
            )
            cases.append(Case(name, "third-party", record, slow=True))
        record = partial(_record_third_party, make, record_check)
        cases.append(Case(f"check/{make.__name__}", "third-party", record, slow=True))
    return cases


def _record_third_party(
    make: Callable[[], ThirdPartyKernel], record: Callable[[Launch], Record]
) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        return without_folder(record(third_party_launch(make(), Path(folder))), folder)


# --- What students' kernels call ---------------------------------------------------------------

_COUNT = 256


def _zoo_arrays(entry: str) -> dict[str, Any]:
    draw = np.random.default_rng(17)
    reals = draw.uniform(-50, 50, _COUNT)
    wide = draw.integers(-(2**63), 2**63, _COUNT) >> draw.integers(0, 63, _COUNT)
    small = draw.integers(-50, 50, _COUNT).astype("i4")
    match entry:
        case "float_math" | "double_math":
            kind = "f4" if entry == "float_math" else "f8"
            out = np.zeros((48, _COUNT), kind)
            return {"a": reals.astype(kind), "b": (reals[::-1] / 13).astype(kind), "out": out}
        case "integers" | "longs":
            kind = "i4" if entry == "integers" else "i8"
            a, b = wide.astype(kind), np.roll(wide, 7).astype(kind) | 1
            return {"a": a, "b": b, "out": np.zeros((36, _COUNT), kind)}
        case "warps":
            return {"a": small, "out": np.zeros((12, _COUNT), "i4")}
        case "structures":
            a = draw.uniform(-2, 2, (_COUNT, 4)).astype("f4")
            return {"a": a, "out": np.zeros((7, _COUNT), "f4")}
    return {
        "a": small,
        "bins": np.zeros(17, "i4"),
        "sums": np.zeros(1, "f4"),
        "wide": np.zeros(2),
        "out": np.zeros((3, _COUNT), "i4"),
    }


_ZOO = ("float_math", "double_math", "integers", "longs", "warps", "structures", "atomics")
_ITEM = np.array([0.25, -1.5, 3.0], "f4").tobytes() + np.int32(7).tobytes()


def _zoo() -> list[Case]:
    return [
        Case(
            f"zoo/{entry}/sm_{major}{minor}",
            "zoo",
            partial(_record_zoo, entry, (major, minor)),
            slow=(major, minor) != HOPPER or entry == "float_math",
        )
        for major, minor in ((7, 5), HOPPER, (12, 0))
        for entry in _ZOO
    ]


def _record_zoo(entry: str, architecture: Architecture) -> Record:
    more: dict[str, Any] = {}
    scalars: Any = [np.int32(_COUNT)]
    if entry == "structures":
        scalars = {"item": _ITEM, "n": np.int32(_COUNT)}
        more = {"order": ("a", "item", "out", "n"), "dynamic_shared_bytes": 256}
    text = _compile_zoo(architecture)
    arrays, grid = _zoo_arrays(entry), (4, 1, 1)
    return record_kernel(text, arrays, scalars, entry=entry, grid=grid, block=(64, 1, 1), **more)


@cache
def _compile_zoo(architecture: Architecture) -> str:
    source = (DATA / "zoo.cu").read_text()
    return compile_unit(TranslationUnit(source, "zoo.cu", architecture)).ptx


# --- Planted mistakes --------------------------------------------------------------------------


def _planted() -> list[Case]:
    quick = {planted.name for planted in PLANTED[::5]}
    return [
        Case(
            f"{what}/{planted.name}{'/fixed' * fixed}",
            "planted",
            partial(_record_planted, planted, fixed, record),
            slow=fixed or planted.name not in quick,
        )
        for planted in PLANTED
        for fixed in (False, True)
        for what, record in (("check", record_check), ("run", record_run))
    ]


def _record_planted(planted: Planted, fixed: bool, record: Callable[[Launch], Record]) -> Record:
    return record(user_launch(str(planted.path), planted.words, ["FIXED"] * fixed))


# --- Traces ------------------------------------------------------------------------------------

_TRACED: tuple[tuple[str, Sizes, Dim3, Dim3], ...] = (
    ("naive", {"width": 8, "tile": 4}, (1, 0, 0), (1, 2, 0)),
    ("tiled", {"width": 12, "tile": 4}, (1, 2, 0), (3, 0, 0)),
    ("tiled-dynamic", {"m": 10, "k": 7, "n": 9, "tile": 4}, (1, 1, 0), (0, 1, 0)),
    ("coarsened", {"width": 64}, (0, 1, 0), (5, 3, 0)),
    ("register-tiled-2d", {"width": 128}, (0, 0, 0), (77, 0, 0)),
    ("tensor-fp16", {"width": 128}, (0, 0, 0), (33, 0, 0)),
    ("corner-turning", {"width": 16, "tile": 8}, (1, 0, 0), (2, 5, 0)),
    ("blur-tiled", {"width": 40, "height": 20}, (0, 1, 0), (9, 4, 0)),
    ("bank-stride", {"n": 2048, "stride": 4}, (1, 0, 0), (40, 0, 0)),
    ("filter-local", {"n": 600}, (0, 0, 0), (3, 0, 0)),
    ("scattered", {"n": 500}, (1, 0, 0), (100, 0, 0)),
)


def _traces() -> list[Case]:
    cases = [
        Case(f"trace/{name}", "traces", partial(_record_trace, name, sizes, block, thread), n > 3)
        for n, (name, sizes, block, thread) in enumerate(_TRACED)
    ]
    for make in (ten_kernels.histogram, ten_kernels.reduce_shared, ten_kernels.csr):
        record = partial(_record_own, make, 2000, record=partial(_trace_of, thread=(37, 0, 0)))
        cases.append(Case(f"trace/{make.__name__}", "traces", record, slow=True))
    return cases


def _record_trace(name: str, sizes: Sizes, block: Dim3, thread: Dim3) -> Record:
    return record_trace(catalog_launch(name, sizes), block, thread)


def _trace_of(launch: Launch, thread: Dim3) -> Record:
    return record_trace(launch, (1, 0, 0), thread)
