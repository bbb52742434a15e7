"""Copies of boxes by the kernels of `boxes.cu`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import memlab
from tests.support.boxes import SHARED_BYTES, SOURCE, Box, Im2colBox

WORDS = SHARED_BYTES // 4


def element_type(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def run(
    kernel: str,
    box: Box | Im2colBox,
    *arguments: Any,
    defines: tuple[str, ...] = (),
    device: str = "h200",
) -> memlab.Run:
    """Execute a kernel of `boxes.cu` on the emulated device, or on another one."""
    return memlab.run(
        f"{SOURCE}:{kernel}",
        grid=1,
        block=32,
        args=[*arguments, WORDS],
        defines=[f"RANK={len(box.shape)}", *defines],
        shared=SHARED_BYTES,
        device=device,
    )


def load(
    box: Box, tensor: NDArray[np.uint8], initial: NDArray[np.uint32], device: str = "h200"
) -> NDArray[np.uint8]:
    """Shared memory after a load."""
    item = memlab.tensor_map(tensor.view(element_type(box.dtype)), **box.arguments())
    out_words = memlab.out(WORDS + 1, "u32")
    result = run("load", box, item, box.numbers(), initial, out_words, device=device)
    out = np.asarray(result.outputs["out"])
    assert out[WORDS] == 1  # all bytes of the box are complete, also of what lies outside
    return out[:WORDS].view(np.uint8)


def store(
    box: Box | Im2colBox,
    tensor: NDArray[np.uint8],
    initial: NDArray[np.uint32],
    operation: str = "",
    device: str = "h200",
) -> NDArray[np.uint8]:
    """The tensor after a store, or a reduction."""
    values = tensor.view(element_type(box.dtype))
    item = memlab.tensor_map(values, role="inout", **box.arguments())
    defines = (f'REDUCE="{operation}"',) if operation else ()
    if isinstance(box, Im2colBox):
        defines = (*defines, 'STORE_MODE="im2col_no_offs"')
    result = run("store", box, item, box.numbers(), initial, defines=defines, device=device)
    return np.asarray(result.outputs["map"]).view(np.uint8)


def load_pixels(
    box: Im2colBox,
    tensor: NDArray[np.uint8],
    initial: NDArray[np.uint32],
    device: str = "h200",
) -> NDArray[np.uint8]:
    """Shared memory after a load in the mode im2col."""
    item = memlab.tensor_map(tensor.view(element_type(box.dtype)), **box.arguments())
    offsets = ", ".join(f"%{8 + number}" for number in range(len(box.shape) - 2))
    result = run(
        "load",
        box,
        item,
        box.numbers(),
        initial,
        memlab.out(WORDS + 1, "u32"),
        defines=('MODE="im2col"', f'OFFSETS=", {{{offsets}}}"'),
        device=device,
    )
    out = np.asarray(result.outputs["out"])
    assert out[WORDS] == 1
    return out[:WORDS].view(np.uint8)
