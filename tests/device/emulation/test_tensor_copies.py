"""Tensor copies (`cp.async.bulk.tensor`) against NumPy."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation import block_classes
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.memory import KernelFault
from memlab.errors import MemlabWarning, UsageError
from memlab.kernels.launch import Buffer, Launch, TensorBox, TensorMap
from tests.support.box_runs import WORDS, element_type, load, load_pixels, run, store
from tests.support.boxes import SHARED_BYTES, SOURCE, Box, random_box, random_pixels
from tests.support.paths import DATA


@pytest.mark.parametrize("seed", range(12))
def test_random_boxes_move_what_numpy_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_box(rng)
    tensor = rng.integers(0, 256, box.tensor_bytes, np.uint8)
    initial = rng.integers(0, 2**32, WORDS, np.uint32)
    shared = initial.view(np.uint8)
    np.testing.assert_array_equal(load(box, tensor, initial), box.loaded(tensor, shared))
    if min(box.at) >= 0:
        np.testing.assert_array_equal(store(box, tensor, initial), box.stored(tensor, shared))
        return
    with pytest.raises(KernelFault, match="a store of a box begins before its tensor"):
        store(box, tensor, initial)


@pytest.mark.parametrize(
    ("operation", "dtype", "combine"),
    [
        ("add", "float32", np.add),
        ("add", "bfloat16", np.add),
        ("min", "int32", np.minimum),
        ("max", "float16", np.maximum),
        ("xor", "uint32", np.bitwise_xor),
        ("or", "uint64", np.bitwise_or),
    ],
)
def test_reductions_combine_what_lies_in_the_tensor(
    operation: str, dtype: str, combine: np.ufunc
) -> None:
    rng = np.random.default_rng(3)
    kind = element_type(dtype)
    box = Box(dtype, (5, 32), (4, 64 // kind.itemsize), (2, 16), 128)
    tensor = rng.integers(-99, 99, (5, 32)).astype(kind)
    initial = rng.integers(-99, 99, 4 * WORDS // kind.itemsize).astype(kind)
    left = store(box, tensor.view(np.uint8).reshape(-1), initial.view(np.uint32), operation)
    expected = tensor.copy()
    moved = box.stored(np.zeros(tensor.nbytes, np.uint8), initial.view(np.uint8))
    rows, columns = slice(2, 5), slice(16, min(16 + box.extents[1], 32))
    part = moved.view(kind).reshape(5, 32)[rows, columns]
    expected[rows, columns] = combine(expected[rows, columns], part)
    np.testing.assert_array_equal(left.view(kind).reshape(5, 32), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": 64}, "a box in shared memory begins at a multiple of 128 bytes"),
        ({"offset": SHARED_BYTES - 128}, "illegal address: write of 16 bytes at shared offset"),
    ],
)
def test_a_stray_copy_is_a_fault_of_one_line(change: dict[str, Any], message: str) -> None:
    box = Box("float32", (64, 32), (8, 32), (0, 0), **change)
    with pytest.raises(KernelFault, match=message) as raised:
        load(box, np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32))
    assert "\n" not in str(raised.value)


def test_a_map_of_another_rank_is_a_fault() -> None:
    item = memlab.tensor_map(np.zeros((4, 8, 16), np.float32), box=(1, 8, 16))
    box = Box("float32", (8, 16), (8, 16), (0, 0))
    zeros = np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="another number of dimensions"):
        run("load", box, item, box.numbers(), zeros, memlab.out(WORDS + 1, "u32"))


def test_a_copy_from_within_a_piece_is_a_fault() -> None:
    box = Box("float32", (8, 32), (4, 16), (0, 2))
    tensor, zeros = np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="a box begins at a multiple of 16 bytes in a row"):
        load(box, tensor, zeros)


def test_a_reduction_of_another_type_is_a_fault() -> None:
    box = Box("int64", (8, 32), (4, 16), (0, 0))
    tensor, zeros = np.zeros(box.tensor_bytes, np.uint8), np.zeros(WORDS, np.uint32)
    with pytest.raises(KernelFault, match="this reduction does not take the element type"):
        store(box, tensor, zeros, "add")


@pytest.mark.parametrize("seed", range(6))
def test_pixels_of_im2col_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = random_pixels(rng)
    tensor = rng.integers(0, 256, box.tensor_bytes, np.uint8)
    initial = rng.integers(0, 2**32, WORDS, np.uint32)
    got = load_pixels(box, tensor, initial)
    expected = box.loaded(tensor, initial.view(np.uint8))
    np.testing.assert_array_equal(got, expected)


def test_loads_round_to_the_precision_of_tensor_cores() -> None:
    bits = np.random.default_rng(5).integers(0, 2**32, 1024, np.uint32)
    bits[:8] = 0x3F801000, 0x3F803000, 0x3F801001, 0x7F7FFFFF, 0x7FFFFF, 0xFF800000, 0x7FC00001, 0
    item = memlab.tensor_map(bits.view(np.float32).reshape(32, 32), box=(32, 32), conversion="tf32")
    box = Box("float32", (32, 32), (32, 32), (0, 0))
    zeros = np.zeros(WORDS, np.uint32)
    result = run("load", box, item, box.numbers(), zeros, memlab.out(WORDS + 1, "u32"))
    got = np.asarray(result.outputs["out"])[:1024]
    # As an H200 rounds them: to the nearest of 10 bits, ties to even.
    first = [0x3F800000, 0x3F804000, 0x3F802000, 0x7F800000, 0x800000, 0xFF800000, 0x7FFFE000, 0]
    assert got[:8].tolist() == first
    numbers = bits.view(np.float32)
    finite = (np.abs(numbers) < 3e38) & (np.abs(numbers) > 1.2e-38)
    fraction, exponent = np.frexp(numbers[finite].astype(np.float64))
    expected = np.ldexp(np.round(fraction * 2048) / 2048, exponent)
    np.testing.assert_array_equal(got.view(np.float32)[finite], expected)


STAGED = """
#include <cuda.h>
extern "C" __global__ void staged(const __grid_constant__ CUtensorMap map, float *out)
{
  __shared__ alignas(128) float tile[16 * 32];
  __shared__ alignas(8) unsigned long long ready;
  unsigned bar = __cvta_generic_to_shared(&ready), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(&map), "r"((int)(blockIdx.x * 32)), "r"((int)(blockIdx.y * 16)),
                    "r"(bar) : "memory");
  }
  __syncthreads();
  int done = 0;
  while (!done)
    asm volatile("{.reg .pred p;\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\\n"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
  int t = threadIdx.x, column = blockIdx.x * 32 + t;
  for (int row = 0; row < 16; ++row)
    out[(blockIdx.y * 16 + row) * 1024 + column] = tile[row * 32 + t];
}
"""

MULTICAST = """
#include <cuda.h>
__global__ void __cluster_dims__(2) spread(const __grid_constant__ CUtensorMap map, float *out)
{
  __shared__ alignas(128) float tile[8 * 32];
  __shared__ alignas(8) unsigned long long ready;
  unsigned bar = __cvta_generic_to_shared(&ready), to = __cvta_generic_to_shared(tile), rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(bar) : "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0)  // each block loads half of the tile for both
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(to + 512 * rank), "l"(&map), "r"(0), "r"((int)(blockIdx.x * 4)), "r"(bar),
                    "h"((short)3) : "memory");
  int done = 0;
  while (!done)
    asm volatile("{.reg .pred p;\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\\n"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
  for (int i = threadIdx.x; i < 256; i += blockDim.x) out[blockIdx.x * 256 + i] = tile[i];
}
"""


def test_a_multicast_copy_writes_to_each_block_of_the_mask() -> None:
    values = np.random.default_rng(2).standard_normal((24, 32), dtype=np.float32)
    item = memlab.tensor_map(values, box=(4, 32))
    source = memlab.source(MULTICAST)
    arguments = [item, memlab.out((6, 8, 32), "f32")]
    result = memlab.run(source, grid=6, block=32, args=arguments, device="h200")
    expected = np.repeat(values.reshape(3, 8, 32), 2, axis=0)
    np.testing.assert_array_equal(result.outputs["out"], expected)
    assert result.measurement.counters.bulk_sectors == 6 * 4 * 4


def measured_copies() -> list[dict[str, str]]:
    lines = (DATA / "h200-tensor-copies.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("copy", ["load", "store", "reduce"])
def test_sectors_are_those_that_an_h200_counts(copy: str) -> None:
    for row in (row for row in measured_copies() if row["copy"] == copy):
        shape, extents, at, step = (
            tuple(map(int, row[name].split("x"))) for name in ("shape", "box", "at", "step")
        )
        box = Box(
            row["dtype"], shape, extents, at, int(row["swizzle"]), padding=int(row["padding"])
        )
        behind = [0] * (5 - len(shape))
        point = ((*at[::-1], *behind), (*step[::-1], *behind), 0, box.nbytes)
        tensor = memlab.tensor_map(
            np.zeros(box.tensor_bytes, np.uint8).view(element_type(box.dtype)),
            role="in" if copy == "load" else "inout",
            **box.arguments(),
        )
        result = memlab.run(
            f"{SOURCE}:count_{'loads' if copy == 'load' else 'stores'}",
            grid=64,
            block=32,
            args=[tensor, point],
            defines=[f"RANK={len(shape)}", *(['REDUCE="add"'] if copy == "reduce" else [])],
            shared=SHARED_BYTES,
            device="h200",
        )
        counters = result.measurement.counters
        assert (counters.bulk_requests, counters.bulk_sectors) == (64, int(row["sm"])), row


def measured_stores() -> list[dict[str, str]]:
    with (DATA / "h100-tensor-stores.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("measured", measured_stores(), ids=lambda row: row["runs"])
def test_stores_write_the_pieces_that_an_h100_writes(measured: dict[str, str]) -> None:
    """Also what a piece has behind the end of a row of the tensor."""
    kind = {"u8": "uint8", "f16": "float16", "u32": "uint32", "f32": "float32", "u64": "uint64"}
    shape, strides, extents, steps, at = (
        tuple(map(int, reversed(measured[name].split())))
        for name in ("extents", "strides", "boxes", "steps", "at")
    )
    box = Box(
        kind[measured["type"]],
        shape,
        extents,
        at,
        int(measured["swizzle"]),
        steps,
        offset=int(measured["offset"]),
        pitches=strides[:-1],
    )
    written = {place: source for source, place in box.places() if place is not None}
    size = -(-box.tensor_bytes // 16) * 16
    numbers = np.arange(SHARED_BYTES)
    low, high = numbers.astype(np.uint8), (numbers >> 8).astype(np.uint8) + np.uint8(1)
    operation = "add" if measured["operation"] == "add" else ""

    found = [
        store(box, np.zeros(size, np.uint8), part.view(np.uint32), operation).astype(int)
        for part in (low, high)
    ]

    sources = np.where(found[1], (found[1] - 1 << 8) + found[0], -1)
    assert np.count_nonzero(sources >= 0) == int(measured["written"])
    for run_text in measured["runs"].split():
        start, count, source = map(int, re.split("[+<]", run_text))
        expected = source + np.arange(count)
        np.testing.assert_array_equal(sources[start : start + count], expected)
        sources[start : start + count] = -1  # past the tensor
    inside = {
        place + part: source + part
        for place, source in written.items()
        for part in range(box.width)
    }
    left = {int(place): int(sources[place]) for place in np.flatnonzero(sources >= 0)}
    assert left == inside


@pytest.mark.parametrize("shape", [(512, 1024), (500, 1016)])
def test_blocks_that_copy_the_same_part_of_a_box_are_one_class(shape: tuple[int, int]) -> None:
    array = Buffer("map", shape, "float32", "in")
    launch = Launch(
        kernel="k",
        parameters={},
        source=STAGED,
        source_name="k.cu",
        entry="staged",
        defines={},
        grid=(32, 32, 1),
        block=(32, 1, 1),
        dynamic_shared_bytes=0,
        arguments=(
            TensorMap("map", array, "float32", shape, TensorBox((16, 32))),
            Buffer("out", (512, 1024), "float32", "out"),
        ),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
    )
    execution = Execution.of(launch, compile_launch(launch, (9, 0)), 0)
    partition = block_classes.classify_blocks(execution, 1e9)
    assert partition.exact
    # The blocks at the edges are classes of their own where the tensor ends within their boxes.
    inner = 31 if shape == (500, 1016) else 32
    assert partition.cuts[0] == partition.cuts[1] == {0, inner, 32}


CONSTANT_MAPS = Path(__file__).parents[2] / "support" / "constant_maps.cu"


def test_maps_may_lie_in_constant_memory() -> None:
    maps = {
        "source": "tensormap=f32[16,32]:box[8,32]=arange",
        "targets": "tensormap[2]=@source.0:box[8,32],inout:f32[16,32]:box[8,32]=zeros",
    }
    launch: dict[str, Any] = {"grid": 2, "block": 32, "device": "h200", "constants": maps}
    result = memlab.run(f"{CONSTANT_MAPS}:moved", **launch)
    expected = np.arange(512, dtype=np.float32).reshape(16, 32)
    np.testing.assert_array_equal(result.outputs["targets.1"], expected)
    assert result.measurement.counters.bulk_sectors == 2 * 2 * 32
    assert memlab.check(f"{CONSTANT_MAPS}:moved", **launch).findings == ()


def test_maps_in_constant_memory_may_come_from_python() -> None:
    values, left = np.arange(512, dtype=np.float32).reshape(16, 32), np.zeros((16, 32), np.float32)
    maps = {
        "source": memlab.tensor_map(values, box=(8, 32)),
        "targets": [
            memlab.tensor_map("@source.0", box=(8, 32)),
            memlab.tensor_map(memlab.inout(left), box=(8, 32)),
        ],
    }
    kernel = f"{CONSTANT_MAPS}:moved"
    result = memlab.run(kernel, grid=2, block=32, device="h200", constants=maps)
    np.testing.assert_array_equal(result.outputs["targets.1"], values)
    for wrong, message in (
        (maps["targets"], "has 128 bytes, and the tensor maps of"),
        (memlab.inout(values), "a variable has no role and no start: give the array itself"),
        (values, "takes tensor maps, got 'array-.*': write 'source=tensormap=f16"),
        ("random", "takes tensor maps, got 'random': write 'source=tensormap=f16"),
    ):
        with pytest.raises(UsageError, match=message):
            memlab.run(kernel, grid=2, block=32, constants={**maps, "source": wrong})


def test_a_constant_without_maps_is_named_with_what_fills_it() -> None:
    maps = {"source": "tensormap=f32[16,32]:box[8,32]"}
    launch: dict[str, Any] = {"grid": 1, "block": 32, "device": "h200", "constants": maps}
    advice = r"targets, so it holds zeros: use --const 'targets=tensormap\[2\]=f16.*box"
    with pytest.warns(MemlabWarning, match=advice), pytest.raises(KernelFault):
        memlab.run(f"{CONSTANT_MAPS}:moved", **launch)


def test_host_code_that_does_not_tell_maps_of_constants_is_named(tmp_path: Path) -> None:
    text = CONSTANT_MAPS.read_text()
    text = text.replace("encode(&one, a);", "make(&one, a);")
    (tmp_path / "maps.cu").write_text(
        text.replace("int main", "void make(void *, float *);\nint main")
    )
    with pytest.raises(UsageError, match=r"reads tensor maps in source, .* --const 'source="):
        memlab.run(str(tmp_path / "maps.cu"), device="h200")


def test_host_code_copies_maps_to_constant_memory() -> None:
    result = memlab.run(str(CONSTANT_MAPS), device="h200")
    expected = np.arange(512, dtype=np.float32).reshape(16, 32)
    np.testing.assert_array_equal(result.outputs["targets.1"], expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensormap[2]=f32[16,32]:box[8,32]", "has 128 bytes, and the tensor maps of"),
        ("tensormap=@nothing:box[8,32]", "no array argument has this name"),
        ("tensormap=f32[16,30]:box[8,32]", "the tensor map source.0: the tensor has a stride of"),
        ("tensormap=f32[16,32]", "--const source: .* has no box"),
    ],
)
def test_a_constant_refuses_maps_that_do_not_suit_it(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        memlab.run(f"{CONSTANT_MAPS}:moved", grid=1, block=32, constants={"source": text})
