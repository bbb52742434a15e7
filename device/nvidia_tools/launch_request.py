"""Asking for one launch in a process of its own, which a profiler or a sanitizer watches."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from memlab.kernels.launch import Launch


@dataclass(frozen=True)
class LaunchRequest:
    """What to run.

    Attributes:
        launch: The launch.
        index: Which GPU, as CUDA counts them.
        seed: Of the random inputs.
        poison: Whether outputs are poisoned first; a sanitizer takes that for writing them.
    """

    launch: Launch
    index: int
    seed: int
    poison: bool = True


@contextmanager
def launch_command(
    launch: Launch, index: int, seed: int, *, poison: bool = True
) -> Iterator[tuple[str, ...]]:
    """Give the command that runs a launch once; it works while the context lasts."""
    # A reference may be any function, and nothing is verified.
    request = LaunchRequest(replace(launch, references={}), index, seed, poison)
    with TemporaryDirectory(prefix="memlab-") as folder:  # nobody else may write there
        file = Path(folder, "request")
        file.write_bytes(pickle.dumps(request))
        yield (sys.executable, "-P", "-m", "memlab.device.nvidia_tools.launch_once", str(file))


def completion_file(file: str | Path) -> Path:
    """Name the file that says that the launch asked for in a file ended well."""
    return Path(f"{file}.done")


def run_tool(words: Sequence[str], timeout_s: float) -> str:
    """Run a tool around the command of `target`; out of time, end all that it started.

    Args:
        words: The tool's command line.
        timeout_s: When to give up, seconds.

    Returns:
        All that was printed, messages first.

    Raises:
        TimeoutExpired: Of `subprocess`.
        OSError: The tool does not start.
    """
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},  # no separators in the figures
        start_new_session=True,
    ) as process:
        try:
            output, messages = process.communicate(timeout=timeout_s)
        except BaseException:
            # Out of time or interrupted: the process that the tool started must leave the GPU too.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return f"{messages}\n{output}"
