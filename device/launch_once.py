"""Launch one kernel of the catalog once on a GPU, and nothing else: what a profiler watches.

`python -m memlab.device.launch_once '{"kernel": "tiled", "parameters": {"width": 64, "tile": 16},
"index": 0, "seed": 0}'` prints nothing. A profiler replays the launch many times, so nothing is
timed or verified here: `memlab run` does both with no profiler around it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from memlab.device import cuda_query
from memlab.device.compile import compile_launch
from memlab.device.cuda_device import prepare
from memlab.device.cuda_driver import explained
from memlab.device.cuda_session import Session
from memlab.device.devices import limits
from memlab.errors import MemlabError
from memlab.kernels.catalog import find


def launch_once(kernel: str, parameters: Mapping[str, int | str], index: int, seed: int) -> None:
    """Compile a kernel, fill its inputs, launch it and wait for it.

    Args:
        kernel: A name of the catalog.
        parameters: Its parameters.
        index: Which GPU, as CUDA counts them.
        seed: Of the random inputs.

    Raises:
        MemlabError: The GPU cannot be used, or the kernel faulted.
    """
    properties = cuda_query.query(index)
    launch = find(kernel).prepare(parameters, limits(properties))
    compiled = compile_launch(launch, properties.compute_capability)
    with Session(index) as session:
        ready = prepare(session, launch, compiled.cubin, seed)
        with explained(kernel):
            ready.once()
        session.synchronize(kernel)
        del ready  # its arrays are freed while the session stands


def main() -> None:
    """Do what the one argument says, as JSON; an error is one line on stderr."""
    try:
        launch_once(**json.loads(sys.argv[1]))
    except MemlabError as error:
        sys.exit(f"memlab: error: {error}")


if __name__ == "__main__":
    main()
