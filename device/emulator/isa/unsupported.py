"""Advice for opcodes and special registers that the emulator does not support."""

from __future__ import annotations

import re

_CLUSTERS = "thread block clusters need a GPU: launch plain blocks"
_GRID_BARRIER = (
    "a barrier across the grid, this_grid().sync(), is not emulated: split the kernel into two "
    "launches where it waits"
)
_TENSOR_CORES = (
    "of the tensor cores' products it knows dense ones of f16, bf16, tf32, f64 and 8-bit integers "
    "by mma and wmma; others need a GPU"
)
_OLDER_TRITON = "Triton does without it on --device a100, or for arch='sm80'"
_ADVICE = (
    (
        r"cp\.async\.bulk\.(?!tensor)",
        "if cuda::memcpy_async became it, add --device a100: there it becomes cp.async",
    ),
    (
        r"cp\.async\.bulk\.tensor|tensormap|cp\.reduce",
        f"the tensor memory accelerator needs a GPU; {_OLDER_TRITON}",
    ),
    (r"wgmma|tcgen05", f"products of several warps need a GPU; {_OLDER_TRITON}"),
    (r"mma|wmma", _TENSOR_CORES),
    (r"barrier\.cluster|mapa|clusterlaunchcontrol|multimem|getctarank", _CLUSTERS),
    (r"%cluster|%nclusterid|%is_explicit_cluster", _CLUSTERS),
    (r"tex|tld4|txq|suld|sust|sured|suq|istypep", "textures need a GPU: read plain arrays"),
    (r"%envreg", _GRID_BARRIER),
    (r"%pm\d|%current_graph_exec", "only the driver of a GPU knows its value"),
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
