"""Tensor maps on a GPU: what the driver is asked for, and what is told where it refuses."""

import ctypes
from typing import Any

import pytest

from memlab.device.gpu import libcuda, tensor_maps
from memlab.errors import DeviceError
from memlab.kernels.launch import Buffer, TensorBox, TensorMap

ARRAY = Buffer("a", (6, 8, 64), "float32", "in")


def asked(monkeypatch: pytest.MonkeyPatch, box: TensorBox) -> tuple[str, list[Any]]:
    """The function that is called, and its arguments as numbers."""
    calls = []

    def note(name: str, *arguments: Any) -> None:
        calls.append((name, [_numbers(argument) for argument in arguments]))

    monkeypatch.setattr(libcuda, "call_driver", note)
    item = TensorMap("a", ARRAY, "float32", (6, 8, 64), box, conversion="tf32")
    assert len(tensor_maps.encode(item, 4096)) == 128
    return calls[0]


def _numbers(argument: Any) -> Any:
    return list(argument) if isinstance(argument, ctypes.Array) else argument.value


def test_a_tile_is_encoded_fastest_dimension_first(monkeypatch: pytest.MonkeyPatch) -> None:
    box = TensorBox((2, 4, 32), (1, 2, 1), swizzle_bytes=128, promotion_bytes=256, fill="nan")
    name, (place, *others) = asked(monkeypatch, box)
    assert name == "cuTensorMapEncodeTiled"
    assert place % 128 == 0
    dims, strides = [64, 8, 6], [256, 2048]
    assert others == [11, 3, 4096, dims, strides, [32, 4, 2], [1, 2, 1], 0, 3, 3, 1]


def test_im2col_has_its_corners_and_then_channels_and_pixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, (_, *others) = asked(monkeypatch, TensorBox((16, 32), corners=((-1,), (1,))))
    assert name == "cuTensorMapEncodeIm2col"
    assert others[5:] == [[-1], [1], 32, 16, [1, 1, 1], 0, 0, 0, 0]


def test_a_map_that_the_driver_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *arguments: object) -> None:
        raise DeviceError("CUDA_ERROR_INVALID_VALUE")

    monkeypatch.setattr(libcuda, "call_driver", refuse)
    item = TensorMap("a", ARRAY, "float32", (6, 8, 64), TensorBox((1, 1, 4)))
    with pytest.raises(
        DeviceError, match=r"no tensor map for a, .*EncodeTiled gives CUDA"
    ) as caught:
        tensor_maps.encode(item, 4096)
    assert "\n" not in str(caught.value)


def test_interleaved_maps_are_encoded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (_, *others) = asked(monkeypatch, TensorBox((1, 1, 8), (), 32, 32))
    rows = [64 * 32, 8 * 64 * 32]
    assert others[2:] == [4096, [64, 8, 6], rows, [8, 1, 1], [1, 1, 1], 2, 1, 0, 0]
