"""Asking for one launch in a process of its own, which a profiler or a sanitizer watches."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from memlab.kernels.launch import Launch


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        launch: The launch.
        index: Which GPU, as CUDA counts them.
        seed: Of the random inputs.
    """

    launch: Launch
    index: int
    seed: int


@contextmanager
def target(launch: Launch, index: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Give the command that runs a launch once; it works while the context lasts."""
    # A reference may be any function, and nothing is verified.
    request = Request(replace(launch, references={}), index, seed)
    with TemporaryDirectory(prefix="memlab-") as folder:  # nobody else may write there
        file = Path(folder, "request")
        file.write_bytes(pickle.dumps(request))
        yield (sys.executable, "-P", "-m", "memlab.device.launch_once", str(file))
