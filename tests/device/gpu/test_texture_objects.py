"""Texture and surface objects on a GPU: what is told where the driver makes none."""

from types import SimpleNamespace

import numpy as np
import pytest

from memlab.device.gpu import libcuda
from memlab.device.gpu.texture_objects import ObjectOnGpu
from memlab.errors import DeviceError
from memlab.kernels.launch import Buffer, View


def test_an_object_that_the_driver_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *arguments: object) -> None:
        raise DeviceError("CUDA_ERROR_INVALID_VALUE")

    monkeypatch.setattr(libcuda, "call_driver", refuse)
    buffer = Buffer("image", (64,), "float32", "in", view=View("texture", 1, linear_memory=True))
    session = SimpleNamespace(array=lambda content: 0)
    with pytest.raises(DeviceError) as caught:
        ObjectOnGpu(session, buffer, np.ones(64, np.float32))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "the driver makes no texture for image, float32 of the shape (64): cuTexObjectCreate gives "
        "CUDA_ERROR_INVALID_VALUE; compare its extents with those of 'memlab devicequery', or go "
        "on without a GPU with --device h200"
    )
