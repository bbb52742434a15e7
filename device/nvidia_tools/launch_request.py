"""The request of a launch in a separate process, which a profiler or a sanitizer observes."""

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
    """The request of a launch.

    Attributes:
        launch: The launch.
        index: The GPU's number, from 0, as CUDA counts.
        seed: Seed of the random inputs.
        poison: Whether outputs are poisoned; a sanitizer would regard them as written.
    """

    launch: Launch
    index: int
    seed: int
    poison: bool = True


@contextmanager
def launch_command(
    launch: Launch, index: int, seed: int, *, poison: bool = True
) -> Iterator[tuple[str, ...]]:
    """Yield the command that runs a launch once; it is valid while the context lasts.

    The arguments are the fields of `LaunchRequest`.
    """
    # Nothing is verified, and some references cannot be pickled.
    request = LaunchRequest(replace(launch, references={}), index, seed, poison)
    with TemporaryDirectory(prefix="memlab-") as folder:  # no other user may write to it
        file = Path(folder, "request")
        file.write_bytes(pickle.dumps(request))
        yield (sys.executable, "-P", "-m", "memlab.device.nvidia_tools.launch_once", str(file))


def completion_file(file: str | Path) -> Path:
    """The file that exists if the launch that a request file describes succeeded."""
    return Path(f"{file}.done")


def run_tool(words: Sequence[str], timeout_s: float) -> str:
    """Run a tool; at the time limit, kill it and all its processes.

    Args:
        words: The tool's command line.
        timeout_s: The time limit, seconds.

    Returns:
        Its output: stderr, then stdout.

    Raises:
        subprocess.TimeoutExpired: The tool did not end in time.
        OSError: The tool does not start.
    """
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},  # numbers without separators
        start_new_session=True,
    ) as process:
        try:
            output, messages = process.communicate(timeout=timeout_s)
        except BaseException:
            # On a timeout or an interrupt, the process that the tool started must release the GPU.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return f"{messages}\n{output}"
