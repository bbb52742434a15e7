"""Run one launch once on a GPU, and nothing else: what a profiler or a sanitizer watches.

`python -m memlab.device.launch_once FILE` takes a request (`memlab.device.launch_request`) and
prints nothing; `launch_request.done` says that the launch ended well. A profiler replays the launch
many times, so nothing is timed or verified here: `memlab run` does both with no tool around it.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from memlab.device import cuda_query
from memlab.device.compile import compile_launch
from memlab.device.cuda_device import prepare
from memlab.device.cuda_driver import explained
from memlab.device.cuda_session import Session
from memlab.device.launch_request import Request, done
from memlab.errors import MemlabError


def launch_once(request: Request) -> None:
    """Compile a launch, fill its inputs, start it and wait for it.

    Raises:
        MemlabError: The GPU cannot be used, or the kernel faulted.
    """
    launch, properties = request.launch, cuda_query.query(request.index)
    compiled = compile_launch(launch, properties.compute_capability)
    with Session(request.index) as session:
        ready = prepare(session, launch, compiled.cubin, request.seed, request.poison)
        with explained(launch.kernel):
            ready.once()
        session.synchronize(launch.kernel)
        del ready  # its arrays are freed while the session stands


def main() -> None:
    """Do what the request in the file says; an error is one line on stderr."""
    try:
        launch_once(pickle.loads(Path(sys.argv[1]).read_bytes()))
        done(sys.argv[1]).touch()
    except MemlabError as error:
        sys.exit(f"memlab: error: {error}")


if __name__ == "__main__":
    try:
        main()
    except SystemExit as ended:
        # After a fault PyCUDA cannot clear away: it would say so at length, and abort.
        print(ended, file=sys.stderr, flush=True)
        os._exit(MemlabError.exit_code)
