"""The kernels of `data/third_party`: their launches, and their results computed by NumPy.

Where threads may come in any order, `loose` names outputs of which only the set is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paths import DATA

from memlab.kernels.launch import Buffer, Launch, NpyFile, Scalar

Array = NDArray[Any]
Results = Mapping[str, Any]

TURING, AMPERE, HOPPER = (7, 5), (8, 0), (9, 0)
_LANE = np.arange(32)


@dataclass(frozen=True)
class ThirdPartyKernel:
    """A kernel and its launch.

    Attributes:
        name: File and kernel, `groups.tiles`.
        inputs: Arrays that are read, and scalars; in the kernel's order with the outputs.
        outputs: What the arrays that are written hold afterwards.
        before: What those hold before that are read too.
        order: The names of the arguments in the kernel's order.
        grid: Blocks in x, y, z.
        block: Threads.
        shared: Dynamic shared memory, bytes.
        within: Relative error of floating-point outputs; 0 for the very bits.
        loose: Outputs that are compared sorted.
        architectures: To compile for.
        checked: Whether `check` must find nothing.
    """

    name: str
    order: str
    inputs: Results
    outputs: Results
    before: Results = field(default_factory=dict)
    grid: tuple[int, int, int] = (1, 1, 1)
    block: int = 32
    shared: int = 0
    within: float = 0.0
    loose: tuple[str, ...] = ()
    architectures: tuple[tuple[int, int], ...] = (HOPPER,)
    checked: bool = True


def third_party_launch(kernel: ThirdPartyKernel, folder: Path) -> Launch:
    """The launch of a kernel; its inputs are written to files in a folder."""
    file, entry = kernel.name.split(".")
    arguments: list[Buffer | Scalar] = []
    for name in kernel.order.split():
        value = kernel.inputs.get(name, kernel.before.get(name))
        if isinstance(value, np.generic):
            arguments.append(Scalar(name, value.dtype.name, value.item()))
            continue
        fill = None
        if value is not None:
            np.save(folder / f"{name}.npy", value)
            fill = NpyFile(str(folder / f"{name}.npy"))
        array = kernel.outputs.get(name, value)
        role = "in" if name in kernel.inputs else "inout" if name in kernel.before else "out"
        arguments.append(Buffer(name, array.shape, array.dtype.name, role, fill))
    return Launch(
        kernel=entry,
        parameters={},
        source=(DATA / "third_party" / f"{file}.cu").read_text(),
        source_name=f"{file}.cu",
        entry=entry,
        defines={},
        grid=kernel.grid,
        block=(kernel.block, 1, 1),
        dynamic_shared_bytes=kernel.shared,
        arguments=tuple(arguments),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
        compile_options=("--device-int128",),
    )


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _floats(*shape: int, seed: int = 0, kind: str = "f4") -> Array:
    return _random(seed).uniform(-1, 1, shape).astype(kind)


def _numbers(low: int, high: int, count: int, kind: str = "i4", seed: int = 0) -> Array:
    return _random(seed).integers(low, high, count).astype(kind)


def _i4(value: int) -> np.int32:
    return np.int32(value)


# --- Cooperative groups and CUB --------------------------------------------------------------


def block_sum() -> ThirdPartyKernel:
    x = _floats(3000)
    block = np.arange(3000) // 256 % 4
    sums = np.array([x[block == number].astype("f8").sum() for number in range(4)], "f4")
    inputs = {"x": x, "n": _i4(3000)}
    return ThirdPartyKernel(
        "groups.block_sum", "x sums n", inputs, {"sums": sums}, {}, (4, 1, 1), 256, within=1e-4
    )


def tiles() -> ThirdPartyKernel:
    x = _numbers(0, 12, 256)
    group = x.reshape(-1, 8)
    before = np.cumsum(group, 1) - group
    same = (group[:, :, None] & 3) == (group[:, None, :] & 3)
    rows = [
        np.repeat(group.sum(1), 8),
        np.repeat((group > 5).any(1), 8),
        np.repeat(((group & 1) << np.arange(8)).sum(1), 8),
        np.repeat(group[:, 3], 8),
        np.repeat(group.max(1), 8),
        before.ravel(),
        np.bitwise_or.accumulate(group, 1).ravel(),
        (same << np.arange(8)).sum(2).ravel(),
    ]
    out = np.concatenate(rows).astype("i4")
    inputs = {"x": x, "n": _i4(256)}
    return ThirdPartyKernel("groups.tiles", "x out n", inputs, {"out": out}, {}, (2, 1, 1), 128)


def compact() -> ThirdPartyKernel:
    x = _numbers(-50, 50, 1000)
    kept = x[x > 0]
    outputs = {"out": kept, "count": np.array([kept.size], "i4")}
    return ThirdPartyKernel(
        "groups.compact",
        "x out count n",
        {"x": x, "n": _i4(1000)},
        outputs,
        {"count": np.zeros(1, "i4")},
        (2, 1, 1),
        128,
        loose=("out",),
    )


def partitions() -> ThirdPartyKernel:
    x = _numbers(-5, 50, 128)
    warp = x.reshape(-1, 32)
    same = (warp[:, :, None] & 3) == (warp[:, None, :] & 3)
    half = (warp[:, :, None] > 0) == (warp[:, None, :] > 0)
    below = np.tri(32, k=-1, dtype=bool)
    rows = [half.sum(2), (same * warp[:, None, :]).sum(2), (same & below).sum(2)]
    out = np.concatenate([row.ravel() for row in rows]).astype("i4")
    inputs = {"x": x, "n": _i4(128)}
    return ThirdPartyKernel("groups.partitions", "x out n", inputs, {"out": out}, block=128)


def staged() -> ThirdPartyKernel:
    x = _floats(512)
    out = x.reshape(4, 128)[:, ::-1].ravel()
    inputs = {"x": x, "n": _i4(512)}
    return ThirdPartyKernel(
        "groups.staged", "x out n", inputs, {"out": out}, {}, (4, 1, 1), 128, 512
    )


def block_reduce() -> ThirdPartyKernel:
    x = _floats(1024)
    items = x.reshape(2, 128, 4)
    out = np.stack([items.sum((1, 2)), items[:, :, 0].max(1)], 1).ravel()
    return ThirdPartyKernel(
        "cubs.block_reduce", "x out", {"x": x}, {"out": out}, {}, (2, 1, 1), 128, within=1e-4
    )


def block_scan() -> ThirdPartyKernel:
    x = _numbers(-9, 9, 2048)
    out = (np.cumsum(x.reshape(2, 1024), 1) - x.reshape(2, 1024)).ravel().astype("i4")
    return ThirdPartyKernel("cubs.block_scan", "x out", {"x": x}, {"out": out}, {}, (2, 1, 1), 256)


def block_sort() -> ThirdPartyKernel:
    keys = _numbers(0, 2**32, 1024, "u4")
    order = np.argsort(keys.reshape(2, 512), axis=1, kind="stable")
    outputs = {"out": np.sort(keys.reshape(2, 512), 1).ravel(), "values": order.ravel()}
    outputs["values"] = outputs["values"].astype("i4")
    return ThirdPartyKernel(
        "cubs.block_sort", "keys out values", {"keys": keys}, outputs, {}, (2, 1, 1), 128
    )


# --- Atomics ---------------------------------------------------------------------------------


def cas_loops() -> ThirdPartyKernel:
    x = _floats(500, kind="f8")
    outputs = {"total": np.array([x.sum()]), "most": np.array([x.max()], "f4")}
    before = {"total": np.zeros(1), "most": np.full(1, -9, "f4")}
    inputs = {"x": x, "n": _i4(500)}
    return ThirdPartyKernel(
        "atomics.cas_loops", "x total most n", inputs, outputs, before, (4, 1, 1), 128, within=1e-12
    )


def libcudacxx() -> ThirdPartyKernel:
    x = _numbers(-1000, 1000, 300)
    words = [x.min(), x.max(), np.bitwise_or.reduce(x & 255), np.bitwise_xor.reduce(x), 77, 1]
    outputs = {
        "out": np.array(words, "i4"),
        "counter": np.array([300], "i4"),
        "wide": np.array([x.sum()], "i8"),
    }
    before = {name: np.zeros_like(output) for name, output in outputs.items()}
    inputs = {"x": x, "n": _i4(300)}
    return ThirdPartyKernel(
        "atomics.libcudacxx",
        "x out counter wide n",
        inputs,
        outputs,
        before,
        block=320,
        architectures=(TURING, HOPPER),
    )


def many_kinds() -> ThirdPartyKernel:
    x = _numbers(-(10**9), 10**9, 300)
    u, wide = x.view("u4"), x.astype("i8")
    down = 0
    for _ in range(300):
        down = 6 if down in (0, 7) else down - 1
    words = [0, down, u.min(), u.max(), np.bitwise_and.reduce(u | 0xFF00)]
    words += [np.bitwise_or.reduce(u & 255), np.bitwise_xor.reduce(u), 2**32 - 900, 300, 600, 321]
    bits = wide.view("u8")
    masks = [2**64 - 1, 2**64 - 2**32, np.bitwise_xor.reduce(bits << np.uint64(20))]
    outputs = {
        "u": np.array([int(word) for word in words], "u4"),
        "l": np.array([wide.min(), wide.max()]) * 1_000_000_007,
        "ul": np.array([int(bits.sum()), *map(int, masks), int(bits.max()), 0, 5, 9], "u8"),
        "f": np.arange(-1, 300).astype("f4"),
        "seen": np.arange(-1, 300).astype("i4"),
    }
    outputs["ul"][5] = (x & 0x7FFF_FFFF).min()
    before = {
        "u": np.array([0, 0, 2**32 - 1, 0, 2**32 - 1, 0, 0, 0, 0, 0, 0], "u4"),
        "l": np.array([2**63 - 1, -(2**63)]),
        "ul": np.array([0, 0, 2**64 - 1, 0, 0, 2**64 - 1, 0, 0], "u8"),
        "f": np.full(301, -1, "f4"),
        "seen": np.full(301, -1, "i4"),
    }
    return ThirdPartyKernel(
        "atomics.many_kinds",
        "x u l ul f seen n",
        {"x": x, "n": _i4(300)},
        outputs,
        before,
        (3, 1, 1),
        128,
        loose=("f", "seen"),
    )


def half_sums() -> ThirdPartyKernel:
    outputs = {
        "h": np.array([64, 32], "f2"),
        "h1": np.array([16], "f2"),
        "b": np.array([64, 128], "f4").view("u4") >> 16,
        "f": np.array([64, 128, 0, 0, 64, 128, 192, 256], "f4"),
    }
    outputs["b"] = outputs["b"].astype("u2")
    before = {name: np.zeros_like(output) for name, output in outputs.items()}
    return ThirdPartyKernel("atomics.half_sums", "h h1 b f", {}, outputs, before, (2, 1, 1))


def last_block() -> ThirdPartyKernel:
    x = _floats(2000)
    thread = np.arange(2000) // 128 % 6
    sums = np.array([x[thread == number].astype("f8").sum() for number in range(6)])
    outputs = {"partial": sums.astype("f4"), "total": np.array([sums.sum()], "f4")}
    inputs = {"x": x, "n": _i4(2000)}
    return ThirdPartyKernel(
        "atomics.last_block", "x partial total n", inputs, outputs, {}, (6, 1, 1), 128, within=1e-4
    )


def mutex() -> ThirdPartyKernel:
    outputs = {"lock": np.zeros(1, "i4"), "value": np.array([16], "i4")}
    before = {name: np.zeros(1, "i4") for name in outputs}
    return ThirdPartyKernel(
        "atomics.mutex",
        "lock value",
        {},
        outputs,
        before,
        (4, 1, 1),
        128,
        architectures=(TURING, HOPPER),
    )


def wide_cas() -> ThirdPartyKernel:
    outputs = {"p": np.array([0, 7, 0, 31]), "out": np.array([0] + [7] * 31 + [0, *range(31)])}
    return ThirdPartyKernel("atomics.wide_cas", "p out", {}, outputs, {"p": np.zeros(4, "i8")})


# --- Tensor cores ----------------------------------------------------------------------------


def _product(
    name: str, a: Array, b: Array, kind: str, within: float, columns: str = "", least: Any = TURING
) -> ThirdPartyKernel:
    """C = 2 (A B + 1); `columns` names the matrices of `a` and `b` that are column-major."""
    c = (2 * (a.astype("f8") @ b.astype("f8") + 1)).astype(kind)
    given = {"a": a.T if "a" in columns else a, "b": b.T if "b" in columns else b}
    inputs = {name: np.ascontiguousarray(value).ravel() for name, value in given.items()}
    return ThirdPartyKernel(
        f"tensors.{name}",
        "a b c",
        inputs,
        {"c": c.ravel()},
        within=within,
        architectures=tuple(dict.fromkeys((least, HOPPER))),
    )


def _halves(*shape: int, seed: int = 0) -> Array:
    return _floats(*shape, seed=seed, kind="f2")


def w16_rr() -> ThirdPartyKernel:
    return _product("w16_rr", _halves(16, 16), _halves(16, 16, seed=1), "f4", 1e-4)


def w16_cr_half() -> ThirdPartyKernel:
    a, b = _halves(16, 16), _halves(16, 16, seed=1)
    return _product("w16_cr_half", a, b, "f2", 4e-3, columns="a")


def w8_rr() -> ThirdPartyKernel:
    return _product("w8_rr", _halves(8, 16), _halves(16, 32, seed=1), "f4", 1e-4)


def w16_s8() -> ThirdPartyKernel:
    a, b = (_numbers(-128, 128, 256, "i1", seed).reshape(16, 16) for seed in (0, 1))
    return _product("w16_s8", a, b, "i4", 0, columns="b")


def w16_tf32() -> ThirdPartyKernel:
    a, b = _floats(16, 8), _floats(8, 16, seed=1)
    exact = [(array.view("u4") & 0xFFFF_E000).view("f4") for array in (a, b)]
    return _product("w16_tf32", exact[0], exact[1], "f4", 1e-4, least=AMPERE)


def w8_f64() -> ThirdPartyKernel:
    a, b = _floats(8, 4, kind="f8"), _floats(4, 8, seed=1, kind="f8")
    return _product("w8_f64", a, b, "f8", 1e-12, columns="b", least=AMPERE)


def wmma_gemm() -> ThirdPartyKernel:
    a, b = _halves(64, 48), _halves(48, 96, seed=1)
    c = (a.astype("f8") @ b.astype("f8")).astype("f4")
    inputs = {"a": a.ravel(), "b": b.ravel(), "m": _i4(64), "n": _i4(96), "k": _i4(48)}
    return ThirdPartyKernel(
        "tensors.wmma_gemm",
        "a b c m n k",
        inputs,
        {"c": c.ravel()},
        {},
        (3, 2, 1),
        128,
        within=1e-3,
        architectures=(TURING, HOPPER),
    )


def mma_s8() -> ThirdPartyKernel:
    a, b = _numbers(-128, 128, 512, "i1"), _numbers(-128, 128, 256, "i1", 1)
    c = a.reshape(16, 32).astype("i4") @ b.reshape(8, 32).astype("i4").T
    return ThirdPartyKernel(
        "tensors.mma_s8",
        "a b c",
        {"a": a.view("i4"), "b": b.view("i4")},
        {"c": c.ravel()},
        {"c": np.zeros(128, "i4")},
        architectures=(TURING, HOPPER),
    )


def ldmatrix_mma() -> ThirdPartyKernel:
    a, b = _halves(16, 16), _halves(16, 8, seed=1)
    c = (a.astype("f8") @ b.astype("f8")).astype("f4").ravel()
    inputs = {"a": a.ravel(), "b": b.ravel()}
    return ThirdPartyKernel(
        "tensors.ldmatrix_mma",
        "a b c",
        inputs,
        {"c": c},
        within=1e-3,
        architectures=(TURING, HOPPER),
    )


def dmma() -> ThirdPartyKernel:
    a, b = _floats(8, 4, kind="f8"), _floats(8, 4, seed=1, kind="f8")
    inputs = {"a": a.ravel(), "b": b.ravel()}
    return ThirdPartyKernel("tensors.dmma", "a b c", inputs, {"c": (a @ b.T).ravel()}, within=1e-12)


def stmatrix() -> ThirdPartyKernel:
    # Lane 4 r + j holds elements 2 j and 2 j + 1 of row r of each matrix (PTX ISA, "stmatrix").
    words = _numbers(0, 2**32, 128, "u4")
    return ThirdPartyKernel("tensors.stmatrix", "a c", {"a": words}, {"c": words.view("u2")})


# --- Asynchronous copies and barriers --------------------------------------------------------


def pipeline_primitives() -> ThirdPartyKernel:
    x = _floats(10, 64, 4)
    inputs = {"x": x.ravel(), "tiles": _i4(5)}
    out = x[:, ::-1, ::-1].ravel()
    return ThirdPartyKernel(
        "async.pipeline_primitives",
        "x out tiles",
        inputs,
        {"out": out},
        {},
        (2, 1, 1),
        64,
        architectures=(TURING, HOPPER),
    )


def cuda_pipeline() -> ThirdPartyKernel:
    x = _numbers(0, 99, 640)
    inputs = {"x": x, "tiles": _i4(5)}
    out = x.reshape(-1, 128)[:, ::-1].ravel()
    return ThirdPartyKernel("async.cuda_pipeline", "x out tiles", inputs, {"out": out}, block=128)


def cuda_barrier() -> ThirdPartyKernel:
    x = _floats(256)
    out = x.reshape(2, 128)
    for _ in range(4):
        out = np.float32(0.5) * out + np.float32(0.5) * np.roll(out, -1, 1)
    inputs = {"x": x, "rounds": _i4(4)}
    return ThirdPartyKernel(
        "async.cuda_barrier",
        "x out rounds",
        inputs,
        {"out": out.ravel()},
        {},
        (2, 1, 1),
        128,
        within=1e-5,
        architectures=(TURING, HOPPER),
    )


def named_barriers() -> ThirdPartyKernel:
    x = _floats(7 * 32)
    inputs = {"x": x, "tiles": _i4(7)}
    out = 2 * x.reshape(7, 32)[:, ::-1].ravel()
    return ThirdPartyKernel(
        "async.named_barriers", "x out tiles", inputs, {"out": out}, block=64, checked=False
    )


def mbarrier_asm() -> ThirdPartyKernel:
    x = _numbers(0, 99, 64)
    return ThirdPartyKernel("async.mbarrier_asm", "x out", {"x": x}, {"out": x[::-1]}, block=64)


# --- Warps, wide integers, the language ------------------------------------------------------


def spin_flag() -> ThirdPartyKernel:
    x = _numbers(0, 99, 64)
    outputs = {"flag": np.ones(1, "i4"), "out": (2 * x + np.arange(4)[:, None]).ravel()}
    outputs["out"] = outputs["out"].astype("i4")
    before = {"flag": np.zeros(1, "i4")}
    return ThirdPartyKernel(
        "warps.spin_flag", "flag x out", {"x": x}, outputs, before, (4, 1, 1), 64
    )


def early_return() -> ThirdPartyKernel:
    x = _numbers(0, 100, 77)
    outputs = {"out": np.array([x.sum()], "i4")}
    inputs = {"x": x, "n": _i4(77)}
    return ThirdPartyKernel(
        "warps.early_return", "x out n", inputs, outputs, {"out": np.zeros(1, "i4")}, block=128
    )


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _wide(x: int, y: int) -> list[int]:
    u, v, product = x % 2**64, y % 2**64, x * y
    q, odd = u << 40 | v, v | 1
    return [
        product >> 64, product, _quotient(product, 1000003),
        product - 1000003 * _quotient(product, 1000003), q // odd, q % odd, q >> (y & 127),
        (q << (y & 127)) % 2**128 >> 64, product < 0, u * v >> 64, product >> 64,
        (product + q) % 2**128 >> 64, (product - q) % 2**128 >> 60, (x & -x).bit_length(),
        int(f"{u:064b}"[::-1], 2), _quotient(x, y | 1), x - (y | 1) * _quotient(x, y | 1),
        u // odd, u % 1000000007, 64 - u.bit_length(), abs(x),
    ]  # fmt: skip


def wide() -> ThirdPartyKernel:
    shifts = [_numbers(0, 60, 100, "i8", seed) for seed in (2, 3)]
    a, b = (_numbers(-(2**63), 2**63 - 1, 100, "i8", s) >> shifts[s] for s in (0, 1))
    rows = [
        [_signed(int(r), 64) for r in _wide(*pair)]
        for pair in zip(a.tolist(), b.tolist(), strict=True)
    ]
    out = np.array(rows).T.ravel()
    inputs = {"a": a, "b": b, "n": _i4(100)}
    return ThirdPartyKernel(
        "bits.wide",
        "a b out n",
        inputs,
        {"out": out},
        block=128,
        architectures=(TURING, HOPPER),
    )


def layouts() -> ThirdPartyKernel:
    particle = np.dtype(
        {
            "names": ["tag", "mass", "kind", "pos", "alive"],
            "formats": ["i1", "f8", "i2", ("f4", 3), "u1"],
            "offsets": [0, 8, 16, 20, 32],
            "itemsize": 40,
        }
    )
    packed = np.dtype([("a", "i1"), ("b", "<i4"), ("c", "<f8")])
    rng, n = _random(0), 100
    p, q, bits = np.zeros(n, particle), np.zeros(n, packed), np.zeros((n, 2), "u4")
    p["tag"], p["kind"] = rng.integers(-9, 9, n), rng.integers(-99, 99, n)
    p["mass"], p["alive"] = rng.uniform(0, 9, n), rng.integers(0, 2, n)
    p["pos"] = _floats(n, 3)
    q["a"], q["b"], q["c"] = (
        rng.integers(-9, 9, n),
        rng.integers(-999, 999, n),
        rng.uniform(-9, 9, n),
    )
    lowest = rng.integers(-60, 60, n)
    bits[:, 0], bits[:, 1] = rng.integers(0, 2**32, n), lowest & 127
    after = bits.copy()
    after[:, 0] = bits[:, 0] & 0xFFFF_001F | ((bits[:, 0] & 31) * 3 & 2047) << 5
    after[:, 1] = lowest - 1 & 127
    word = p["pos"][:, 1].copy().view("u4")
    first = p["tag"] + p["mass"] + p["kind"] + p["pos"][:, 0] * p["pos"][:, 2] + p["alive"]
    out = np.concatenate([first + (word >> 24) + (word >> 31), q["a"] + q["b"] + q["c"]])
    return ThirdPartyKernel(
        "language.layouts",
        "p q bits out n",
        {"p": p.view("u1").ravel(), "q": q.view("u1").ravel(), "n": _i4(n)},
        {"bits": after.ravel(), "out": out.astype("f4")},
        {"bits": bits.ravel()},
        (4, 1, 1),
        within=1e-3,
    )


def copies() -> ThirdPartyKernel:
    x = _numbers(0, 200, 1300, "u1")
    local = np.full((100, 24), 7, "u1")
    local[:, 3:16] = x.reshape(100, 13)
    local[np.arange(100), x[::13] % 20] += 1
    inputs = {"x": x, "n": _i4(100)}
    return ThirdPartyKernel(
        "language.copies", "x out n", inputs, {"out": local.ravel()}, {}, (4, 1, 1)
    )


def assertions_that_hold() -> ThirdPartyKernel:
    x = _numbers(0, 99, 100)
    inputs = {"x": x, "n": _i4(100)}
    return ThirdPartyKernel("language.checked", "x out n", inputs, {"out": x + 1}, {}, (4, 1, 1))


def _chosen(name: str, out: Array, kinds: Array) -> ThirdPartyKernel:
    inputs = {"x": _floats(100), "kind": kinds, "n": _i4(100)}
    return ThirdPartyKernel(f"indirect.{name}", "x kind out n", inputs, {"out": out}, {}, (4, 1, 1))


def virtuals() -> ThirdPartyKernel:
    x, kinds = _floats(100), _numbers(0, 2, 100)
    return _chosen("virtuals", np.where(kinds != 0, 2 * x, x * x), kinds)


def pointers_table() -> ThirdPartyKernel:
    x, kinds, three = _floats(100), _numbers(0, 3, 100), np.float32(3)
    return _chosen("pointers_table", np.choose(kinds, [x + three, x * three, x - three]), kinds)


def two_arrays() -> ThirdPartyKernel:
    a, b, place = _floats(100), _floats(100, seed=1), np.arange(100)
    moved = np.where(place % 3 != 0, a, b) + np.float32(1)
    outputs = {
        "out": np.where(place % 2 == 1, moved, 0).astype("f4"),
        "other": np.where(place % 2 == 0, moved, 0).astype("f4"),
    }
    before = {name: np.zeros(100, "f4") for name in outputs}
    inputs = {"a": a, "b": b, "n": _i4(100)}
    return ThirdPartyKernel(
        "indirect.two_arrays", "a b out other n", inputs, outputs, before, (4, 1, 1)
    )


def _called(
    name: str, function: Callable[[int, int], int], most: int, **more: Any
) -> ThirdPartyKernel:
    n = _numbers(0, most, 128)
    out = np.array([function(value, i) for i, value in enumerate(n.tolist())], "i4")
    return ThirdPartyKernel(f"calls.{name}", "n out", {"n": n}, {"out": out}, {}, (4, 1, 1), **more)


def fibonacci() -> ThirdPartyKernel:
    def of(n: int, _: int = 0) -> int:
        return n if n < 2 else of(n - 1) + of(n - 2)

    return _called("fib", of, 12, architectures=(TURING, HOPPER))


def parity() -> ThirdPartyKernel:
    def even(n: int) -> int:
        return 1 if n == 0 else odd(n - 1)

    def odd(n: int) -> int:
        return 0 if n == 0 else 3 * even(n - 1) + n

    return _called("parity", lambda n, _: even(n) if n % 3 else odd(n) - even(n // 2), 15)


def call_frames() -> ThirdPartyKernel:
    def digits(n: int, base: int) -> int:
        below = digits(n // base, base) if n else 0
        own = [n, 2 * n, 3 * n]
        return below * 7 + own[n % 3] + own[(n + 1) % 3] * 2 if n else 0

    return _called("frames", lambda n, i: digits(n, 2 + i % 3), 999)


def call_table() -> ThirdPartyKernel:
    def step(number: int, n: int) -> int:
        if number != 1:
            return n * 3 + 1 if number else n
        return n if n < 2 else step(1 if n // 2 & 1 else 2, n // 2) + 1

    return _called("table", lambda n, _: step(n % 3, n), 999)


def quicksort() -> ThirdPartyKernel:
    rows = _numbers(-99, 99, 64 * 20).reshape(64, 20)
    outputs = {"a": np.sort(rows, 1)}
    return ThirdPartyKernel(
        "calls.quicksort", "a n", {"n": _i4(20)}, outputs, {"a": rows}, (2, 1, 1)
    )


def expression_tree() -> ThirdPartyKernel:
    x, kinds, one = _floats(100), _numbers(0, 4, 100), np.float32(1)

    def add(x: Array) -> Array:
        return np.float32(2) * x + np.float32(3) * (x + one)

    def multiply(x: Array) -> Array:
        return add(x) * (np.float32(3) * (x - one))

    out = np.choose(kinds, [np.float32(2) * x, add(x), multiply(x), multiply(x) + add(x + one)])
    inputs = {"x": x, "kind": kinds, "n": _i4(100)}
    return ThirdPartyKernel(
        "calls.tree", "x kind out n", inputs, {"out": out}, {}, (4, 1, 1), within=1e-6
    )


def bitonic() -> ThirdPartyKernel:
    x = _floats(512)
    outputs = {"x": np.sort(x.reshape(2, 256), 1).ravel()}
    return ThirdPartyKernel("apps.bitonic", "x", {}, outputs, {"x": x}, (2, 1, 1), 256, 1024)


def lookback() -> ThirdPartyKernel:
    """More blocks than run at once, which wait for earlier ones."""
    x, blocks = _numbers(-9, 9, 100 * 256 - 77), 100
    sums = np.cumsum(np.resize(np.append(x, np.zeros(77, "i4")), blocks * 256))[255::256]
    outputs = {
        "out": np.cumsum(x).astype("i4"),
        "state": np.stack([np.ones(blocks, "i4"), sums.astype("i4")], 1).ravel(),
        "ticket": np.array([blocks], "i4"),
    }
    before = {"state": np.zeros(2 * blocks, "i4"), "ticket": np.zeros(1, "i4")}
    inputs = {"x": x, "n": _i4(x.size)}
    return ThirdPartyKernel(
        "apps.lookback", "x out state ticket n", inputs, outputs, before, (blocks, 1, 1), 256
    )


THIRD_PARTY_KERNELS: tuple[Callable[[], ThirdPartyKernel], ...] = (
    block_sum, tiles, compact, partitions, staged, block_reduce, block_scan, block_sort,
    cas_loops, libcudacxx, many_kinds, half_sums, last_block, mutex, wide_cas,
    w16_rr, w16_cr_half, w8_rr, w16_s8, w16_tf32, w8_f64, wmma_gemm, mma_s8, ldmatrix_mma, dmma,
    stmatrix, pipeline_primitives, cuda_pipeline, cuda_barrier, named_barriers, mbarrier_asm,
    spin_flag, early_return, virtuals, pointers_table, two_arrays, wide, layouts, copies,
    assertions_that_hold, bitonic, lookback, fibonacci, parity, call_frames, call_table, quicksort,
    expression_tree,
)  # fmt: skip
