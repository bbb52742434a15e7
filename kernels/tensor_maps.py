"""The rules of tensor maps: what the driver's functions that encode them refuse.

The limits are those of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` in the CUDA driver
API, "Tensor Map Object Management".
"""

from __future__ import annotations

from math import ceil, prod

from memlab.errors import UsageError
from memlab.kernels.launch import TensorMap
from memlab.text import plural

DTYPES = {
    "uint8": 0,
    "int8": 0,
    "bool": 0,
    "uint16": 1,
    "int16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
"""CUtensorMapDataType by NumPy's name of an element type; signs do not matter to a copy."""
CONVERSIONS = {"ftz": 10, "tf32": 11, "tf32-ftz": 12}
"""CUtensorMapDataType of float32 elements by `TensorMap.conversion`."""

SWIZZLES = (0, 32, 64, 128)
INTERLEAVES = (0, 16, 32)
PROMOTIONS = (0, 64, 128, 256)
"""The bytes of a `TensorBox`, each at the position that is the number in CUDA."""

MAX_RANK = 5
MAX_EXTENT = 2**31
MAX_STRIDE_BYTES = 2**40 - 16
MAX_BOX_EXTENT = 256
MAX_STEP = 8
MAX_PIXELS = 1024
PIECE_BYTES = 16
"""What the copy engine moves at once: addresses and sizes of bulk copies are multiples of it, as
are the strides of tensors and the rows of boxes (PTX ISA, "cp.async.bulk", "Swizzling Modes")."""
MAX_BOX_BYTES = 227 << 10
"""Of a box: the most shared memory of a block (CUDA C++ Programming Guide, compute capability 9.0).
The driver takes 128 KiB and refuses 256 KiB."""
CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""The bits of a signed offset of a corner, by the rank of the tensor."""


def check_tensor_map(item: TensorMap, array_bytes: int, start_bytes: int, label: str) -> None:
    """Refuse a tensor map that the driver refuses, or whose tensor does not fit its array.

    Args:
        item: The tensor map.
        array_bytes: The size of its array.
        start_bytes: Where the tensor begins in the array.
        label: Begins the messages.

    Raises:
        UsageError: Names the limit and the value.
    """
    _check_tensor(item, label)
    _check_place(item, array_bytes, start_bytes, label)
    box = item.box
    for what, value, allowed in (
        ("swizzle", box.swizzle_bytes, SWIZZLES),
        ("interleave", box.interleave_bytes, INTERLEAVES),
        ("promote", box.promotion_bytes, PROMOTIONS),
    ):
        if value not in allowed:
            listed = ", ".join(map(str, allowed[1:]))
            raise UsageError(f"{label}: {what}{value}: use {listed} bytes, or leave it out")
    if item.conversion and item.dtype != "float32":
        raise UsageError(
            f"{label}: {item.conversion} converts float32, and the elements are {item.dtype}: "
            "leave it out"
        )
    if box.fill == "nan" and "float" not in item.dtype:
        raise UsageError(f"{label}: {item.dtype} has no NaN: leave out nan")
    _check_steps(item, label)
    if box.corners is None:
        _check_tile(item, label)
    else:
        _check_im2col(item, box.corners, label)
    _check_rows(item, label)


def _check_tensor(item: TensorMap, label: str) -> None:
    rank = len(item.shape)
    if item.dtype not in DTYPES:
        listed = ", ".join(DTYPES)
        raise UsageError(f"{label}: tensors of {item.dtype} have no map: use one of {listed}")
    if rank > MAX_RANK:
        raise UsageError(f"{label}: {rank} dimensions, and a map has at most {MAX_RANK}: join some")
    if rank < 3 and (item.box.interleave_bytes or item.box.corners):
        what = "interleave" if item.box.interleave_bytes else "im2col"
        raise UsageError(
            f"{label}: {what} needs a tensor of 3 dimensions at least, got {rank}: leave it out, "
            "or write all dimensions"
        )
    if max(item.shape) > MAX_EXTENT:
        raise UsageError(
            f"{label}: the tensor has an extent of {max(item.shape)}, and a map takes at most "
            f"{MAX_EXTENT}: split it over several dimensions"
        )
    if item.strides_bytes and len(item.strides_bytes) != rank - 1:
        raise UsageError(
            f"{label}: a tensor of {rank} dimensions has {rank - 1} strides, got "
            f"{len(item.strides_bytes)}: give the bytes between elements of each dimension but the "
            "last"
        )
    unit = 32 if item.box.interleave_bytes == 32 else PIECE_BYTES
    for stride in item.pitches_bytes:
        if stride % unit or not 0 <= stride <= MAX_STRIDE_BYTES:
            raise UsageError(
                f"{label}: the tensor has a stride of {stride} bytes, and strides are multiples of "
                f"{unit} below 2^40: pad its rows, and give strides[...]"
            )


def _check_place(item: TensorMap, array_bytes: int, start_bytes: int, label: str) -> None:
    unit = 32 if item.box.interleave_bytes == 32 else PIECE_BYTES
    if start_bytes % unit:
        raise UsageError(
            f"{label}: the tensor begins {start_bytes} bytes into its array, and it must begin at "
            f"a multiple of {unit}: use another element"
        )
    last = sum(
        (extent - 1) * stride
        for extent, stride in zip(item.shape, item.pitches_bytes, strict=False)
    )
    needed = start_bytes + last + item.shape[-1] * item.unit_bytes
    if needed > array_bytes:
        raise UsageError(
            f"{label}: the tensor needs {needed} bytes, and its array has {array_bytes}: use "
            "smaller extents or strides"
        )


def _check_steps(item: TensorMap, label: str) -> None:
    steps = item.box.steps
    if steps and (len(steps) != len(item.shape) or not all(1 <= s <= MAX_STEP for s in steps)):
        raise UsageError(
            f"{label}: step[{_listed(steps)}]: give {len(item.shape)} numbers from 1 to "
            f"{MAX_STEP}, one for each dimension"
        )
    if steps and steps[-1] != 1 and not item.box.interleave_bytes:
        raise UsageError(
            f"{label}: step[{_listed(steps)}]: without interleave a copy takes all elements of the "
            "last dimension: write 1 there"
        )


def _check_tile(item: TensorMap, label: str) -> None:
    box = item.box
    if len(box.extents) != len(item.shape):
        raise UsageError(
            f"{label}: box[{_listed(box.extents)}] has {len(box.extents)} "
            f"{plural(len(box.extents), 'dimension')}, and the "
            f"tensor has {len(item.shape)}: give an extent for each, 1 for one element"
        )
    if not all(1 <= extent <= MAX_BOX_EXTENT for extent in box.extents):
        raise UsageError(
            f"{label}: box[{_listed(box.extents)}]: extents are from 1 to {MAX_BOX_EXTENT}: use "
            "more copies of a smaller box"
        )


def _check_im2col(
    item: TensorMap, corners: tuple[tuple[int, ...], tuple[int, ...]], label: str
) -> None:
    box, count = item.box, len(item.shape) - 2
    if len(box.extents) != 2:
        raise UsageError(
            f"{label}: box[{_listed(box.extents)}]: with corners, give the pixels and the channels "
            "of a copy, box[64,32]"
        )
    pixels, channels = box.extents
    if not (1 <= pixels <= MAX_PIXELS and 1 <= channels <= MAX_BOX_EXTENT):
        raise UsageError(
            f"{label}: box[{_listed(box.extents)}]: a copy has 1 to {MAX_PIXELS} pixels and 1 to "
            f"{MAX_BOX_EXTENT} channels: use smaller copies"
        )
    half = 2 ** (CORNER_BITS[len(item.shape)] - 1)
    for word, corner in zip(("lower", "upper"), corners, strict=True):
        if len(corner) != count or not all(-half <= each < half for each in corner):
            raise UsageError(
                f"{label}: {word}[{_listed(corner)}]: give {count} numbers from {-half} to "
                f"{half - 1}, for the dimensions between the images and the channels"
            )
    pixels_at = slice(2, None) if box.interleave_bytes else slice(1, -1)
    for extent, low, high in zip(item.shape[pixels_at], *corners, strict=True):
        if extent + high - low < 1:
            raise UsageError(
                f"{label}: between lower[{_listed(corners[0])}] and upper[{_listed(corners[1])}] "
                f"of an extent of {extent} lies no pixel: move them apart"
            )


def _check_rows(item: TensorMap, label: str) -> None:
    """Check the bytes of a row of the box, which lies in one piece in shared memory."""
    box = item.box
    row_bytes = box.extents[-1] * item.element_bytes
    steps = box.steps if box.corners is None else ()
    copied = (-(-extent // step) for extent, step in zip(box.extents, steps, strict=False))
    counted_bytes = prod(copied if steps else box.extents) * item.element_bytes
    box_bytes = max(item.box_bytes, counted_bytes)  # the driver counts elements in place of slices
    if box_bytes > MAX_BOX_BYTES:
        raise UsageError(
            f"{label}: box[{_listed(box.extents)}] has {box_bytes} bytes, and a block has at most "
            f"{MAX_BOX_BYTES} of shared memory: use a smaller box"
        )
    if row_bytes % PIECE_BYTES:
        raise UsageError(
            f"{label}: a row of box[{_listed(box.extents)}] has {row_bytes} bytes, and it must "
            f"have a multiple of {PIECE_BYTES}: use a multiple of "
            f"{ceil(PIECE_BYTES / item.element_bytes)} elements of {item.dtype}"
            + (", which count slices here" if box.interleave_bytes else "")
        )
    if box.interleave_bytes:
        return
    if box.swizzle_bytes and row_bytes > box.swizzle_bytes:
        raise UsageError(
            f"{label}: a row of box[{_listed(box.extents)}] has {row_bytes} bytes, and with "
            f"swizzle{box.swizzle_bytes} at most {box.swizzle_bytes}: use at most "
            f"{box.swizzle_bytes // item.element_bytes} elements of {item.dtype}"
        )


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
