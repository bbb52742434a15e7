"""What the emulator does not run: for what people meet of it, the next step."""

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
_ADVICE = (
    (
        r"cp\.async\.bulk\.(?!tensor)",
        "if cuda::memcpy_async became it, add --device a100: there it becomes cp.async",
    ),
    (r"cp\.async\.bulk\.tensor|tensormap|cp\.reduce", "the tensor memory accelerator needs a GPU"),
    (r"mma|wmma|wgmma|tcgen05", _TENSOR_CORES),
    (r"barrier\.cluster|mapa|clusterlaunchcontrol|multimem|getctarank", _CLUSTERS),
    (r"%cluster|%nclusterid|%is_explicit_cluster", _CLUSTERS),
    (r"tex|tld4|txq|suld|sust|sured|suq|istypep", "textures need a GPU: read plain arrays"),
    (r"%envreg", _GRID_BARRIER),
    (r"%pm\d|%current_graph_exec", "what it holds is known to a GPU's driver alone"),
    (r"alloca|stacksave|stackrestore", "give the array in local memory a fixed size"),
)
"""The beginning of an opcode or of a special register, as a regular expression, and the advice."""


def unsupported_hint(name: str) -> str:
    """What to do about an opcode or a special register that the emulator does not have.

    Returns:
        The advice behind a colon, for the end of a message; nothing where there is none.
    """
    found = (text for pattern, text in _ADVICE if re.match(pattern, name))
    return next((f": {text}" for text in found), "")
