"""A worker: a process that does dangerous work and can be killed.

A GPU fault makes its process unusable: after an illegal address every further call of the driver
fails, and a kernel that never ends cannot be stopped from its own process. So all work on a GPU is
done in a worker, which returns plain records.

    answer = call_in_worker(work, 1, 2)          # in the worker: work(link, 1, 2)

`work` must be importable, and its arguments and result must be picklable. Through `link` it reports
its progress to the caller and sets time limits. A worker is started as a new interpreter, not by
`multiprocessing`, which would run a user's script again unless it is guarded by
`if __name__ == "__main__"`.

Only the caller enforces time limits: a worker writes the deadline of its work to a page of shared
memory, and the waiting caller kills a worker that is late. The worker itself could not: a call of
the driver that hangs keeps Python's lock, so that no other thread runs.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from mmap import PAGESIZE, mmap
from multiprocessing.connection import Connection, Pipe
from typing import Any

from memlab.device.measurement import Progress
from memlab.errors import DeviceError, MemlabError, UsageError

POLL_INTERVAL_S = 0.05
"""The interval at which a waiting caller checks the deadline of its worker, seconds."""
REPORT_INTERVAL_S = 0.1
"""The shortest interval between reports of the same step, seconds: a pipe that is not read fills
up."""
EXIT_TIMEOUT_S = 10.0
"""The limit for the end of a killed worker, seconds: the driver first cleans up on the GPU."""

REMOVED_VARIABLES = ("CUDA_LAUNCH_BLOCKING",)
"""Environment variables that are removed for a worker: with this one every launch would wait, even
for the kernel that holds it back."""

PR_SET_PDEATHSIG = 1  # of linux/prctl.h

_ERRORS_BY_EXIT_CODE = {error.exit_code: error for error in (MemlabError, UsageError, DeviceError)}
_DEADLINE_FORMAT = struct.Struct("=dHH")
"""A deadline on the machine's monotonic clock, seconds; then the error to raise after it: its exit
code, and the length of the text that follows, bytes."""


class WorkerLink:
    """A worker's end of the connection to its caller: a pipe and a page of shared memory."""

    def __init__(self, connection: Connection, page: mmap) -> None:
        self._connection, self._page = connection, page
        self._reported: tuple[str, float] | None = None

    def report(self, what: str, fraction: float | None = None) -> None:
        """Report the current step to the caller, and its completed fraction."""
        now = time.monotonic()
        if (
            self._reported
            and self._reported[0] == what
            and now < self._reported[1] + REPORT_INTERVAL_S
        ):
            return
        self._reported = (what, now)
        self.send("report", what, fraction)

    @contextmanager
    def within(self, limit_s: float, error: MemlabError) -> Iterator[None]:
        """Limit the time of the work in the context; if it takes longer, the worker is killed.

        Args:
            limit_s: The limit, seconds.
            error: The error that the caller then raises, as one of the root classes.
        """
        outer = self._page[:]
        text = str(error).encode(errors="replace")[: PAGESIZE - _DEADLINE_FORMAT.size]
        guard = _DEADLINE_FORMAT.pack(time.monotonic() + limit_s, error.exit_code, len(text)) + text
        self._page[: len(guard)] = guard
        try:
            yield
        finally:
            self._page[:] = outer

    def hand_over(self, value: object) -> None:
        """Hand the caller a value before the result; the caller waits for it in `Worker.take`."""
        self.send("value", value)

    def wait(self) -> None:
        """Wait until the caller calls `Worker.resume`."""
        self._connection.recv()

    def send(self, *message: object) -> None:
        """Send a message to the `Worker`: its kind, then its content."""
        self._connection.send(message)


