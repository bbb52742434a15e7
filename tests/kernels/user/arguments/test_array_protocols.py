"""Arrays of other libraries as arguments: DLPack, arrays on a GPU, tensors that record gradients.

The classes stand for those of CuPy, Numba, PyTorch and JAX, by the methods that these document.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpu_runs import run_on_gpu
from numpy.typing import NDArray

import memlab

X = np.arange(32, dtype=np.float32)
COPY = memlab.source(
    "__global__ void copy(float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }"
)


class OnGpu:
    """An array on a GPU, which NumPy refuses to convert."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self._values.shape, "typestr": "<f4", "data": (1 << 40, False)}

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError("implicit conversion to a NumPy array is not allowed")


class CupyArray(OnGpu):
    def get(self) -> NDArray[Any]:
        return self._values


class NumbaArray(OnGpu):
    def copy_to_host(self) -> NDArray[Any]:
        return self._values


class Tensor(OnGpu):
    """A tensor of PyTorch: on the host, and without its gradient, NumPy converts it."""

    dtype = "torch.float32"

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> NDArray[Any]:
        return self._values


class DlpackArray:
    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


@pytest.mark.parametrize("kind", [CupyArray, NumbaArray, Tensor, DlpackArray])
def test_arrays_of_other_libraries_are_copied(kind: Any) -> None:
    launch: dict[str, Any] = {"grid": 1, "block": 32, "device": "a100"}
    for argument in (kind(X), memlab.inout(kind(X))):
        run = memlab.run(COPY, args=[argument, memlab.out(32, "f4")], **launch)
        np.testing.assert_array_equal(run.outputs["y"], X)


def test_an_array_that_cannot_be_copied_is_refused_in_one_line() -> None:
    with pytest.raises(memlab.UsageError, match=r"implicit conversion.*convert it") as caught:
        memlab.run(COPY, grid=1, block=32, args=[OnGpu(X), memlab.out(32, "f4")], device="a100")
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_keep_their_type() -> None:
    from memlab.kernels.user.arguments.python_values import convert_argument

    number = ml_dtypes.bfloat16(1.5)
    for value, short in ((np.float32(2), "f32"), (np.uint8(3), "u8"), (number, "bf16"), (2, "")):
        converted: Any = convert_argument(value)
        assert (converted.dtype, converted.numpy_dtype) == ("", short)


AXPY = memlab.source(
    "#include <cuda_bf16.h>\n"
    "__global__ void axpy(float a, const float *x, __nv_bfloat16 *y) {\n"
    "  int i = threadIdx.x;\n"
    "  y[i] = __float2bfloat16(a * x[i] + __bfloat162float(y[i]));\n"
    "}\n"
)


@pytest.mark.gpu
@pytest.mark.parametrize("package", ["cupy", "torch", "numba.cuda", "jax.numpy"])
def test_arrays_that_lie_on_a_gpu_are_copied(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX else takes most memory
    module = pytest.importorskip(package)
    wide = np.arange(64, dtype=np.float32)
    if package == "torch":
        x = module.tensor(wide, device="cuda", requires_grad=True)[::2]
        y: Any = module.ones(32, dtype=module.bfloat16, device="cuda")
    else:
        convert = module.to_device if package == "numba.cuda" else module.asarray
        x, y = convert(wide)[::2], np.ones(32, ml_dtypes.bfloat16)
    given = [2.0, x, memlab.inout(y)]
    expected = 2 * wide[::2] + 1  # whole numbers up to 125, which bfloat16 has
    run = run_on_gpu(AXPY, grid=1, block=32, args=given, expect={"y": expected})
    assert run.outputs["y"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(run.outputs["y"].astype("f4"), expected)
