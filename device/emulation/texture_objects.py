"""The records of texture and surface objects: what the emulator's instructions read of a launch."""

from __future__ import annotations

from memlab.device.emulator.isa.textures import ObjectFields
from memlab.device.texture_arrays import pitches
from memlab.kernels.launch import ADDRESS_MODES, Buffer

_WORD_BYTES = 8
_UNSIGNED, _SIGNED, _FLOAT = range(3)


def object_bytes(buffer: Buffer, address: int) -> bytes:
    """The record of the object that shows an array at an address."""
    view = buffer.view
    assert view is not None
    slices, height, width = view.extents(buffer.shape)
    row_bytes, slice_bytes = pitches(buffer)
    kind = {"f": _FLOAT, "u": _UNSIGNED, "i": _SIGNED}[buffer.dtype[0]]
    fields = ObjectFields(
        address=address,
        slices=slices,
        height=height,
        width=width,
        row_bytes=row_bytes,
        slice_bytes=slice_bytes,
        number_bytes=buffer.element_bytes,
        kind=kind,
        channels=view.channels,
        dimensions=view.dimensions,
        address_modes=[ADDRESS_MODES.index(mode) for mode in view.address_modes],
        is_surface=view.kind == "surface",
        layered=view.layered,
        linear=view.linear,
        normalized=view.normalized,
        normalized_float=view.normalized_float,
        linear_memory=view.linear_memory,
    )
    return b"".join(word.to_bytes(_WORD_BYTES, "little") for word in fields.words())