class Worker:
    """A process that calls `function(link, *arguments)`; use it as a context manager.

    Leaving the context kills the process, whatever it is doing.
    """

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._connection, its_end = Pipe()
        # The output of a driver or a crash is kept to explain the death of a worker.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed on leaving)
        with tempfile.TemporaryFile() as shared:
            shared.write(_DEADLINE_FORMAT.pack(math.inf, 0, 0).ljust(PAGESIZE, b"\0"))
            shared.flush()
            self._page = mmap(shared.fileno(), PAGESIZE)
            passed = (its_end.fileno(), shared.fileno())
            program = (
                f"import sys; sys.path[:] = {sys.path!r}; from memlab.device.gpu import worker; "
                f"worker.worker_main(*{passed!r}, {os.getpid()})"
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=passed,
                env={
                    name: value
                    for name, value in os.environ.items()
                    if name not in REMOVED_VARIABLES
                },
                process_group=0,  # Ctrl-C goes to the caller alone, which ends its worker
            )
        its_end.close()
        with suppress(ConnectionError):  # it died at once: the next wait reports why
            self._connection.send((function, arguments))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the driver: leave it
            self._process.wait(EXIT_TIMEOUT_S)
        self._page.close()
        self._output.close()

    def take(self, progress: Progress | None = None) -> Any:
        """Wait for the value that the worker hands over before its result.

        Args:
            progress: Called with the worker's reports.

        Raises:
            MemlabError: The worker's error, as one of the root classes.
            DeviceError: The worker died.
        """
        return self._wait_for("value", progress)

    def resume(self) -> None:
        """Let a waiting worker continue."""
        with suppress(ConnectionError):  # it died meanwhile: the next call reports why
            self._connection.send("go on")

    def result(self, progress: Progress | None = None) -> Any:
        """Wait for the result; arguments and errors as in `take`."""
        return self._wait_for("result", progress)

    def _wait_for(self, expected_kind: str, progress: Progress | None) -> Any:
        while True:
            kind, value = self._next(progress)
            if kind == expected_kind:
                return value

    def _next(self, progress: Progress | None) -> tuple[str, Any]:
        try:
            # Messages that have arrived take precedence over the deadline.
            while not self._connection.poll(POLL_INTERVAL_S):
                self._check_deadline()
            kind, *content = self._connection.recv()
        except (EOFError, ConnectionError):
            raise DeviceError(self._exit_reason()) from None
        if kind == "error":
            code, message = content
            raise _ERRORS_BY_EXIT_CODE.get(code, MemlabError)(message)
        if kind == "report" and progress is not None:
            progress(*content)
        return kind, content[0]

    def _check_deadline(self) -> None:
        deadline_s, code, length = _DEADLINE_FORMAT.unpack_from(self._page)
        if time.monotonic() > deadline_s:
            text = self._page[_DEADLINE_FORMAT.size : _DEADLINE_FORMAT.size + length]
            raise _ERRORS_BY_EXIT_CODE.get(code, MemlabError)(text.decode(errors="replace"))

    def _exit_reason(self) -> str:
        try:
            code = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return (
                f"the process that used the GPU (process {self._process.pid}) stopped answering "
                "and does not end, perhaps because the driver lost the GPU: see with nvidia-smi "
                "whether the GPU is still there, and restart the machine if it is not"
            )
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        return (
            f"the process that used the GPU died ({how}; {last}): see with nvidia-smi whether the "
            "GPU is still there; --device h200 needs none"
        )


def call_in_worker(
    function: Callable[..., Any], *arguments: object, progress: Progress | None = None
) -> Any:
    """Call `function(link, *arguments)` in a worker and return its result.

    Args:
        function: An importable function; its first argument is a `WorkerLink`.
        arguments: Picklable arguments.
        progress: Called with the worker's reports.

    Raises:
        MemlabError: The function's error, as one of the root classes.
        DeviceError: The worker died.
    """
    with Worker(function, *arguments) as worker:
        return worker.result(progress)


def worker_main(pipe: int, page: int, caller: int) -> None:
    """The main function of a worker process; it never returns.

    The process exits without unwinding the interpreter, so that no destructor calls a driver that
    a fault has made unusable.

    Args:
        pipe: File descriptor of the worker's end of the pipe.
        page: File descriptor of the page of shared memory.
        caller: Identifier of the caller's process; when it ends, so does this one.
    """
    _die_with_caller(caller)
    connection = Connection(pipe)
    try:
        function, arguments = connection.recv()
        link = WorkerLink(connection, mmap(page, PAGESIZE))
        try:
            link.send("result", function(link, *arguments))
        except MemlabError as error:
            link.send("error", error.exit_code, str(error))
        except Exception as error:
            traceback.print_exc()
            link.send("error", MemlabError.exit_code, f"{type(error).__name__}: {error}")
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _die_with_caller(caller: int) -> None:
    """Have the operating system kill this process when its caller ends.

    Linux does so when the thread that started it ends. On other systems, which have no CUDA or do
    not start workers, it would end when it next uses the pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != caller:  # the caller ended before the request
        os._exit(1)
