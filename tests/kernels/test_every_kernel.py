"""Every kernel of the catalog: its source fits its launch, and small odd sizes are right."""

import pickle
import re

import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import launch_limits, open_device
from memlab.device.gpu.device import measure_launch
from memlab.device.gpu.timing import TimingSettings
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Buffer, Launch, TensorMap

EMULATED = open_device("h200")

ATTENTION: list[dict[str, int | str]] = [
    {"tokens": 1, "heads": 1},
    {"tokens": 70, "heads": 3, "causal": "yes"},
    {"tokens": 133, "heads": 1, "head_size": 128},
]

# One line per kernel: sizes with partly filled blocks, warps, tiles and lines.
SMALL: dict[str, list[dict[str, int | str]]] = {
    "naive": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "tiled": [{"width": 1, "tile": 8}, {"m": 31, "k": 7, "n": 33}],
    "tiled-dynamic": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "coarsened": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "register-tiled-1d": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "register-tiled-2d": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "vectorized": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "double-buffered": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "warp-tiled": [{"width": 1}, {"m": 131, "k": 23, "n": 261}, {"m": 129, "k": 36, "n": 264}],
    "tensor-tf32": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "tensor-fp16": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "tensor-bf16": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "wgmma": [{"m": 1, "k": 8, "n": 8}, {"m": 67, "k": 72, "n": 264, "dtype": "fp16"}],
    "wgmma-pipelined": [{"m": 1, "k": 8, "n": 8}, {"m": 131, "k": 392, "n": 264}],
    "wgmma-specialized": [{"m": 1, "k": 8, "n": 8}, {"m": 131, "k": 392, "n": 264}],
    "wgmma-persistent": [{"m": 1, "k": 8, "n": 8}, {"m": 131, "k": 392, "n": 264}],
    "wgmma-cluster": [{"m": 1, "k": 8, "n": 8}, {"m": 131, "k": 392, "n": 264}],
    "wgmma-pingpong": [{"m": 1, "k": 8, "n": 8}, {"m": 131, "k": 520, "n": 136}],
    "wgmma-overlapped": [{"m": 1, "k": 8, "n": 8}, {"m": 131, "k": 456, "n": 264}],
    "wgmma-tf32": [{"m": 1, "k": 4, "n": 4}, {"m": 259, "k": 228, "n": 132}],
    "blur": [{"width": 1, "height": 1}, {"width": 33, "height": 19, "radius": 0}],
    "blur-tiled": [{"width": 1, "height": 1}, {"width": 35, "height": 19, "radius": 5}],
    "blur-vectorized": [
        {"width": 1, "height": 1, "radius": 0},
        {"width": 131, "height": 19, "radius": 3},
        {"width": 264, "height": 22, "radius": 4},
    ],
    "aligned": [{"n": 1}, {"n": 289, "cache": "global"}],
    "permuted": [{"n": 1}, {"n": 289, "cache": "global"}],
    "misaligned": [{"n": 1}, {"n": 289, "offset": 0}, {"n": 289, "offset": 31}],
    "broadcast": [{"n": 1}, {"n": 289, "cache": "global"}],
    "scattered": [{"n": 1}, {"n": 289, "cache": "global"}],
    "strided": [{"n": 1}, {"n": 289, "stride": 37}],
    "copy-vectorized": [{"n": 1}, {"n": 1024}, {"n": 1031}],
    "row-sum": [{"width": 1}, {"width": 261}],
    "row-sum-block": [{"width": 1}, {"width": 261}, {"width": 264}],
    "column-sum": [{"width": 1}, {"width": 261}],
    "column-sum-block": [{"width": 1}, {"width": 71}, {"width": 132}],
    "bank-stride": [{"n": 1}, {"n": 1061, "stride": 7}, {"n": 2049, "stride": 32}],
    "transpose": [{"width": 1}, {"width": 33, "height": 70}],
    "transpose-shared": [{"width": 1}, {"width": 33, "height": 70}],
    "transpose-padded": [{"width": 1}, {"width": 33, "height": 70}],
    "transpose-vectorized": [
        {"width": 1},
        {"width": 70, "height": 132},
        {"width": 132, "height": 70},
    ],
    "matmul-column-major": [{"width": 1}, {"m": 31, "k": 7, "n": 33}],
    "corner-turning": [{"width": 1, "tile": 7}, {"m": 31, "k": 7, "n": 33, "tile": 8}],
    "filter-registers": [{"n": 1}, {"n": 4133}],
    "filter-local": [{"n": 1}, {"n": 4133}],
    "filter-shared": [{"n": 1}, {"n": 4133}],
    "filter-constant": [{"n": 1}, {"n": 4133}],
    "filter-constant-divergent": [{"n": 1}, {"n": 4133}],
    "filter-global": [{"n": 1}, {"n": 4133}],
    "register-pressure": [{"n": 1}, {"n": 289, "registers": 32}],
    "attention-scores": ATTENTION,
    "attention-softmax": ATTENTION,
    "attention-values": ATTENTION,
    "attention-tiled": ATTENTION,
    "attention-mma": ATTENTION,
    "attention-wgmma": [  # three tiles, so that the ring of two stages is used again
        {"tokens": 300, "heads": 1, "causal": "yes"},
        {"tokens": 261, "heads": 1, "head_size": 128},
    ],
}
CASES = [(name, sizes) for name, cases in SMALL.items() for sizes in cases]
MANY_TILES: list[tuple[str, dict[str, int | str]]] = [
    (name, {"m": 2331, "k": 392, "n": 4104, **more})
    for name in SMALL
    if name.startswith("wgmma")
    for more in ({}, {"dtype": "fp16"})
    if not (more and name == "wgmma-tf32")
]
"""More than a GPU computes at a time, so that persistent blocks have several each."""


