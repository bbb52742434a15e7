"""Bulk copies (`cp.async.bulk`) against NumPy, as CUDA C++ and PTX name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from memlab.device.emulator.machine.memory import KernelFault
from tests.support.ptx import check, kernel, run

CUDA = """
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void library(int *data)
{
  __shared__ alignas(128) int tile[256];
  #pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier ready;
  int *own = data + blockIdx.x * 256;
  if (threadIdx.x == 0) { init(&ready, blockDim.x); ptx::fence_proxy_async(ptx::space_shared); }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(tile, own, cuda::aligned_size_t<16>(sizeof tile), ready);
    token = cuda::device::barrier_arrive_tx(ready, 1, sizeof tile);
  } else {
    token = ready.arrive();
  }
  ready.wait(std::move(token));
  for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] = 3 * tile[i] + 1;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, own, tile, sizeof tile);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}

__global__ void memcpy_async(const int *data, int *out)
{
  __shared__ alignas(128) int tile[256];
  #pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier ready;
  if (threadIdx.x == 0) init(&ready, blockDim.x);
  __syncthreads();
  const int *own = data + blockIdx.x * 256;
  if (threadIdx.x == 0)
    cuda::memcpy_async(tile, own, cuda::aligned_size_t<16>(sizeof tile), ready);
  ready.arrive_and_wait();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    out[blockIdx.x * 256 + i] = 3 * tile[i] + 1;
}
"""


@pytest.mark.parametrize("name", [pytest.param("library", marks=pytest.mark.slow), "memcpy_async"])
def test_cuda_copies_in_bulk_on_hopper(name: str) -> None:
    data = np.arange(8 * 256, dtype=np.int32)
    arguments: list[Any] = [memlab.inout(data)]
    if name == "memcpy_async":
        arguments = [data, memlab.out(len(data), "i32")]
    source = memlab.source(CUDA, name)
    result = memlab.run(source, grid=8, block=64, args=arguments, device="h200")
    (left,) = result.measurement.outputs.arrays.values()
    np.testing.assert_array_equal(left, 3 * data + 1)
    counters = result.measurement.counters
    copies = 16 if name == "library" else 8
    assert (counters.bulk_requests, counters.bulk_sectors) == (copies, copies * 1024 // 32)
    assert counters.l2_read_sectors == 8 * 1024 // 32


COPY = """
.reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %d<19>;
.shared .align 128 .b8 tile[8192];
.shared .align 8 .b64 ready;
ld.param.u64 %d1, [x];
ld.param.u64 %d2, [pieces];
ld.param.u64 %d3, [out];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra initialised;
mbarrier.init.shared::cta.b64 [ready], 32;
initialised:
bar.sync 0;
// Each thread of the block makes one copy: source offset, tile offset, bytes.
mad.lo.u32 %r3, %r2, 32, %r1;
mul.wide.u32 %d4, %r3, 12;
add.u64 %d4, %d4, %d2;
ld.global.u32 %r4, [%d4];
ld.global.u32 %r5, [%d4+4];
ld.global.u32 %r6, [%d4+8];
mbarrier.arrive.expect_tx.shared::cta.b64 %d9, [ready], %r6;
cvt.u64.u32 %d5, %r4;
add.u64 %d5, %d5, %d1;
mov.u32 %r7, tile;
add.u32 %r7, %r7, %r5;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint
  [%r7], [%d5], %r6, [ready], %d9;
again:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [ready], 0;
@!%p2 bra again;
// One thread stores the tile.
@%p1 bra done;
mul.wide.u32 %d6, %r2, 8192;
add.u64 %d6, %d6, %d3;
OPERATION
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
done:
ret;
"""


def random_copies(rng: np.random.Generator, blocks: int) -> NDArray[np.uint32]:
    """Copies of each block into its tile that do not overlap, with any sources."""
    copies = np.zeros((blocks, 32, 3), np.uint32)
    for block in range(blocks):
        cuts = np.sort(rng.integers(0, 8192 // 16 + 1, 33)) * 16
        order = rng.permutation(32)
        sizes = np.diff(cuts)
        copies[block, order] = np.stack(
            [rng.integers(0, (8192 * blocks - sizes) // 16 + 1) * 16, cuts[:-1], sizes], axis=1
        )
    return copies


def tiles_of(x: NDArray[np.uint8], copies: NDArray[np.uint32]) -> NDArray[np.uint8]:
    tiles = np.zeros((len(copies), 8192), np.uint8)
    for tile, block in zip(tiles, copies, strict=True):
        for source, place, size in block.tolist():
            tile[place : place + size] = x[source : source + size]
    return tiles


STORE = "cp.async.bulk.global.shared::cta.bulk_group [%d6], [tile], 8192;"
PARAMETERS = ".u64 x, .u64 pieces, .u64 out"


@pytest.mark.parametrize("seed", range(4))
def test_random_copies_move_what_numpy_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = 5
    x = rng.integers(0, 256, 8192 * blocks, np.uint8)
    copies = random_copies(rng, blocks)
    arrays = {"x": x, "pieces": copies, "out": np.zeros(8192 * blocks, np.uint8)}
    text = kernel(COPY.replace("OPERATION", STORE), PARAMETERS)
    expected = tiles_of(x, copies).reshape(-1)
    for chunk in (None, 2):
        launched = run(text, arrays, grid=(blocks, 1, 1), chunk=chunk)
        np.testing.assert_array_equal(launched.arrays["out"], expected)


REDUCTIONS = {
    "add.u32": (np.uint32, np.add),
    "add.s32": (np.int32, np.add),
    "add.u64": (np.uint64, np.add),
    "min.s32": (np.int32, np.minimum),
    "max.u32": (np.uint32, np.maximum),
    "min.s64": (np.int64, np.minimum),
    "and.b32": (np.uint32, np.bitwise_and),
    "or.b64": (np.uint64, np.bitwise_or),
    "xor.b32": (np.uint32, np.bitwise_xor),
    "inc.u32": (np.uint32, lambda old, new: np.where(old >= new, 0, old + 1)),
    "dec.u32": (np.uint32, lambda old, new: np.where((old == 0) | (old > new), new, old - 1)),
    "add.f32": (np.float32, np.add),
    "add.f64": (np.float64, np.add),
    "add.noftz.f16": (np.float16, np.add),
    "add.noftz.bf16": (ml_dtypes.bfloat16, np.add),
    "min.f16": (np.float16, np.minimum),
    "max.bf16": (ml_dtypes.bfloat16, np.maximum),
}


CANONICAL_NANS: dict[str, tuple[Any, int, int, int]] = {
    "add.f32": (np.uint32, 0x7F80_0000, 0x7FC1_2345, 0x7FFF_FFFF),
    "add.noftz.f16": (np.uint16, 0x7C00, 0x7E01, 0x7FFF),
    "add.noftz.bf16": (np.uint16, 0x7F80, 0x7FC1, 0x7FFF),
}
"""Infinity, a NaN with a payload, and what an H200 stores for both a sum with it and of opposite
infinities."""


@pytest.mark.parametrize("name", CANONICAL_NANS)
def test_a_sum_that_is_no_number_has_no_payload(name: str) -> None:
    unsigned, infinity, nan, canonical = CANONICAL_NANS[name]
    width = np.dtype(unsigned).itemsize
    negative = infinity | 1 << 8 * width - 1
    x = np.zeros(8192 // width, unsigned)
    out = np.zeros_like(x)
    x[:3], out[:3] = (nan, 0, infinity), (0, nan, negative)
    copies = np.zeros((1, 32, 3), np.uint32)
    copies[0, :, 0] = copies[0, :, 1] = 256 * np.arange(32)
    copies[0, :, 2] = 256
    reduction = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name} [%d6], [tile], 8192;"
    text = kernel(COPY.replace("OPERATION", reduction), PARAMETERS)
    arrays = {"x": x.view(np.uint8), "pieces": copies, "out": out.view(np.uint8)}
    left = np.asarray(run(text, arrays).arrays["out"]).view(unsigned)
    np.testing.assert_array_equal(left[:4], [canonical] * 3 + [0])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_combine_what_lies_there(name: str) -> None:
    dtype, combine = REDUCTIONS[name]
    rng = np.random.default_rng(5)
    count = 8192 // np.dtype(dtype).itemsize

    def numbers(shape: tuple[int, ...]) -> NDArray[Any]:
        if name.rpartition(".")[2] in ("f16", "bf16", "f32", "f64"):
            return rng.normal(0, 100, shape).astype(dtype)
        bounds = np.iinfo(dtype)
        return rng.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)

    x, out = numbers((2, count)), numbers((2, count))
    copies = np.zeros((2, 32, 3), np.uint32)
    for block in range(2):
        copies[block, :, 0] = 8192 * block + 256 * np.arange(32)
        copies[block, :, 1], copies[block, :, 2] = 256 * np.arange(32), 256
    reduction = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{name} [%d6], [tile], 8192;"
    text = kernel(COPY.replace("OPERATION", reduction), PARAMETERS)
    arrays = {"x": x.view(np.uint8), "pieces": copies, "out": out.view(np.uint8)}
    left = run(text, arrays, grid=(2, 1, 1)).arrays["out"]
    with np.errstate(over="ignore"):
        expected = combine(out, x)
    np.testing.assert_array_equal(np.asarray(left).view(dtype).reshape(2, -1), expected)


@pytest.mark.parametrize(
    ("source", "place", "size", "message"),
    [
        (8, 0, 64, "misaligned address: read of 16 bytes at x"),
        (0, 8, 64, "misaligned address: write of 16 bytes at shared offset"),
        (0, 0, 40, "the size of the bulk copy is no multiple of 16 bytes"),
        (8192 - 16, 0, 64, "illegal address: read of 16 bytes at x.8192"),
        (1 << 20, 0, 64, "illegal address: read of 16 bytes at"),
        (0, 8192 - 16, 64, "illegal address: write of 16 bytes at shared offset"),
    ],
)
def test_a_stray_copy_is_a_fault_of_one_line(
    source: int, place: int, size: int, message: str
) -> None:
    copies = np.zeros((1, 32, 3), np.uint32)
    copies[0, 7] = source, place, size
    arrays = {"x": np.zeros(8192, np.uint8), "pieces": copies, "out": np.zeros(8192, np.uint8)}
    with pytest.raises(KernelFault, match=message) as raised:
        run(kernel(COPY.replace("OPERATION", STORE), PARAMETERS), arrays)
    assert "\n" not in str(raised.value)


def test_a_copy_stays_pending_behind_other_stores_and_barriers() -> None:
    load = "ld.shared.u32 %r9, [tile];\nst.global.u32 [%d6], %r9;"
    body = COPY.replace("OPERATION", load).replace("@!%p2 bra again;", "")
    # Nobody tests the barrier; a store elsewhere and a barrier do not complete the copy.
    tested = "again:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [ready], 0;"
    assert tested in body
    body = body.replace(tested, "st.shared.u32 [other], %r1;\nbar.sync 0;")
    body = body.replace(".shared .align 8", ".shared .b32 other;\n.shared .align 8")
    copies = np.zeros((1, 32, 3), np.uint32)
    copies[0, 0] = 0, 0, 8192
    arrays = {"x": np.zeros(8192, np.uint8), "pieces": copies, "out": np.zeros(8192, np.uint8)}
    checked = check(kernel(body, PARAMETERS), arrays, inputs=("x", "pieces"), outputs=("out",))
    assert ("racecheck", "RAW") in {(mistake.tool, mistake.kind) for mistake in checked.mistakes}


def test_check_follows_copies() -> None:
    x = np.arange(8192, dtype=np.uint8)
    copies = np.zeros((1, 32, 3), np.uint32)
    copies[0, :, 0] = copies[0, :, 1] = 256 * np.arange(32)
    copies[0, :, 2] = 256
    arrays = {"x": x, "pieces": copies, "out": np.zeros(8192, np.uint8)}
    text = kernel(COPY.replace("OPERATION", STORE), PARAMETERS)
    checked = check(text, arrays, inputs=("x", "pieces"), outputs=("out",))
    assert checked.mistakes == ()
    np.testing.assert_array_equal(checked.arrays["out"], x)
    copies[0, 3, 2] = 240  # leaves a hole in the tile, which the store reads
    checked = check(text, arrays, inputs=("x", "pieces"), outputs=("out",))
    assert [mistake.kind for mistake in checked.mistakes] == ["uninitialized read"]


def test_a_trace_shows_all_that_a_copy_moves() -> None:
    path = Path(__file__).parents[2] / "data" / "planted" / "bulk_store_reuse.cu"
    arguments = ["in:f32[256]", "out:f32[256]"]
    traced = memlab.trace(f"{path}:doubled", grid=2, block=64, args=arguments, device="h200")
    first = traced.threads[0]
    written = [each.element.index for each in first.touches("global") if each.kind == "store"]
    assert written == list(range(128))
