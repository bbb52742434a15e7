"""The catalog: launch geometry, the float64 reference, and refused parameters."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memlab.errors import UsageError
from memlab.kernels.blas import _functions, one_thread
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch, Scalar
from memlab.kernels.matmul import inner_product_tolerance, product_reference

H200 = Limits(
    "NVIDIA H200",
    max_shared_memory_per_block_optin_bytes=232448,
    total_memory_bytes=150109880320,
)


def prepare(name: str, limits: Limits = H200, **values: int | str | None) -> Launch:
    return find_kernel(name).prepare(values, limits)


def refusal(name: str, limits: Limits = H200, **values: object) -> str:
    with pytest.raises(UsageError) as caught:
        find_kernel(name).prepare(values, limits)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("sizes", "grid"),
    [
        ({"width": 1}, (1, 1, 1)),
        ({"width": 16}, (1, 1, 1)),
        ({"width": 17}, (2, 2, 1)),
        ({"m": 100, "k": 57, "n": 75}, (5, 7, 1)),
        ({"width": 64, "n": 1}, (1, 4, 1)),
    ],
)
def test_grid_covers_the_output(sizes: dict[str, int], grid: tuple[int, int, int]) -> None:
    for name in ("naive", "tiled", "tiled-dynamic"):
        launch = prepare(name, **sizes, tile=16)

        assert (launch.grid, launch.block) == (grid, (16, 16, 1))


def test_work_of_a_small_product() -> None:
    launch = prepare("tiled", m=2, k=3, n=4)

    assert launch.flop == 48
    assert launch.compulsory_bytes == 4 * (6 + 12 + 8)
    assert launch.parameters == {"m": 2, "k": 3, "n": 4, "tile": 16}
    assert [buffer.shape for buffer in launch.buffers] == [(2, 3), (3, 4), (2, 4)]
    assert [argument.value for argument in launch.arguments if isinstance(argument, Scalar)] == [
        2,
        3,
        4,
    ]


@pytest.mark.parametrize(
    ("name", "values", "flop", "compulsory_bytes"),
    [
        # 2, 3, 2 columns and 2, 2 rows within the radius: 7 x 4 additions, and 6 divisions.
        ("blur", {"width": 3, "height": 2}, 28 + 6, 4 * 12),
        ("blur", {"width": 3, "height": 2, "radius": 0}, 6 + 6, 4 * 12),
        ("blur", {"width": 2, "height": 2, "radius": 2}, 16 + 4, 4 * 8),
        ("strided", {"n": 10, "stride": 7}, 0, 4 * (10 + 10)),
        ("broadcast", {"n": 33}, 0, 4 * (2 + 33)),
        ("scattered", {"n": 10}, 0, 4 * (10 + 10 + 10)),
        ("row-sum", {"width": 5}, 25, 4 * (25 + 5)),
        ("transpose", {"width": 3, "height": 4}, 0, 4 * 24),
        ("filter-global", {"n": 10}, 2 * 16 * 10, 4 * (25 + 16 + 10)),
        ("filter-constant", {"n": 10}, 2 * 16 * 10, 4 * (25 + 16 + 10)),
        ("register-pressure", {"n": 2}, 2 * (64 + 1 + 3 * 64 + 1), 4 * (128 + 2)),
        ("attention-scores", {"tokens": 3, "heads": 2}, 2 * 64 * 18, 4 * 2 * (2 * 3 * 64 + 9)),
        ("attention-softmax", {"tokens": 3, "heads": 2}, 4 * 18, 4 * 2 * 18),
        ("attention-tiled", {"tokens": 3, "heads": 2}, 4 * 64 * 18, 4 * 4 * 2 * 3 * 64),
        ("attention-mma", {"tokens": 6, "heads": 1}, 4 * 64 * 36, 2 * 4 * 6 * 64),
        ("attention-wgmma", {"tokens": 6, "heads": 1}, 4 * 64 * 36, 2 * 4 * 6 * 64),
    ],
)
def test_work_of_the_lessons(
    name: str, values: dict[str, int], flop: int, compulsory_bytes: int
) -> None:
    launch = prepare(name, **values)

    assert (launch.flop, launch.compulsory_bytes) == (flop, compulsory_bytes)


def test_word_chooses_the_load() -> None:
    assert prepare("aligned").defines == {"LOAD": "__ldca"}
    launch = prepare("aligned", cache="global")
    assert launch.defines == {"LOAD": "__ldcg"}
    assert launch.parameters == {"n": 4194304, "cache": "global"}


@pytest.mark.parametrize(
    ("text", "number"), [("64K", 65_536), ("1.5M", 1_572_864), ("2**20", 2**20), (" 96 ", 96)]
)
def test_numbers_are_written_as_in_launch_options(text: str, number: int) -> None:
    launch = prepare("aligned", n=text)
    assert dict(launch.parameters)["n"] == number
    assert launch.outputs[0].shape == (number,)


@pytest.mark.parametrize(("value", "word"), [(True, "yes"), (False, "no"), ("yes", "yes")])
def test_python_says_yes_and_no_by_true_and_false(value: Any, word: str) -> None:
    launch = prepare("attention-tiled", tokens=64, heads=1, causal=value)
    assert dict(launch.parameters)["causal"] == word


def test_recorded_parameters_give_the_same_launch_again() -> None:
    first = prepare("tiled-dynamic", width=100, n=7)

    again = prepare("tiled-dynamic", **first.parameters)

    assert (again.grid, again.block, again.arguments) == (first.grid, first.block, first.arguments)


@pytest.mark.parametrize(
    ("limits", "tile", "shared_bytes"),
    [
        (H200, 32, 8192),
        (Limits("few threads", max_threads_per_block=512), 22, 3872),
        (
            Limits(
                "little shared memory",
                max_shared_memory_per_block_bytes=1024,
                max_shared_memory_per_block_optin_bytes=1024,
            ),
            11,
            968,
        ),
        # No GPU has such large blocks yet; beyond 48 KiB the opt-in limit applies.
        (
            Limits(
                "many threads",
                max_threads_per_block=10000,
                max_shared_memory_per_block_optin_bytes=65536,
            ),
            90,
            64800,
        ),
    ],
)
def test_dynamic_tile_is_the_widest_that_fits(limits: Limits, tile: int, shared_bytes: int) -> None:
    launch = prepare("tiled-dynamic", limits)

    assert launch.tile == tile
    assert launch.block == (tile, tile, 1)
    assert launch.dynamic_shared_bytes == shared_bytes


@settings(deadline=None, max_examples=50)
@given(data=st.data(), m=st.integers(1, 20), k=st.integers(1, 20), n=st.integers(1, 20))
def test_reference_is_the_product_at_any_positions(
    data: st.DataObject, m: int, k: int, n: int
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    left = random.random((m, k), dtype=np.float32)
    right = random.random((k, n), dtype=np.float32)
    positions = np.array(
        data.draw(st.lists(st.integers(0, m * n - 1), max_size=60)), dtype=np.int64
    )

    values = product_reference({"M": left, "N": right}, positions)

    product = left.astype(np.float64) @ right.astype(np.float64)
    np.testing.assert_allclose(values, product.ravel()[positions], rtol=1e-13)


def test_small_products_take_one_thread_of_openblas() -> None:
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" not in blas:
        pytest.skip(f"NumPy uses {blas}")
    functions = _functions()
    assert functions is not None
    threads, set_threads = functions
    before = threads()
    set_threads(2)
    try:
        with one_thread():
            assert threads() == 1
        assert threads() == 2
    finally:
        set_threads(before)


@pytest.mark.parametrize(
    "positions",
    [np.arange(6000), np.arange(5999), np.roll(np.arange(6000), 1)],
    ids=["whole", "part", "whole, not in order"],
)
def test_reference_in_slices_of_a_long_inner_product(positions: NDArray[np.int64]) -> None:
    # 3000 columns of N in float64 take more than one slice of the inner product.
    random = np.random.default_rng(3)
    left, right = random.random((2, 6000)), random.random((6000, 3000))

    values = product_reference({"M": left, "N": right}, positions)

    np.testing.assert_allclose(values, (left @ right).ravel()[positions], rtol=1e-12)


def test_tolerance_lies_between_rounding_and_a_lost_term() -> None:
    random = np.random.default_rng(5)
    for k in (1, 57, 1024, 10000):
        terms = random.random((200, k), dtype=np.float32) * random.random(
            (200, k), dtype=np.float32
        )
        rounded = np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1].astype(np.float64)
        exact = terms.astype(np.float64).sum(axis=1)

        assert np.max(np.abs(rounded - exact) / exact) < inner_product_tolerance(k)
        assert np.median(terms[:, 0] / exact) > inner_product_tolerance(k)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "tiled",
            {"tile": 64},
            "tile 64 needs 64 x 64 = 4096 threads per block; NVIDIA H200 allows 1024: "
            "use --tile 32 or less",
        ),
        (
            "naive",
            {"tile": 33},
            "tile 33 needs 33 x 33 = 1089 threads per block; NVIDIA H200 allows 1024: "
            "use --tile 32 or less",
        ),
        (
            "tiled",
            {"tile": 0},
            "tile must be at least 1, got 0: use 1 to 32 where a block may have 1024 threads",
        ),
        ("naive", {"width": 0}, "width must be at least 1, got 0: use 1 or more"),
        ("naive", {"k": -3}, "k must be at least 1, got -3: use 1 or more"),
        ("naive", {"m": 1.5}, "m must be a whole number, got 1.5: use 1 or more"),
        ("naive", {"m": "64Q"}, "m must be a whole number, got '64Q': use 1 or more"),
        ("naive", {"m": "1/2"}, "m must be a whole number, got '1/2': use 1 or more"),
        ("naive", {"m": "1/0"}, "m must be a whole number, got '1/0': use 1 or more"),
        ("naive", {"m": "n"}, "m must be a whole number, got 'n': use 1 or more"),
        ("naive", {"tiel": 8}, "naive has no parameter 'tiel': did you mean 'tile'?"),
        (
            "naive",
            {"width": 200000},
            "M 200000 x 200000, N 200000 x 200000, P 200000 x 200000 need 480000000000 bytes "
            "(447.0 GiB) of memory; NVIDIA H200 has 150109880320 bytes (139.8 GiB): "
            "use smaller sizes",
        ),
        (
            "naive",
            {"width": 2**70},
            "M 1.18e+21 x 1.18e+21, N 1.18e+21 x 1.18e+21, P 1.18e+21 x 1.18e+21 need 1.67e+43 "
            "bytes of memory; NVIDIA H200 has 150109880320 bytes (139.8 GiB): use smaller sizes",
        ),
        (
            "tiled",
            {"width": 50000},
            "M has 50000 x 50000 = 2500000000 elements; tiled indexes with 32 bits, up to "
            "2147482624 elements: use smaller sizes",
        ),
        (
            "tiled",
            {"m": 2000000, "k": 1, "n": 1},
            "the launch has 125000 blocks in y; NVIDIA H200 allows 65535: "
            "use smaller sizes or a larger block",
        ),
        (
            "aligned",
            {"n": 3000000000},
            "a has 3000000000 elements; aligned indexes with 32 bits, up to 2147482624 elements: "
            "use smaller sizes",
        ),
        ("aligned", {"cache": "l1"}, "cache must be all or global, got 'l1'"),
        ("aligned", {"cache": 1}, "cache must be all or global, got '1'"),
        ("misaligned", {"offset": 32}, "offset must be at most 31, got 32: use 0 to 31"),
        ("misaligned", {"offset": -2}, "offset must be at least 0, got -2: use 0 to 31"),
        ("strided", {"stride": 0}, "stride must be at least 1, got 0: use 1 to 65536"),
        (
            "strided",
            {"stride": 65536},
            "a 274877906944, b 4194304 need 1099528404992 bytes (1024.0 GiB) of memory; NVIDIA "
            "H200 has 150109880320 bytes (139.8 GiB): use smaller sizes",
        ),
        ("bank-stride", {"stride": 33}, "stride must be at most 32, got 33: use 1 to 32"),
        (
            "blur",
            {"width": 9, "height": 3, "radius": 4},
            "radius 4 is larger than the image of 9 x 3: use --radius 3 or less",
        ),
        (
            "blur-tiled",
            {"radius": 46},
            "radius 46 needs 124 x 100 x 4 = 49600 bytes of shared memory per block; "
            "NVIDIA H200 allows 49152: use --radius 45 or less",
        ),
        (
            "register-pressure",
            {"registers": 23},
            "registers must be at least 24, got 23: use 24 to 255",
        ),
        ("attention-tiled", {"head_size": 96}, "head-size must be 64 or 128, got 96"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, values: dict[str, object], message: str) -> None:
    assert refusal(name, **values) == message


def test_what_just_fits_is_accepted() -> None:
    # One block of 16 x 16 threads, and three matrices of 256 floats.
    limits = Limits("small", 256, (16, 16, 1), (1, 1, 1), total_memory_bytes=3 * 1024)
    exact = replace(find_kernel("naive"), max_elements=256)
    sizes = {"width": 16, "tile": 16}

    assert exact.prepare(sizes, limits).blocks == 1
    for kernel, smaller, message in (
        (replace(exact, max_elements=255), limits, "M has 16 x 16 = 256 elements"),
        (exact, replace(limits, total_memory_bytes=3071), "need 3072 bytes"),
        (exact, replace(limits, max_block_dim=(16, 15, 1)), "16 threads per block in y"),
    ):
        with pytest.raises(UsageError, match=message):
            kernel.prepare(sizes, smaller)
    assert prepare("misaligned", offset=31).parameters["offset"] == 31
    assert prepare("register-pressure", registers=24).parameters["registers"] == 24


def test_shared_memory_is_refused_where_it_is_the_limit() -> None:
    small = Limits("small", max_shared_memory_per_block_bytes=4096)

    assert refusal("tiled", small, tile=32) == (
        "tile 32 needs 2 x 32 x 32 x 4 = 8192 bytes of shared memory per block; small allows 4096: "
        "use --tile 22 or less"
    )
    assert prepare("tiled-dynamic", small, tile=32).tile == 32


def test_unknown_kernel_gives_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="unknown kernel 'tilde': did you mean 'tiled'"):
        find_kernel("tilde")
