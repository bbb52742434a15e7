"""Textures and surfaces as arguments: `texture=f32[512,512]:linear:wrap:normalized`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import ADDRESS_MODES, AddressMode, View

ViewKind = Literal["texture", "surface"]
VIEW_KINDS: tuple[ViewKind, ...] = ("texture", "surface")
"""The words for arguments that are texture and surface objects."""

ELEMENT_DTYPES = ("f32", "f16", "i8", "u8", "i16", "u16", "i32", "u32")
"""The types of numbers that textures and surfaces have (`cudaChannelFormatDesc`)."""

CHANNELS = 1, 2, 4
"""How many numbers an element has (`cudaChannelFormatDesc`)."""

MAX_EXTENTS = {1: 131_072, 2: 131_072, 3: 16_384}
"""The most elements along each dimension that any GPU takes, by the number of dimensions: CUDA C++
Programming Guide, "Technical Specifications per Compute Capability"."""
MAX_LINEAR_ELEMENTS = 2**27
"""As `MAX_EXTENTS`, of linear memory."""

FILTERS = ("point", "linear")
"""How a fetch reads: the nearest element, or an interpolation."""
_FLAGS = ("normalized", "normalized-float", "layered")
_OTHER_WORDS = {
    "nearest": "point",
    "bilinear": "linear",
    "trilinear": "linear",
    "repeat": "wrap",
    "mirrored": "mirror",
    "zero": "border",
}
"""Words that other programming interfaces have for the options of a texture."""
_EXAMPLES = {
    "texture": "texture=f32[512,512]:linear:wrap:normalized",
    "surface": "surface=out:f32[512,512]",
}
_PATTERN = re.compile(
    r"\s*(?:(?P<role>\w+):)?(?P<number>[a-z]+\d+?)(?:x(?P<channels>\d+))?\s*"
    r"\[(?P<shape>[^\[\]]*)\](?P<options>(?:\s*:[^:=]*)*)(?:=(?P<fill>.*))?",
    re.DOTALL,
)


class ViewText(NamedTuple):
    """The parts of a texture or surface as it is written.

    Attributes:
        role: `in`, `out` or `inout`; empty if it is not written.
        dtype: The type of a number.
        channels: Numbers of an element.
        shape: The text in brackets.
        options: The words behind it.
        fill: The text behind the last `=`; None if there is none.
    """

    role: str
    dtype: str
    channels: int
    shape: str
    options: tuple[str, ...]
    fill: str | None


def example(kind: str) -> str:
    """An example of a texture or surface, for messages."""
    return _EXAMPLES[kind]


def view_kind(spelling: str) -> ViewKind | None:
    """What a parameter or member of a type is, if it is a texture or surface object."""
    words = {f"cuda{kind.capitalize()}Object_t": kind for kind in VIEW_KINDS}
    return next((kind for word, kind in words.items() if word in spelling), None)


def split_view(text: str, kind: ViewKind, value: str | None) -> ViewText:
    """Split a texture or surface; `value` is the text behind `texture=`.

    Raises:
        UsageError: It is malformed.
    """
    match = _PATTERN.fullmatch(value or "")
    if match is None:
        raise UsageError(f"{text!r} is no {kind}: write {_EXAMPLES[kind]}")
    role, number, channels, shape, options, fill = match.group(
        "role", "number", "channels", "shape", "options", "fill"
    )
    words = tuple(word.strip() for word in options.split(":")[1:])
    return ViewText(role or "", number, int(channels or 1), shape, words, fill)


def make_view(
    text: str, kind: ViewKind, dtype: str, channels: int, options: Sequence[str], extents: int
) -> View:
    """Make a view of an array by its options.

    Args:
        text: The argument, for messages.
        kind: What it is.
        dtype: The type of a number.
        channels: Numbers of an element.
        options: Words such as `linear`, `wrap` or, for each dimension, `wrap,clamp`.
        extents: How many extents the array has, channels not among them.

    Raises:
        UsageError: There is no such view of such an array.
    """
    if dtype not in ELEMENT_DTYPES:
        raise UsageError(
            f"{text!r} has elements of {dtype}, which no {kind} has: use one of "
            f"{', '.join(ELEMENT_DTYPES)}"
        )
    if channels not in CHANNELS:
        raise UsageError(
            f"{text!r} has {channels} channels: use 1, 2 or 4, as in {dtype}, {dtype}x2, {dtype}x4"
        )
    words = list(options)
    layered = "layered" in words
    dimensions = extents - layered
    if not 1 <= dimensions <= 3 - layered:
        raise UsageError(
            f"{text!r} has the shape of no {kind}: write [W], [H,W] or [D,H,W], with :layered "
            "[L,W] or [L,H,W]; channels are part of the type, as in f32x4"
        )
    if kind == "surface" and (wrong := [word for word in words if word != "layered"]):
        raise UsageError(
            f"{text!r} has the option {wrong[0]!r}, and surfaces have only layered: the kernel "
            "chooses what lies outside, as by cudaBoundaryModeZero"
        )
    return View(
        kind,
        dimensions,
        layered,
        channels,
        linear="linear" in words,
        address_modes=_address_modes(text, words, dimensions),
        normalized="normalized" in words,
        normalized_float="normalized-float" in words,
        linear_memory=kind == "texture" and extents == 1 and not {*words} - {"normalized-float"},
    )


def check_view(text: str, view: View, dtype: str, shape: Sequence[int]) -> None:
    """Refuse what `cudaCreateTextureObject` refuses.

    Raises:
        UsageError: Names the option that does not suit the others.
    """
    if view.normalized_float and dtype not in ("i8", "u8", "i16", "u16"):
        raise UsageError(
            f"{text!r}: {dtype} is not read as a normalized float: leave out :normalized-float, or "
            "use i8, u8, i16 or u16"
        )
    if view.linear and dtype[0] != "f" and not view.normalized_float:
        raise UsageError(
            f"{text!r}: integers are not interpolated: add :normalized-float, or leave out :linear"
        )
    folded = {"wrap", "mirror"}.intersection(view.address_modes[: view.dimensions])
    if folded and not view.normalized:
        raise UsageError(
            f"{text!r}: {min(folded)} needs normalized coordinates: add :normalized, or use clamp"
        )
    extents = view.extents(tuple(shape))
    most = MAX_LINEAR_ELEMENTS if view.linear_memory else MAX_EXTENTS[view.dimensions]
    if max(extents) > most:
        raise UsageError(
            f"{text!r} has {max(extents)} elements along a dimension: at most {most} where "
            f"there are {view.dimensions}"
        )


def _address_modes(
    text: str, words: Sequence[str], dimensions: int
) -> tuple[AddressMode, AddressMode, AddressMode]:
    """The address modes for x, y and z; one that is written alone is that of all."""
    known = [*FILTERS, *ADDRESS_MODES, *_FLAGS]
    modes: list[str] = []
    for word in words:
        parts = [part.strip() for part in word.split(",")]
        if word in (*FILTERS, *_FLAGS):
            continue
        for part in parts:
            if part not in ADDRESS_MODES:
                ours = _OTHER_WORDS.get(part.lower())
                advice = f"write {ours}" if ours else suggest_nearest(part, known)
                raise UsageError(f"{text!r} has the unknown option {part!r}: {advice}")
        if modes or len(parts) not in (1, dimensions):
            raise UsageError(
                f"{text!r} needs one address mode for all dimensions, or {dimensions} separated by "
                f"commas, got {word!r}: write :clamp, or :{','.join(['clamp'] * dimensions)}"
            )
        modes = parts * (dimensions if len(parts) == 1 else 1)
    modes = (modes or ["clamp"] * dimensions) + ["clamp"] * (3 - dimensions)
    x, y, z = (cast(AddressMode, mode) for mode in modes)
    return x, y, z
