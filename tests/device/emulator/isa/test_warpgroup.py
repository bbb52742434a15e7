"""Products of warpgroups against NumPy and an H100, on matrices packed by the ISA's layouts.

The places of elements are written here as the PTX ISA gives them: the canonical layouts of CuTe in
units of elements, and the swizzle of byte addresses ("Shared Memory Matrix Layout").
"""

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import kernel, run

from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.ptx.parser import PtxError
from tests.reference.tensor import aligned_sum, products_of_an_h100

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "b1": np.uint8,  # eight of them
    "s32": np.int32,
    "f32": np.float32,
}
UNITS = {0: 1, 3: 2, 2: 4, 1: 8}
"""Units of 16 bytes in a row of the swizzle atom, by the mode in the descriptor."""


@dataclass(frozen=True)
class Placed:
    """How a matrix lies in shared memory: rows along M or N, columns along K.

    Attributes:
        mode: The swizzle mode.
        is_k_major: Whether K is contiguous.
        leading: The leading-dimension byte offset.
        stride: The stride-dimension byte offset.
        start: The address of the pattern.
        advance: Bytes from there to the first element, along K.
    """

    mode: int
    is_k_major: bool
    leading: int
    stride: int
    start: int = 0
    advance: int = 0

    @property
    def descriptor(self) -> int:
        """The 64 bits of the matrix descriptor."""
        base = 0 if self.mode == 0 else self.start >> 7 & 7
        parts = ((self.start + self.advance) & 0x3FFFF) >> 4, self.leading >> 4, self.stride >> 4
        first, leading, stride = parts
        return first | leading << 16 | stride << 32 | base << 49 | self.mode << 62

    def address(self, row: int, column: int, size: int) -> int:
        """The byte address of an element of so many bytes."""
        t, w = 16 // size, UNITS[self.mode]
        leading, stride = self.leading // size, self.stride // size
        if self.is_k_major:
            along_k = leading if self.mode == 0 else t
            at = row % 8 * w * t + row // 8 * stride + column % t + column // t * along_k
        elif self.mode == 0:
            at = row % t + row // t * stride + column % 8 * t + column // 8 * leading
        else:
            at = row % t + row // t % w * t + row // t // w * leading
            at += column % 8 * w * t + column // 8 * stride
        byte = at * size + self.advance  # from the pattern's start, which the swizzle repeats from
        return self.start + (byte ^ (byte >> 7 & (w - 1)) << 4)


@dataclass(frozen=True)
class Described(Placed):
    """A matrix whose descriptor names a place that lies `by` bytes behind it."""

    by: int = 0

    @property
    def descriptor(self) -> int:
        """The 64 bits of the matrix descriptor."""
        return super().descriptor + (self.by - self.start >> 4)


