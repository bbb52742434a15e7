"""Tensor maps on the emulated device: the record that its tensor copies read."""

from __future__ import annotations

from memlab.device.emulator.isa.asynchronous.tensor_copies import MapFields
from memlab.kernels.launch import TensorMap
from memlab.kernels.tensor_maps import DTYPES, PIECE_BYTES

_WORD_BYTES = 8


def encode(item: TensorMap, address: int) -> bytes:
    """The bytes of a tensor map whose tensor begins at an address."""
    box = item.box
    spans = box.extents[::-1]
    steps = box.steps[::-1] or (1,) * len(item.shape)
    row_bytes = item.copied[-1] * item.unit_bytes
    gap_bytes = 0 if box.interleave_bytes else box.swizzle_bytes
    fields = MapFields(
        address=address,
        strides=(item.unit_bytes, *item.pitches_bytes[::-1]),
        extents=item.shape[::-1],
        spans=spans,
        steps=steps,
        box_bytes=item.box_bytes,
        shared_bytes=item.box_bytes // row_bytes * max(row_bytes, gap_bytes),
        swizzle_pieces=max(box.swizzle_bytes // PIECE_BYTES, 1),
        interleave=box.interleave_bytes // PIECE_BYTES,
        fills_nan=box.fill == "nan",
        rounds="tf32" in item.conversion,
        type=DTYPES[item.dtype],
        corners=box.corners and (box.corners[0][::-1], box.corners[1][::-1]),
    )
    return b"".join(word.to_bytes(_WORD_BYTES, "little") for word in fields.words())
