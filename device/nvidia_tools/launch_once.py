"""Run one launch once on a GPU, in the process that a profiler or a sanitizer observes.

`python -m memlab.device.nvidia_tools.launch_once FILE` reads a request (see `launch_request`) and
prints nothing; the file `launch_request.completion_file` shows that the launch succeeded. A
profiler replays the launch many times, so it is neither timed nor verified: `memlab run` does both
without a tool.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from memlab.device.compiler.compile import compile_launch
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.device import prepare_on_gpu
from memlab.device.gpu.driver import translated_errors
from memlab.device.gpu.session import GpuSession
from memlab.device.nvidia_tools.launch_request import LaunchRequest, completion_file
from memlab.errors import MemlabError


def launch_once(request: LaunchRequest) -> None:
    """Compile a launch, fill its inputs, start it and wait until it has ended.

    Raises:
        MemlabError: The GPU cannot be used, or the kernel faulted.
    """
    launch, properties = request.launch, gpu_query.query_properties(request.index)
    compiled = compile_launch(launch, properties.compute_capability)
    with GpuSession(request.index) as session:
        ready = prepare_on_gpu(session, launch, compiled, request.seed, request.poison)
        with translated_errors(launch.kernel):
            ready.run_once()
        session.synchronize(launch.kernel)
        del ready  # its arrays must be freed before the session closes


def run_request() -> None:
    """Run the launch that the file requests; an error is one line on stderr."""
    try:
        launch_once(pickle.loads(Path(sys.argv[1]).read_bytes()))
        completion_file(sys.argv[1]).touch()
    except MemlabError as error:
        sys.exit(f"memlab: error: {error}")


if __name__ == "__main__":
    try:
        run_request()
    except SystemExit as error:
        # After a fault PyCUDA cannot clean up: it would print many errors and abort.
        print(error, file=sys.stderr, flush=True)
        os._exit(MemlabError.exit_code)
