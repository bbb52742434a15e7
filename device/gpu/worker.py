"""A worker: a process that does one dangerous piece of work and can be thrown away.

A GPU fault poisons the process that met it: after an illegal address every further call of the
driver fails, and a kernel that never ends cannot be stopped from within. So whatever touches a
GPU runs in a worker, and only plain records come back.

    answer = call(work, 1, 2)          # in a worker: work(link, 1, 2)

`work` is a function that can be imported, its arguments and result can be pickled, and `link` is
how it tells the caller what it is doing and guards what may never end. A worker is started as an
interpreter of its own, not by `multiprocessing`: that would run a user's script once more where
it does not hide behind `if __name__ == "__main__"`.

The caller alone watches: a worker notes in a page of memory that both see until when its work must
be over, and the caller, while it waits, ends one that is late. Nothing in the worker could: a call
of the driver that hangs keeps Python's lock, and no other thread of it runs.
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
"""How often a caller that waits looks whether its worker is late."""
REPORT_INTERVAL_S = 0.1
"""No two reports of the same thing come closer than this: a pipe that nobody reads fills up."""
EXIT_TIMEOUT_S = 10.0
"""How long a killed worker may take: the driver first clears away what it left on the GPU."""

REMOVED_VARIABLES = ("CUDA_LAUNCH_BLOCKING",)
"""Variables that a worker does without: each launch would wait, also for one that holds it back."""

PR_SET_PDEATHSIG = 1  # of linux/prctl.h

_ERRORS_BY_EXIT_CODE = {each.exit_code: each for each in (MemlabError, UsageError, DeviceError)}
_DEADLINE_FORMAT = struct.Struct("=dHH")
"""A deadline by the machine's monotonic clock, seconds; then the error of one who is late: its exit
code, and how many bytes of text follow."""


class WorkerLink:
    """A worker's end of what it has in common with its caller: a pipe, and a page of memory."""

    def __init__(self, connection: Connection, page: mmap) -> None:
        self._connection, self._page = connection, page
        self._reported: tuple[str, float] | None = None

    def report(self, what: str, fraction: float | None = None) -> None:
        """Tell the caller what is being done, and which fraction of it is over."""
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
        """Guard a piece of work: if it takes longer, the worker is ended.

        Args:
            limit_s: Seconds.
            error: What the caller then gets, as one of the root classes.
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
        """Hand the caller something before the result; it waits for this in `Worker.take`."""
        self.send("value", value)

    def wait(self) -> None:
        """Wait until the caller says `Worker.go_on`."""
        self._connection.recv()

    def send(self, *message: object) -> None:
        """Send a message that `Worker` knows."""
        self._connection.send(message)


class Worker:
    """A process that calls `function(link, *arguments)`; use it as a context manager.

    Leaving the context ends the process, whatever it was doing.
    """

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._connection, its_end = Pipe()
        # What a driver or a crash prints is kept to explain a worker that vanished.
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
                process_group=0,  # Ctrl-C is for the caller, who decides what becomes of a worker
            )
        its_end.close()
        with suppress(ConnectionError):  # it died at once: waiting for it will say of what
            self._connection.send((function, arguments))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the driver: let it be
            self._process.wait(EXIT_TIMEOUT_S)
        self._page.close()
        self._output.close()

    def take(self, progress: Progress | None = None) -> Any:
        """Wait for what the worker hands over before its result.

        Args:
            progress: Told what the worker reports.

        Raises:
            MemlabError: What the worker raised, as one of the root classes.
            DeviceError: It died.
        """
        return self._wait_for("value", progress)

    def resume(self) -> None:
        """Let a worker go on that waits."""
        with suppress(ConnectionError):  # it died meanwhile: the next call says of what
            self._connection.send("go on")

    def result(self, progress: Progress | None = None) -> Any:
        """Wait for the result; arguments and errors as in `take`."""
        return self._wait_for("result", progress)

    def _wait_for(self, wanted: str, progress: Progress | None) -> Any:
        while True:
            kind, value = self._next(progress)
            if kind == wanted:
                return value

    def _next(self, progress: Progress | None) -> tuple[str, Any]:
        try:
            while not self._connection.poll(
                POLL_INTERVAL_S
            ):  # what it has said comes before the clock
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
                "and does not end, as when the driver lost the GPU: see with nvidia-smi whether "
                "the GPU is still there, and restart the machine if it is not"
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
    """Call `function(link, *arguments)` in a worker and return what it returns.

    Args:
        function: Can be imported by its name; gets a `Link` first.
        arguments: Can be pickled.
        progress: Told what the worker reports.

    Raises:
        MemlabError: What the function raised, as one of the root classes.
        DeviceError: The worker died.
    """
    with Worker(function, *arguments) as worker:
        return worker.result(progress)


def worker_main(pipe: int, page: int, caller: int) -> None:
    """Do the work of a worker process; never returns.

    The process leaves without unwinding the interpreter, so that no destructor calls a driver
    that a fault has left unusable.

    Args:
        pipe: The worker's end of the pipe, a file descriptor.
        page: The file of the page that the caller watches, the same.
        caller: The caller's process; when it ends, so does this one.
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
    """Have the kernel end this process with its caller, whatever it is doing then.

    Linux ends it with the thread that started it. Elsewhere, where there is no CUDA or no worker
    starts, it would end when it next uses the pipe.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != caller:  # it was gone before
        os._exit(1)
