"""Descriptors of `wgmma` in a cluster, whose fields the rank of the block may reach."""

from __future__ import annotations

import numpy as np
import pytest

import memlab

SOURCE = r"""
__global__ void CLUSTER product(float *d, int stages)
{
  extern __shared__ __align__(1024) char s[];
  for (int i = threadIdx.x; i < 2048; i += 128) ((float *)s)[i] = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  typedef unsigned long long u64;
  unsigned place = __cvta_generic_to_shared(s);
  u64 strides = 8ull << 16 | 16ull << 32, swizzled = 1ull << 62, right = strides;
  u64 left = LEFT;
  right |= (place & 0x3FFFF) >> 4;
  float x[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
               "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, MAJOR, 0;"
               : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]) : "l"(left), "l"(right));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(x[0]) :: "memory");
  d[blockIdx.x * 128 + threadIdx.x] = x[0];
}
"""
LEADING = "leading dimension byte offset (bits 16 to 29)"
STRIDE = "stride dimension byte offset (bits 32 to 45)"
PAIR = "__cluster_dims__(2)"


def findings(left: str, cluster: str = PAIR, major: int = 0) -> list[tuple[str, str, object, int]]:
    """What `check` finds: the kind, the field, the first block and how many threads."""
    text = SOURCE.replace("LEFT", left).replace("CLUSTER", cluster).replace("MAJOR", str(major))
    source, out = memlab.source(text, "product"), memlab.out(256, np.float32)
    report = memlab.check(source, grid=2, block=128, args=[out, 2], shared=8192, device="h200")
    assert report.coverage.blocks_total == 2
    return [
        (f.kind, f.message.partition("the ")[2].partition(" of a wgmma")[0], f.at.block, f.count)
        for f in report.findings
    ]


SPOILED = {
    "a whole address": ("strides | place >> 4", LEADING),
    "a sum": ("strides + (place + 1024u) / 16", LEADING),
    "a mask after the shift that is too wide": ("strides | (place >> 4 & 0xFFFFFF)", LEADING),
    "the end of a loop": (
        "strides | place >> 4; for (int i = 0; i < stages; ++i) left += 1024 >> 4",
        LEADING,
    ),
    "either of two": ("strides | (stages > 1 ? place : place & 0x3FFFF) >> 4", LEADING),
    "fields as halves": (
        '0; asm("mov.b64 %0, {%1, %2};" : "=l"(left) : "r"(8u << 16 | place >> 4), "r"(16u))',
        LEADING,
    ),
    "an insertion": (
        'strides; asm("bfi.b64 %0, %1, %0, 0, 32;" : "+l"(left) : "l"((u64)place >> 4))',
        LEADING,
    ),
    "an address that is shifted up": ("strides | (u64)place << 12 | 64", STRIDE),
}
MASKED = {
    "the address": "strides | (place & 0x3FFFF) >> 4",
    "the field": "strides | (place >> 4 & 0x3FFF)",
    "an extraction": (
        '0; asm("bfe.u64 %0, %1, 4, 14;" : "=l"(left) : "l"((u64)place)); left |= strides'
    ),
    "a truncation": "strides | (unsigned short)(place >> 4)",
    "no address": "strides | 1ull << 20",
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_rank_in_a_field_is_found_once_in_blocks_that_have_one(name: str) -> None:
    left, field = SPOILED[name]
    assert findings(left) == [("rank in descriptor", field, (1, 0, 0), 128)]


@pytest.mark.parametrize("name", MASKED)
def test_masked_addresses_are_no_finding(name: str) -> None:
    assert findings(MASKED[name]) == []


def test_a_block_without_a_cluster_has_no_rank() -> None:
    assert findings(SPOILED["a whole address"][0], cluster="") == []


def test_a_swizzled_matrix_has_a_leading_offset_along_m_alone() -> None:
    left = "strides | swizzled | place >> 4"
    assert findings(left) == []
    assert findings(left, major=1) == [("rank in descriptor", LEADING, (1, 0, 0), 128)]
