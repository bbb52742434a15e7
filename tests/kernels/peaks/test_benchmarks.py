"""The micro-benchmarks and their expected results, verified with the emulator."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from machine_code import accesses, opcodes
from ptx import run

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.kernels.peaks import memory_loops as kernels

ARCHITECTURE = (9, 0)
WGMMA = [loop for loop in kernels.LOOPS if loop.source_file == "wgmma.cu"]
EMULATED = [loop for loop in kernels.LOOPS if loop not in WGMMA]


@cache
def ptx(file):
    return compile_unit(TranslationUnit(kernels.benchmark_source(file), file, ARCHITECTURE)).ptx


@cache
def machine_code(file, *options):
    return compile_unit(
        TranslationUnit(kernels.benchmark_source(file), file, ARCHITECTURE, options=options)
    ).cubin


@pytest.mark.parametrize("loop", EMULATED, ids=lambda loop: loop.key)
def test_one_block_and_trip_give_what_numpy_gives(loop):
    data = loop.inputs(np.random.default_rng(7))
    out = np.zeros(max(loop.outputs_per_block, 1), loop.output)
    launched = run(
        ptx(loop.source_file),
        {"data": data, "out": out, "elapsed": np.zeros(2, np.uint64)},
        {
            "footprint": np.uint32(loop.footprint),
            "trips": np.int32(1),
            "mask": kernels.KEEP_ALL,
        },
        entry=loop.entry,
        block=(loop.verification_threads or loop.threads, 1, 1),
        dynamic_shared_bytes=loop.dynamic_shared_bytes,
        order=("data", "footprint", "trips", "mask", "out", "elapsed"),
    )
    expected = loop.expected(data)
    assert np.any(expected)
    if isinstance(expected, np.ndarray):
        sums = launched["out"].astype(np.float64).reshape(len(expected), -1).sum(axis=1)
        np.testing.assert_allclose(sums, expected, atol=1e-4 * np.abs(expected).max())
    else:
        assert launched["out"][0] == expected


@pytest.mark.parametrize("stream", kernels.STREAMS, ids=lambda stream: stream.key)
def test_a_stream_touches_every_word_once(stream):
    words = 2 * stream.words_per_block
    random = np.random.default_rng(3)
    arrays = {name: random.random((words, 4), dtype=np.float32) for name in ("out", "in", "other")}
    launched = run(
        ptx("stream.cu"),
        {**arrays, "sink": np.zeros(1, np.uint32)},
        {"mask": kernels.KEEP_ALL},
        entry=stream.entry,
        grid=(2, 1, 1),
        block=(stream.threads, 1, 1),
        order=("out", "in", "other", "mask", "sink"),
    )
    if stream.key == "dram_read":
        every_bit = np.bitwise_xor.reduce(arrays["in"].view(np.uint32), axis=None)
        assert launched["sink"][0] == every_bit
    elif stream.key == "dram_write":
        assert len(np.unique(launched["out"].view(np.uint32)[:, 0])) == words
    else:
        factor = 3 if stream.key == "dram_triad" else 0
        wanted = arrays["in"] + np.float32(factor) * arrays["other"]
        np.testing.assert_allclose(launched["out"], wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("file", "entry", "nodes"),
    [("latency.cu", "chase_shared", 1024), ("constant.cu", "chase_constant", 256)],
)
def test_a_chase_visits_all_nodes_before_it_comes_back(file, entry, nodes):
    def end(steps):
        launched = run(
            ptx(file),
            {"zero": np.zeros(1, np.uint32), "result": np.zeros(3, np.uint64)},
            {"steps": np.int32(steps)},
            entry=entry,
            block=(1, 1, 1),
            order=("zero", "steps", "result"),
        )
        return int(launched["result"][2])

    # Two rounds of half the cycle lead back to the start; two of a quarter do not.
    assert end(nodes // 2) == 0
    assert end(nodes // 4) != 0


def test_linked_nodes_are_one_circle():
    nodes, stride = 48, 128
    order = np.random.default_rng(5).permutation(nodes).astype(np.uint32)
    launched = run(
        ptx("latency.cu"),
        {"data": np.zeros(nodes * stride, np.uint8), "order": order},
        {"nodes": np.uint32(nodes), "stride": np.uint32(stride)},
        entry="link",
        block=(64, 1, 1),
        order=("data", "order", "nodes", "stride"),
    )
    links = launched["data"].view(np.uint64)[:: stride // 8].astype(np.int64)
    base = links.min()
    visited, node = set(), 0
    while node not in visited:
        visited.add(node)
        node = int(links[node] - base) // stride
    assert len(visited) == nodes


@pytest.mark.parametrize(
    ("file", "entry", "kind", "width"),
    [
        ("stream.cu", "read", "global_load", 16),
        ("stream.cu", "write", "global_store", 16),
        ("stream.cu", "copy", "global_load", 16),
        ("stream.cu", "triad", "global_load", 16),
        ("cache.cu", "read_l1", "global_load", 16),
        ("cache.cu", "read_l2", "global_load", 16),
        ("shared.cu", "read_shared", "shared_load", 16),
        ("latency.cu", "chase_shared", "shared_load", 4),
        ("latency.cu", "chase_l2", "global_load", None),
    ],
)
def test_machine_code_accesses_memory_at_full_width(file, entry, kind, width):
    made = accesses(machine_code(file), entry)
    widths = {width_bytes for what, width_bytes in made if what == kind}
    assert widths == ({width} if width else {8, 16})
    assert not any("local" in what for what, _ in made)


# Opcodes from nvdisasm --print-instruction-encoding, for compute capability 9.0.
FFMA, DFMA, HMMA, HGMMA, LDC = 0x023, 0x02B, 0x03C, 0x1F0, 0x182
HFMA2, HFMA2_MMA = 0x031, 0x035


@pytest.mark.parametrize(
    ("file", "entry", "claimed", "in_a_trip"),
    [
        ("fma.cu", "fma_fp64", (DFMA,), 8 * 63),
        ("fma.cu", "fma_fp32", (FFMA,), 8 * 63),
        ("fma.cu", "fma_fp16", (HFMA2, HFMA2_MMA), 8 * 63),
        ("mma.cu", "mma_tf32", (HMMA,), 4 * 8),
        ("mma.cu", "mma_fp16", (HMMA,), 4 * 8),
        ("mma.cu", "mma_bf16", (HMMA,), 4 * 8),
        ("wgmma.cu", "wgmma_tf32", (HGMMA,), 4),
        ("wgmma.cu", "wgmma_fp16", (HGMMA,), 4),
        ("wgmma.cu", "wgmma_bf16", (HGMMA,), 4),
    ],
)
def test_machine_code_is_the_arithmetic_it_claims(file, entry, claimed, in_a_trip):
    options = ("-arch=sm_90a",) if file == "wgmma.cu" else ()
    counts = Counter(opcodes(machine_code(file, *options), entry))
    arithmetic = sum(counts[opcode] for opcode in claimed)
    # The compiler may unroll the trips; one or two moves of a constant are HFMA2 too.
    assert arithmetic >= in_a_trip
    assert arithmetic % in_a_trip <= 2
    others = {FFMA, DFMA, HFMA2, HFMA2_MMA, HMMA, HGMMA} - set(claimed)
    assert sum(counts[opcode] for opcode in others) <= 2


@pytest.mark.parametrize("loop", WGMMA, ids=lambda loop: loop.key)
def test_wgmma_needs_the_architecture_of_its_own(loop):
    cubin = machine_code(loop.source_file, "-arch=sm_90a")
    assert loop in kernels.supported_loops((9, 0))
    assert loop not in kernels.supported_loops((10, 0))
    assert not any("local" in what for what, _ in accesses(cubin, loop.entry))
