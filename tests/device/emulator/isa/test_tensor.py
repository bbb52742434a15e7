"""Tensor-core instructions against the PTX ISA's per-lane formulas, written out lane by lane."""

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import kernel, map_lanes, run

from memlab.device.emulator.isa import table

MMA = [each for each in table.TABLE if re.fullmatch(r"mma\.sync\S+\.(f16|f32)", each)]
"""Products of integers and of float64 are among the third-party kernels."""
LDMATRIX = [opcode for opcode in table.TABLE if re.fullmatch(r"ldmatrix\S+", opcode)]

FLOATS_OF_8_BITS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}

Place = tuple[int, int]


def fragment_of_a(element: str, depth: int, lane: int) -> list[Place]:
    """(row, column) of a0, a1, … (PTX ISA, "Matrix Fragments for mma.m16n8k4/k8/k16")."""
    group, member = lane >> 2, lane % 4
    if element == "tf32":
        places = [(group, member), (group + 8, member)]
        return places if depth == 4 else [*places, (group, member + 4), (group + 8, member + 4)]
    if element in FLOATS_OF_8_BITS:  # as of .u8 and .s8
        return [
            (group + 8 * (i // 4 % 2), member * 4 + (i & 3) + (0 if i < 8 else 16))
            for i in range(depth // 2)
        ]
    if depth == 8:
        return [(group if i < 2 else group + 8, member * 2 + (i & 1)) for i in range(4)]
    return [
        (
            group if i < 2 or 4 <= i < 6 else group + 8,
            member * 2 + (i & 1) + (0 if i < 4 else 8),
        )
        for i in range(8)
    ]


def fragment_of_b(element: str, depth: int, lane: int) -> list[Place]:
    group, member = lane >> 2, lane % 4
    if element == "tf32":
        return [(member + 4 * i, group) for i in range(depth // 4)]
    if element in FLOATS_OF_8_BITS:
        return [(member * 4 + (i & 3) + (0 if i < 4 else 16), group) for i in range(depth // 4)]
    return [(member * 2 + (i & 1) + (0 if i < 2 else 8), group) for i in range(depth // 4)]


def fragment_of_c(lane: int) -> list[Place]:
    group, member = lane >> 2, lane % 4
    return [(group if i < 2 else group + 8, member * 2 + (i & 1)) for i in range(4)]


def bits(values: Any, element: str) -> Any:
    """Numbers that the type holds exactly, as its bits."""
    wide = np.asarray(values, np.float32)
    if element in FLOATS_OF_8_BITS:
        return wide.astype(FLOATS_OF_8_BITS[element]).view(np.uint8)
    if element == "f16":
        return wide.astype(np.float16).view(np.uint16)
    if element == "bf16":
        return (wide.view(np.uint32) >> 16).astype(np.uint16)
    return wide.view(np.uint32)


def shape_of(opcode: str) -> tuple[int, str, str, str]:
    """The depth, the types of A and B, and that of C and D."""
    match = re.fullmatch(r"mma\.sync\.m16n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.\w+", opcode)
    assert match, opcode
    return int(match[1]), match[3], match[4], match[2]


def multiply(opcode: str, a: Any, b: Any, c: Any) -> Any:
    """Run one mma by one warp: hand out fragments, execute, put the result together."""
    depth, element, other, sums = shape_of(opcode)
    fragments = [
        np.array(
            [[bits(a[p], element) for p in fragment_of_a(element, depth, i)] for i in range(32)]
        ),
        np.array([[bits(b[p], other) for p in fragment_of_b(other, depth, i)] for i in range(32)]),
        np.array([[bits(c[p], sums) for p in fragment_of_c(i)] for i in range(32)]),
    ]
    words = [np.ascontiguousarray(each).view(np.uint32) for each in fragments]
    counts = [each.shape[1] for each in words]
    names = [[f"%{name}{i}" for i in range(n)] for name, n in zip("abc", counts, strict=True)]
    loads = [
        f"ld.global.b32 {register}, [%in+{4 * place}];"
        for place, register in enumerate(itertools.chain(*names))
    ]
    total = sum(counts)
    lists = ", ".join(f"{{{', '.join(each)}}}" for each in [names[2], *names])
    stores = [f"st.global.b32 [%out+{4 * i}], {each};" for i, each in enumerate(names[2])]
    body = (
        ".reg .b64 %in, %out, %at; .reg .b32 %lane, %a<4>, %b<2>, %c<4>;"
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %lane, %tid.x;"
        f"mul.wide.u32 %at, %lane, {4 * total}; add.u64 %in, %in, %at;"
        f"mul.wide.u32 %at, %lane, {4 * counts[2]}; add.u64 %out, %out, %at;"
        f"{''.join(loads)} {opcode.replace('sync.', 'sync.aligned.')} {lists};"
        f"{''.join(stores)} ret;"
    )
    given = np.concatenate(words, axis=1)
    done = run(
        kernel(body, ".u64 in, .u64 out"),
        {"in": given, "out": np.zeros((32, counts[2]), np.uint32)},
    )
    index = next(
        i for i, step in enumerate(done.program.steps) if step.instruction.opcode.startswith("mma")
    )
    assert done.program.steps[index].row.flops * done.tally.lanes[index] == 2 * 16 * 8 * depth
    found = done["out"].view(np.float32 if sums == "f32" else np.float16)
    result = np.full((16, 8), np.nan)
    for lane in range(32):
        for number, place in enumerate(fragment_of_c(lane)):
            result[place] = found[lane, number]
    return result


@pytest.mark.parametrize("opcode", MMA)
def test_mma_multiplies_matrices_distributed_as_in_the_isa(opcode: str) -> None:
    # Small whole numbers are exact in every type, and so are their sums: any order gives the same.
    depth, *_ = shape_of(opcode)
    rng = np.random.default_rng(3)
    a, b, c = (
        rng.integers(-8, 9, shape).astype(np.float64)
        for shape in ((16, depth), (depth, 8), (16, 8))
    )

    np.testing.assert_array_equal(multiply(opcode, a, b, c), a @ b + c)


@pytest.mark.parametrize("opcode", MMA)
def test_mma_keeps_25_places_below_the_largest_exponent(opcode: str) -> None:
    # The last place of the sum from products that each are too small to count, but not for it.
    depth, element, _, sums = shape_of(opcode)
    least = {"f16": 2.0**-12, "e4m3": 2.0**-8, "e5m2": 2.0**-8}.get(element, 2.0**-20)
    in_bytes = element in FLOATS_OF_8_BITS
    one = 2.0**12 if in_bytes and sums == "f32" else 1.0
    cut = sums == "f32" and not in_bytes  # C is added to FP8's products last
    last = depth * 2.0**-25 if cut else one * (2.0**-23 if sums == "f32" else 2.0**-10)
    a = np.full((16, depth), least)
    b = np.full((depth, 8), last / depth / least)
    c = np.full((16, 8), one)

    np.testing.assert_array_equal(multiply(opcode, a, b, c), np.full((16, 8), one + last))
    if cut:
        np.testing.assert_array_equal(multiply(opcode, a, b / 2, c), c)


def finite_numbers(element: str) -> Any:
    """All numbers of 8 bits in float64, shape (2, 128); zero in place of NaN and infinity."""
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
    return np.nan_to_num(
        codes.view(FLOATS_OF_8_BITS[element]).astype(np.float64), nan=0, posinf=0, neginf=0
    )


@pytest.mark.parametrize("sums", ["f32", "f16"])
@pytest.mark.parametrize("left", ["e4m3", "e5m2"])
@pytest.mark.parametrize("right", ["e4m3", "e5m2"])
def test_mma_reads_every_number_of_8_bits(left: str, right: str, sums: str) -> None:
    opcode = f"mma.sync.m16n8k32.row.col.{sums}.{left}.{right}.{sums}"
    for half in finite_numbers(left):
        a = np.pad(half.reshape(16, 8), ((0, 0), (0, 24)))
        found = multiply(opcode, a, np.eye(32, 8), np.zeros((16, 8)))
        np.testing.assert_array_equal(found, half.reshape(16, 8))
    for half in finite_numbers(right):
        b = np.pad(half.reshape(16, 8), ((0, 16), (0, 0)))
        found = multiply(opcode, np.eye(16, 32), b, np.zeros((16, 8)))
        np.testing.assert_array_equal(found, half.reshape(16, 8))
    b[0, 0] = np.nan
    assert np.isnan(multiply(opcode, np.eye(16, 32), b, np.zeros((16, 8)))[:, 0]).all()


def test_mma_ignores_bits_beyond_tf32() -> None:
    a = np.full((16, 8), 1 + 2.0**-11 + 2.0**-20, np.float32)
    product = multiply(
        "mma.sync.m16n8k8.row.col.f32.tf32.tf32.f32", a, np.eye(8), np.zeros((16, 8))
    )

    np.testing.assert_array_equal(product, 1)


def test_movmatrix_transposes() -> None:
    matrices = np.arange(128, dtype="u2").reshape(2, 8, 8) * 37  # a warp each, four lanes a row

    turned = map_lanes(
        "movmatrix.sync.aligned.m8n8.trans.b16 %o, %i0;", [matrices.view("u4").reshape(-1)], "u4"
    )

    assert np.array_equal(turned.view("u2").reshape(2, 8, 8), matrices.transpose(0, 2, 1))


def shared_tile() -> Any:
    return np.arange(1024, dtype=np.uint16) * 37 + 5


def ldmatrix(opcode: str, row_of_lane: Any) -> Any:
    """Fill shared memory with `shared_tile()`, run one ldmatrix, give each lane's registers."""
    count = int(opcode[opcode.index(".x") + 2])
    registers = [f"%d{i}" for i in range(count)]
    shared = ".shared" in opcode
    body = (
        ".shared .align 16 .b8 tile[2048]; .reg .b64 %in, %out, %rows, %at, %own;"
        ".reg .b32 %lane, %row, %word, %d<4>;"
        "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u64 %rows, [rows];"
        "mov.u32 %lane, %tid.x; mul.wide.u32 %at, %lane, 4;"
        "add.u64 %rows, %rows, %at; ld.global.u32 %row, [%rows];"
        "mul.wide.u32 %at, %lane, 16; add.u64 %out, %out, %at;"
        "mul.wide.u32 %at, %lane, 64; add.u64 %in, %in, %at; mov.u64 %own, tile;"
        "add.u64 %at, %own, %at;"
        + "".join(
            f"ld.global.u32 %word, [%in+{4 * i}]; st.shared.u32 [%at+{4 * i}], %word;"
            for i in range(16)
        )
        + "bar.sync 0; cvt.u64.u32 %at, %row; add.u64 %own, %own, %at;"
        + ("" if shared else "cvta.shared.u64 %own, %own;")
        + f"{opcode.replace('sync.', 'sync.aligned.')} {{{', '.join(registers)}}}, [%own];"
        + "".join(f"st.global.b32 [%out+{4 * i}], {each};" for i, each in enumerate(registers))
        + "ret;"
    )
    arrays = {
        "in": shared_tile(),
        "out": np.zeros((32, 4), np.uint32),
        "rows": np.asarray(row_of_lane, np.uint32),
    }
    return run(kernel(body, ".u64 in, .u64 out, .u64 rows"), arrays)


@pytest.mark.parametrize("opcode", LDMATRIX)
def test_ldmatrix_distributes_rows_as_in_the_isa(opcode: str) -> None:
    # Lanes behind the last matrix name a row outside the array, which must not be touched.
    count = int(opcode[opcode.index(".x") + 2])
    rows = np.random.default_rng(1).permutation(128)[:32] * 16
    rows[8 * count :] = 1 << 20

    found = ldmatrix(opcode, rows)["out"].view(np.uint16).reshape(32, 4, 2)

    tile = shared_tile()
    for lane in range(32):
        for matrix in range(count):
            for part in range(2):
                row, column = lane // 4, 2 * (lane % 4) + part
                if ".trans" in opcode:
                    row, column = column, row
                expected = tile[rows[8 * matrix + row] // 2 + column]
                assert found[lane, matrix, part] == expected


@pytest.mark.parametrize(
    ("row_bytes", "wavefronts"),
    [
        (16, 4),  # 512 bytes side by side: all 32 banks four times
        (64, 16),  # every second row of a matrix lies in the same banks: 4 ways, four matrices
    ],
)
def test_ldmatrix_counts_one_instruction_and_the_wavefronts_of_its_banks(
    row_bytes: int, wavefronts: int
) -> None:
    done = ldmatrix("ldmatrix.sync.m8n8.x4.shared.b16", np.arange(32) * row_bytes % 2048)

    (index,) = (
        i
        for i, step in enumerate(done.program.steps)
        if step.row.space == "shared" and step.row.kind == "load"
    )
    assert done.tally.requests[index] == 1
    assert done.tally.wavefronts[index] == wavefronts


@pytest.mark.parametrize("selector", [0, 1])
def test_a_sparse_product_is_that_of_the_whole_matrix(selector: int) -> None:
    """A has two numbers in each four of a row; the metadata tells which ones."""
    rng = np.random.default_rng(selector)
    places = np.array([np.sort(rng.permutation(4)[:2]) for _ in range(16 * 8)]).reshape(16, 8, 2)
    stored = rng.integers(1, 9, (16, 8, 2))
    whole = np.zeros((16, 8, 4), np.int64)
    np.put_along_axis(whole, places, stored, 2)
    b, c = rng.integers(-8, 9, (32, 8)), rng.integers(-99, 99, (16, 8))
    compressed = stored.reshape(16, 16)
    words: dict[str, list[Any]] = {"a": [], "b": [], "c": [], "e": []}
    for lane in range(32):
        a16 = fragment_of_a("f16", 16, lane)
        b16 = [(lane % 4 * 2 + i % 2 + i // 2 * 8, lane >> 2) for i in range(8)]
        words["a"].append(bits([compressed[p] for p in a16], "f16").view(np.uint32))
        words["b"].append(bits([b[p] for p in b16], "f16").view(np.uint32))
        words["c"].append(bits([c[p] for p in fragment_of_c(lane)], "f32"))
        half = lane % 2 if lane % 4 // 2 == selector else -1  # the others hold anything
        held = rng.integers(0, 1 << 32) if half < 0 else 0
        for number in range(16 if half >= 0 else 0):
            row = (lane >> 2) + 8 * (number // 8)
            index = places[row].reshape(2, 8)[half, number % 8]
            held |= int(index) << 2 * number
        words["e"].append(np.array([held], np.uint32))
    loads = [
        f"ld.global.b32 %{n}{i}, [%at+{128 * number}];"
        for number, (n, i) in enumerate(
            (n, i) for n, of in words.items() for i in range(len(of[0]))
        )
    ]
    vectors = {
        n: "{" + ", ".join(f"%{n}{i}" for i in range(len(of[0]))) + "}" for n, of in words.items()
    }
    body = f"""
    .reg .b64 %at, %to; .reg .b32 %lane, %a<4>, %b<4>, %c<4>, %e<1>, %d<4>;
    ld.param.u64 %at, [in]; ld.param.u64 %to, [out]; mov.u32 %lane, %laneid;
    mad.wide.u32 %at, %lane, 4, %at; mad.wide.u32 %to, %lane, 16, %to;
    {"".join(loads)}
    mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32
        {{%d0, %d1, %d2, %d3}}, {vectors["a"]}, {vectors["b"]}, {vectors["c"]}, %e0, {selector};
    st.global.v4.b32 [%to], {{%d0, %d1, %d2, %d3}}; ret;"""
    given = np.concatenate([np.array(of).T for of in words.values()])

    done = run(kernel(body, ".u64 in, .u64 out"), {"in": given, "out": np.zeros((32, 4), "f4")})

    result = np.zeros((16, 8))
    for lane, values in enumerate(done["out"].view("f4").reshape(32, 4)):
        for place, value in zip(fragment_of_c(lane), values, strict=True):
            result[place] = value
    assert (result == whole.reshape(16, 32) @ b + c).all()
