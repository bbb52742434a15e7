"""Tensor maps on the emulated device: the record that its tensor copies read."""

from __future__ import annotations

from math import prod

from memlab.device.emulator.isa.asynchronous.tensor_copies import MapFields
from memlab.kernels.launch import TensorMap
from memlab.kernels.tensor_maps import DTYPES

_WORD_BYTES = 8
_PIECE_BYTES = 16


def encode(item: TensorMap, address: int) -> bytes:
    """The bytes of a tensor map whose tensor begins at an address."""
    box = item.box
    spans = box.extents[::-1]
    steps = box.steps[::-1] or (1,) * len(item.shape)
    copied = spans
    if box.corners is None:
        copied = tuple(-(-span // step) for span, step in zip(spans, steps, strict=True))
    row_bytes = copied[0] * item.element_bytes
    fields = MapFields(
        address=address,
        strides=(item.element_bytes, *item.pitches_bytes[::-1]),
        extents=item.shape[::-1],
        spans=spans,
        steps=steps,
        box_bytes=prod(copied) * item.element_bytes,
        shared_bytes=prod(copied[1:]) * max(row_bytes, box.swizzle_bytes),
        swizzle_pieces=max(box.swizzle_bytes // _PIECE_BYTES, 1),
        interleave=box.interleave_bytes // _PIECE_BYTES,
        fills_nan=box.fill == "nan",
        rounds="tf32" in item.conversion,
        type=DTYPES[item.dtype],
        corners=box.corners and (box.corners[0][::-1], box.corners[1][::-1]),
    )
    return b"".join(word.to_bytes(_WORD_BYTES, "little") for word in fields.words())
