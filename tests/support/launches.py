"""Launches of tests' kernels that are not in the catalog."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from memlab.kernels.launch import Buffer, Launch, Scalar
from memlab.kernels.user.kernel import UserKernel, apply_launch_options
from memlab.launching import prepare


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
        defines=more.pop("defines", {}),
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


def user_kernel(target: str, words: Sequence[str], defines: Sequence[str] = ()) -> UserKernel:
    """A user kernel, `FILE.cu:ENTRY`, with options in words of the command line."""
    parser = argparse.ArgumentParser()
    for single in ("--grid", "--block", "--shared", "--reference"):
        parser.add_argument(single)
    parser.add_argument("--arg", action="append", dest="args")
    options = vars(parser.parse_args(list(words)))
    file, colon, entry = target.partition(":")
    kernel = UserKernel(file, entry) if colon else UserKernel(file)
    return apply_launch_options(kernel, options | {"defines": list(defines)})


def user_launch(target: str, words: Sequence[str], defines: Sequence[str] = ()) -> Launch:
    """Its launch on an emulated H200."""
    return prepare(user_kernel(target, words, defines), {}, device="h200").launch
