"""PyTorch's `scaled_dot_product_attention` on the arrays of a launch of attention.

It works in the primary context of the GPU, as `GpuSession` does, and on the default stream.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memlab.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memlab.kernels.launch import Buffer, Launch

BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION")
"""Those of `torch.nn.attention.SDPBackend` that are fastest on Hopper."""


@dataclass(frozen=True)
class OnGpu:
    """An array of 16-bit words on the GPU, as other packages take it.

    Attributes:
        address: Where it begins.
        shape: Its extents.
    """

    address: int
    shape: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """See Numba's documentation, "CUDA Array Interface", version 3."""
        return {"shape": self.shape, "typestr": "<i2", "data": (self.address, False), "version": 3}


@contextmanager
def pytorch_attention(
    launch: Launch, addresses: Mapping[str, int]
) -> Iterator[Mapping[str, Callable[[], None]]]:
    """PyTorch's attention on the Q, K and V of a launch in BF16, by backend.

    Args:
        launch: A launch with `Q`, `K` and `V`, of shape (heads, tokens, head size), and the
            parameter `causal`.
        addresses: Their addresses in the GPU's memory.

    Raises:
        DeviceError: PyTorch is not installed, or none of its backends takes these sizes.
    """
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError as error:
        raise DeviceError(
            f"PyTorch is not available ({error}): install a build for this GPU, pytorch.org"
        ) from error
    buffers = {buffer.name: buffer for buffer in launch.buffers}
    q, k, v = (_tensor(torch, buffers[name], addresses[name]) for name in "QKV")
    causal = launch.parameters["causal"] == "yes"

    def attend(backend: Any) -> None:
        with sdpa_kernel(backend):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    found = {}
    for name in BACKENDS:
        once = partial(attend, getattr(SDPBackend, name))
        try:
            once()
        except RuntimeError:  # this backend does not take these sizes
            continue
        found[name] = once
    if not found:
        raise DeviceError("no fast backend of PyTorch's attention takes these sizes: use others")
    yield found


def _tensor(torch: Any, buffer: Buffer, address: int) -> Any:
    """A tensor of shape (1, heads, tokens, head size) that shares the array's memory."""
    words = torch.as_tensor(OnGpu(address, (1, *buffer.shape)), device="cuda")
    return words.view(torch.bfloat16)
