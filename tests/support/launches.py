"""Launches of a test's kernel that is not in the catalog."""

from __future__ import annotations

from typing import Any

from memlab.kernels.launch import Buffer, Launch, Scalar


def launch_of(
    source: str, *arguments: Buffer | Scalar, blocks: int = 2, threads: int = 64, **more: Any
) -> Launch:
    """A launch of `k`, whose source begins in line 1 after the signature's line."""
    return Launch(
        kernel="k",
        parameters={},
        source=source,
        source_name="k.cu",
        entry="k",
        defines={},
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        dynamic_shared_bytes=more.pop("shared", 0),
        arguments=arguments,
        flop=None,
        compulsory_bytes=0,
        references=more.pop("references", {}),
        tolerance=1e-6,
        **more,
    )