def prepare(name: str, sizes: dict[str, int | str]) -> Launch:
    return CATALOG[name].prepare(sizes, launch_limits(EMULATED.properties))


def test_every_kernel_has_a_line_above() -> None:
    assert list(SMALL) == list(CATALOG)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        # It takes LLVM half a minute.
        pytest.param(*case, marks=[pytest.mark.slow] * (case[0] == "wgmma-overlapped"))
        for case in CASES
    ],
    ids=str,
)
def test_output_is_right_at_small_odd_sizes(name: str, sizes: dict[str, int | str]) -> None:
    verification = EMULATED.run(prepare(name, sizes), seed=1).verification

    assert verification.status == "passed", verification
    assert verification.checked == verification.total > 0


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "sizes"), CASES + MANY_TILES, ids=str)
def test_output_is_right_on_a_gpu(name: str, sizes: dict[str, int | str]) -> None:
    properties = open_device(0).properties
    if "wgmma" in name and properties.compute_capability != (9, 0):
        pytest.skip("wgmma is an instruction of Hopper's alone")
    launch = CATALOG[name].prepare(sizes, launch_limits(properties))
    compiled = compile_launch(launch, properties.compute_capability)
    settings = TimingSettings(samples=1)

    _, verification, _, _ = measure_launch(0, launch, compiled, 1, settings, None, lambda: None)

    assert verification.status == "passed", verification
    assert verification.checked > 0


@pytest.mark.parametrize("name", CATALOG)
def test_arguments_are_those_of_the_source(name: str) -> None:
    launch = prepare(name, {})

    bounds = r"(?:\s+__(?:launch_bounds|cluster_dims)__\([^)]*\))*"
    signature = re.search(rf"__global__ void{bounds}\s+{launch.entry}\(([^)]*)\)", launch.source)
    assert signature, f"{launch.source_name} has no __global__ function {launch.entry}"
    declared = [
        (re.findall(r"\w+", parameter)[-1], "*" in parameter, "const" in parameter)
        for parameter in signature[1].split(",")
    ]
    assert declared == [
        (
            argument.name,
            isinstance(argument, Buffer),
            isinstance(argument, TensorMap)
            or (isinstance(argument, Buffer) and argument.role == "in"),
        )
        for argument in launch.arguments
    ]


@pytest.mark.parametrize("name", CATALOG)
def test_source_says_what_to_expect(name: str) -> None:
    head = CATALOG[name].source.partition("\n\n")[0]

    assert head.startswith("// ")
    assert "What to expect:" in head


@pytest.mark.parametrize("name", CATALOG)
def test_launch_can_be_sent_to_a_worker(name: str) -> None:
    # A worker uses the GPU, and a closure cannot be sent to it as a reference.
    launch = prepare(name, {})

    assert pickle.loads(pickle.dumps(launch)).arguments == launch.arguments
