"""Run one launch once on a GPU, and nothing else: what a profiler or a sanitizer watches.

`python -m memlab.device.launch_once FILE` takes what `target` wrote and prints nothing. A
profiler replays the launch many times, so nothing is timed or verified here: `memlab run` does
both with no tool around it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from memlab.device import cuda_query
from memlab.device.compile import compile_launch
from memlab.device.cuda_device import prepare
from memlab.device.cuda_driver import explained
from memlab.device.cuda_session import Session
from memlab.errors import MemlabError
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


def launch_once(request: Request) -> None:
    """Compile a launch, fill its inputs, start it and wait for it.

    Raises:
        MemlabError: The GPU cannot be used, or the kernel faulted.
    """
    launch, properties = request.launch, cuda_query.query(request.index)
    compiled = compile_launch(launch, properties.compute_capability)
    with Session(request.index) as session:
        ready = prepare(session, launch, compiled.cubin, request.seed)
        with explained(launch.kernel):
            ready.once()
        session.synchronize(launch.kernel)
        del ready  # its arrays are freed while the session stands


def main() -> None:
    """Do what the request in the file says; an error is one line on stderr."""
    try:
        launch_once(pickle.loads(Path(sys.argv[1]).read_bytes()))
    except MemlabError as error:
        sys.exit(f"memlab: error: {error}")


if __name__ == "__main__":
    main()