def compact(mode: int, is_k_major: bool, rows: int, start: int, advance: int = 0) -> Placed:
    """A matrix whose groups follow each other; with a gap that shows where it is not skipped."""
    row = 16 * UNITS[mode]
    if is_k_major:
        stride = 8 * row + (128 if mode == 0 else 0)
        return Placed(mode, True, stride * (rows // 8) + 128, stride, start, advance)
    groups = -(-2 * rows // row)
    if mode == 0:
        return Placed(mode, False, 256 * groups + 128, 256, start, advance)
    return Placed(mode, False, 8 * row, 8 * row * groups + 1024, start, advance)


def packed(image: Any, matrix: Any, placed: Placed) -> None:
    """Write a matrix into the bytes of shared memory."""
    size = matrix.itemsize
    for (row, column), _ in np.ndenumerate(matrix):
        at = placed.address(row, column, size)
        image[at : at + size] = matrix[row : row + 1, column].view(np.uint8)


def place_in_d(thread: int, number: int) -> tuple[int, int]:
    """Row and column of an element of D (PTX ISA, "Register Fragments", accumulator D)."""
    lane = thread % 32
    row = 16 * (thread // 32 % 4) + lane // 4 + 8 * (number // 2 % 2)
    return row, 8 * (number // 4) + 2 * (lane % 4) + number % 2


def place_in_a(thread: int, number: int, size: int) -> tuple[int, int]:
    """The same of A in registers, of elements of so many bytes."""
    lane, step = thread % 32, 4 // size
    register, part = number // step, number % step
    row = 16 * (thread // 32 % 4) + lane // 4 + 8 * (register % 2)
    return row, lane % 4 * step + part + register // 2 * 4 * step


@dataclass(frozen=True)
class Product:
    """A `wgmma.mma_async` of a test: see the instruction's operands."""

    columns: int
    of_a: str
    of_b: str
    total: str
    in_a: Placed | None
    in_b: Placed
    scale_d: str = "1"
    signs: tuple[int, int] = (1, 1)
    end: str = ""

    @property
    def depth(self) -> int:
        """K: 32 bytes."""
        return 32 // np.dtype(DTYPES[self.of_a]).itemsize

    @property
    def shape(self) -> str:
        """As the opcode spells it."""
        return f"m64n{self.columns}k{self.depth * (8 if self.of_a == 'b1' else 1)}"

    def immediates(self) -> str:
        """What follows scale-d."""
        if self.total == "s32":
            return ""
        numbers = [*self.signs]
        if self.of_a in ("f16", "bf16"):
            placed = [self.in_b] if self.in_a is None else [self.in_a, self.in_b]
            numbers += [int(not each.is_k_major) for each in placed]
        return "".join(f", {number}" for number in numbers)

    def run(self, a: Any, b: Any, c: Any, shared_bytes: int = 65536) -> Any:
        """D of one warpgroup; A is (64, K), B (N, K) and C (64, N)."""
        rng = np.random.default_rng(5)
        image = rng.integers(0, 128, shared_bytes, np.uint8)
        packed(image, b, self.in_b)
        if self.in_a is not None:
            packed(image, a, self.in_a)
        size, whole = a.itemsize, DTYPES[self.total]
        part = np.dtype(whole).itemsize
        elements, of_a = self.columns // 2, 16 // size
        given_c = np.array(
            [[c[place_in_d(t, i)] for i in range(elements)] for t in range(128)]
        ).astype(whole)
        given_a = np.array(
            [[a[place_in_a(t, i, size)] for i in range(of_a)] for t in range(128)]
        ).astype(a.dtype)
        registers = elements * part // 4
        d = [f"%d{number}" for number in range(registers)]
        left = "%da" if self.in_a is not None else "{%a0, %a1, %a2, %a3}"
        opcode = (
            f"wgmma.mma_async.sync.aligned.{self.shape}"
            f".{self.total}.{self.of_a}.{self.of_b}{self.end}"
        )
        body = "\n".join(
            [
                f".shared .align 1024 .b8 memory[{shared_bytes}];",
                ".reg .b64 %image, %a, %d, %at, %da, %db; .reg .pred %yes, %no;",
                f".reg .b32 %tid, %to, %v<4>, %a<4>, %d<{registers}>;",
                "ld.param.u64 %image, [image]; ld.param.u64 %a, [a]; ld.param.u64 %d, [d];",
                "mov.u32 %tid, %tid.x; setp.eq.u32 %yes, 0, 0; setp.eq.u32 %no, 0, 1;",
                "mul.wide.u32 %at, %tid, 16; add.u64 %image, %image, %at; add.u64 %a, %a, %at;",
                f"mul.wide.u32 %at, %tid, {4 * registers}; add.u64 %d, %d, %at;",
                "shl.b32 %to, %tid, 4;",
                *(
                    f"ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%image+{at}];"
                    f"st.shared.v4.b32 [%to+{at}], {{%v0, %v1, %v2, %v3}};"
                    for at in range(0, shared_bytes, 2048)
                ),
                "ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%a];",
                *(f"ld.global.b32 {name}, [%d+{4 * n}];" for n, name in enumerate(d)),
                "bar.sync 0;",
                f"mov.u64 %da, {self.in_a.descriptor if self.in_a else 0};",
                f"mov.u64 %db, {self.in_b.descriptor};",
                "wgmma.fence.sync.aligned;",
                f"{opcode} {{{', '.join(d)}}}, {left}, %db, {self.scale_d}{self.immediates()};",
                "wgmma.commit_group.sync.aligned;",
                "wgmma.wait_group.sync.aligned 0;",
                *(f"st.global.b32 [%d+{4 * n}], {name};" for n, name in enumerate(d)),
                "ret;",
            ]
        )
        done = run(
            kernel(body, ".u64 image, .u64 a, .u64 d", target="sm_90a"),
            {"image": image, "a": given_a, "d": given_c},
            block=(128, 1, 1),
        )
        flops = sum(
            step.row.flops * lanes
            for step, lanes in zip(done.program.steps, done.tally.lanes, strict=True)
        )
        assert flops == (0 if self.total == "s32" else 2 * 64 * self.columns * self.depth)
        for step, requests, size in zip(
            done.program.steps, done.tally.requests, done.tally.bytes, strict=True
        ):
            if step.row.space == "shared" and step.row.kind == "load":
                assert requests == size == 0  # the tensor cores make them, no load instructions
        result = np.full((64, self.columns), np.nan)
        for thread in range(128):
            for number in range(elements):
                result[place_in_d(thread, number)] = done["d"][thread, number]
        return result


def factors(product: Product, seed: int = 1) -> tuple[Any, Any, Any]:
    """Random A, B and C of a product's types."""
    rng = np.random.default_rng(seed)
    n, k = product.columns, product.depth

    def numbers(element: str, *shape: int) -> Any:
        if element in ("s8", "u8", "b1"):
            info = np.iinfo(DTYPES[element])
            return rng.integers(info.min, info.max + 1, shape).astype(info.dtype)
        if element == "s32":
            return rng.integers(-1000, 1000, shape).astype(np.int32)
        drawn = rng.standard_normal(shape).astype(DTYPES[element])
        if element == "tf32":
            drawn = (drawn.view(np.uint32) & 0xFFFF_E000).view(np.float32)
        return drawn

    return numbers(product.of_a, 64, k), numbers(product.of_b, n, k), numbers(product.total, 64, n)


def compare(product: Product) -> None:
    """Check a product against NumPy."""
    a, b, c = factors(product)
    found = product.run(a, b, c)
    if product.of_a == "b1":
        a, b = (np.unpackbits(each, axis=1) for each in (a, b))
    left, right = a.astype(np.float64) * np.prod(product.signs), b.astype(np.float64).T
    added = np.zeros(c.shape) if product.scale_d in ("0", "%no") else c.astype(np.float64)
    if product.total == "s32":
        expected = left @ right + added
    else:
        types, places = (product.of_a, product.of_b, product.total), places_of(product)
        expected = aligned_sum(left[None], right[None], added[None], types, places)[0]
        np.testing.assert_allclose(
            expected, left @ right + added, atol=2.0 ** (8 - places), rtol=1e-3
        )
    np.testing.assert_array_equal(found, expected)


def places_of(product: Product) -> int:
    """Binary places of a sum that Hopper's tensor cores keep below the largest exponent."""
    return 13 if product.of_a in ("e4m3", "e5m2") else 25


TYPES = [
    ("f16", "f16", "f32"),
    ("f16", "f16", "f16"),
    ("bf16", "bf16", "f32"),
    ("tf32", "tf32", "f32"),
    *(
        (a, b, total)
        for a in ("e4m3", "e5m2")
        for b in ("e4m3", "e5m2")
        for total in ("f32", "f16")
    ),
    *((a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")),
    ("b1", "b1", "s32"),
]


@pytest.mark.parametrize(("of_a", "of_b", "total"), TYPES)
def test_all_types(of_a: str, of_b: str, total: str) -> None:
    columns = {"f32": 24, "f16": 8, "s32": 96}[total]
    in_a, in_b = compact(1, True, 64, 0, 32), compact(0, True, columns, 16384)
    end = ".and.popc" if of_a == "b1" else ""
    product = Product(columns, of_a, of_b, total, in_a, in_b, end=end)
    compare(product)
    compare(replace(product, in_a=None, in_b=compact(3, True, columns, 16384)))


def test_products_equal_those_of_an_h100() -> None:
    products = products_of_an_h100("wgmma")
    assert len(products) == 6
    for name, bits in products.items():
        _, _, total, of_a, of_b = name.split(".")
        a, b, c, d = (
            bits[one].view(DTYPES[kind])
            for one, kind in zip("abcd", (of_a, of_b, total, total), strict=True)
        )
        product = Product(8, of_a, of_b, total, compact(1, True, 64, 0), compact(0, True, 8, 16384))
        # Eight products of eight rows: the rows of A and C of each pass through one instruction.
        for left, right, added, expected in zip(a, b, c, d, strict=True):
            rows = [np.concatenate([each] * 8) for each in (left, added)]
            found = product.run(rows[0], right, rows[1])
            np.testing.assert_array_equal(found, np.concatenate([expected] * 8))


def test_sums_of_bytes_lose_what_lies_below_13_places() -> None:
    # DeepSeek-V3's pitfall: 1 + 2^-14 in float32, of which an accumulator in FP8 products keeps 1.
    a, b, c = np.zeros((64, 32)), np.zeros((8, 32)), np.ones((64, 8))
    a[:, 0] = b[:, 0] = 2.0**-7
    a[:, 1], b[:, 1] = 2.0**-6, 2.0**-7
    product = Product(8, "e5m2", "e5m2", "f32", compact(1, True, 64, 0), compact(0, True, 8, 16384))
    of = DTYPES["e5m2"]
    found = product.run(a.astype(of), b.astype(of), c)
    np.testing.assert_array_equal(found, 1 + 2.0**-13)
    found = product.run(a.astype(of), b.astype(of), 2 * c)
    np.testing.assert_array_equal(found, 2)


@pytest.mark.parametrize("b_is_k_major", [True, False])
@pytest.mark.parametrize("a_is_k_major", [True, False])
@pytest.mark.parametrize("mode", UNITS)
def test_all_layouts(mode: int, a_is_k_major: bool, b_is_k_major: bool) -> None:
    other = {0: 2, 1: 0, 2: 3, 3: 1}[mode]
    for columns in (40, 256) if mode == 1 else (8, 80):
        in_a = compact(mode, a_is_k_major, 64, 0)
        in_b = compact(other, b_is_k_major, columns, 16384)
        compare(Product(columns, "bf16", "bf16", "f32", in_a, in_b))


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_a_pattern_off_its_boundary_and_a_step_along_k(mode: int) -> None:
    """The base offset names the place of the pattern; within its rows a matrix may begin later."""
    for start, advance in ((128, 0), (3 * 128, 32 % (16 * UNITS[mode])), (1024, 0)):
        in_b = compact(mode, True, 32, 16384 + start, advance)
        compare(Product(32, "f16", "f16", "f32", compact(mode, True, 64, start, advance), in_b))


@pytest.mark.parametrize(
    ("of", "signs"), [("f16", (1, -1)), ("tf32", (-1, 1)), ("e4m3", (-1, 1)), ("bf16", (-1, -1))]
)
def test_signs_and_no_addend(of: str, signs: tuple[int, int]) -> None:
    in_a, in_b = compact(0, True, 64, 0), compact(0, True, 16, 16384)
    product = Product(16, of, of, "f32", in_a, in_b, signs=signs)
    compare(product)
    compare(replace(product, scale_d="%no", in_a=None))
    compare(replace(product, scale_d="%yes"))
    compare(replace(product, scale_d="0"))


def test_integers_saturate() -> None:
    product = Product(
        8, "s8", "s8", "s32", compact(0, True, 64, 0), compact(0, True, 8, 16384), end=".satfinite"
    )
    a, b, _ = factors(product)
    c = np.full((64, 8), 2**31 - 1, np.int32)
    c[::2] = -(2**31)
    exact = a.astype(np.int64) @ b.astype(np.int64).T + c
    np.testing.assert_array_equal(product.run(a, b, c), np.clip(exact, -(2**31), 2**31 - 1))
    wrapped = replace(product, end="").run(a, b, c)
    np.testing.assert_array_equal(wrapped, exact.astype(np.int32))


@pytest.mark.parametrize("matrix", ["a", "b"])
def test_a_matrix_outside_shared_memory_is_a_fault(matrix: str) -> None:
    in_a, in_b = compact(0, True, 64, 0), compact(0, True, 8, 16384)
    product = Product(8, "f16", "f16", "f32", in_a, in_b)
    a, b, c = factors(product)
    beyond = Described(**vars(in_a if matrix == "a" else in_b), by=65536 - 128)
    with pytest.raises(KernelFault, match="shared"):
        replace(
            product, in_a=beyond if matrix == "a" else in_a, in_b=beyond if matrix == "b" else in_b
        ).run(a, b, c)


@pytest.mark.parametrize(
    ("opcode", "operands", "message"),
    [
        ("m64n8k16.f32.f16.f16", "{%d0, %d1, %d2, %d3}, %x, %x, 1, 1, 1", "such operands"),
        (
            "m64n8k16.f32.f16.f16",
            "{%d0, %d1, %d2}, %x, %x, 1, 1, 1, 0, 0",
            "such operands|operands",
        ),
        ("m64n8k256.s32.b1.b1.xor.popc", "{%d0, %d1, %d2, %d3}, %x, %x, 1", "has no opcode"),
        ("m64n40k32.s32.s8.s8", "{%d0, %d1, %d2, %d3}, %x, %x, 1", "has no opcode"),
    ],
)
def test_others_are_refused(opcode: str, operands: str, message: str) -> None:
    body = (
        ".reg .b64 %x; .reg .b32 %d<4>; mov.u64 %x, 0;"
        f"wgmma.mma_async.sync.aligned.{opcode} {operands}; ret;"
    )
    with pytest.raises(PtxError, match=message) as refused:
        run(kernel(body), {}, block=(128, 1, 1))
    assert "\n" not in str(refused.value)
