"""Advice for opcodes and special registers that the emulator does not support."""

from __future__ import annotations

import re

_TENSOR_CORES = (
    "of the tensor cores' products it knows mma and wmma of the types and sparsities of sm_90, and "
    "dense wgmma; others need a GPU"
)
_OLDER_TRITON = "Triton does without it on --device a100, or for arch='sm80'"
_TEXTURES = (
    "of textures it knows objects, cudaTextureObject_t, of 1 to 3 dimensions and layers, fetched "
    "by floating-point coordinates or by tex1Dfetch"
)
_ADVICE = (
    (
        r"cp\.(reduce\.)?async\.bulk\.(?!tensor)",
        "of bulk copies it knows those without a mask of bytes; others need a GPU",
    ),
    (
        r"cp\.(reduce\.)?async\.bulk\.tensor|tensormap",
        "of tensor copies it knows Hopper's, tiles and im2col; others, and maps that a kernel "
        f"changes, need a GPU; {_OLDER_TRITON}",
    ),
    (r"tcgen05", f"products in tensor memory need a GPU; {_OLDER_TRITON}"),
    (
        r"mma\.sync(\.aligned)?\.m8n8k4\..*f16",
        "FP16 products of this shape are made for sm_70 and slow on later GPUs: use m16n8k8 or "
        "m16n8k16",
    ),
    (r"mma|wmma|wgmma", _TENSOR_CORES),
    (r"clusterlaunchcontrol", "canceling clusters needs a GPU: give each block its own work"),
    (r"multimem", "memory of several GPUs at once needs them"),
    (
        r"sured|sust\.p",
        "reductions and formatted stores of surfaces need a GPU: write by surf2Dwrite",
    ),
    (
        r"tex\.(base|level|grad)|txq\.num|tex\.a?cube|tld4\.a?cube|tex\.a?2dms",
        "textures with mipmap levels, cube maps and textures with samples need a GPU: fetch one "
        "level by tex2D",
    ),
    (r"tex|tld4|txq|suld|sust|suq|istypep", _TEXTURES),
    (r"%envreg|%pm\d|%current_graph_exec", "only the driver of a GPU knows its value"),
    (r"alloca|stacksave|stackrestore", "give the array in local memory a fixed size"),
)
"""Regular expressions for the beginning of an opcode or special register, with the advice."""


def unsupported_hint(name: str) -> str:
    """The advice for an opcode or special register that the emulator does not support.

    Returns:
        A colon and the advice, for the end of a message; empty where there is none.
    """
    advice = (text for pattern, text in _ADVICE if re.match(pattern, name))
    return next((f": {text}" for text in advice), "")
