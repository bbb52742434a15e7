"""A worker: a process that does one dangerous piece of work and can be thrown away.

A GPU fault poisons the process that met it: after an illegal address every further call of the
driver fails, and a kernel that never ends cannot be stopped from within. So whatever touches a
GPU runs in a worker, and only plain records come back.

    answer = call(work, 1, 2)          # in a worker: work(link, 1, 2)

`work` is a function that can be imported, its arguments and result can be pickled, and `link` is
how it tells the caller what it is doing and guards what may never end. A worker is started as an
interpreter of its own, not by `multiprocessing`: that would run a user's script once more where
it does not hide behind `if __name__ == "__main__"`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from memlab.device.measurement import Progress
from memlab.errors import DeviceError, MemlabError, UsageError

WATCH_S = 0.05
"""How often a worker looks whether something took too long, or its caller is gone."""
REPORT_S = 0.1
"""No two reports of the same thing come closer than this: a pipe that nobody reads fills up."""
GONE_S = 10.0
"""How long a killed worker may take: the driver first clears away what it left on the GPU."""

UNWANTED = ("CUDA_LAUNCH_BLOCKING",)
"""Variables that a worker does without: each launch would wait, also for one that holds it back."""

_KINDS = {each.exit_code: each for each in (MemlabError, UsageError, DeviceError)}


class Link:
    """A worker's end of the pipe to its caller."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._reported: tuple[str, float] | None = None
        self._deadline: tuple[float, str] | None = None
        threading.Thread(target=self._watch, args=(os.getppid(),), daemon=True).start()

    def report(self, what: str, fraction: float | None = None) -> None:
        """Tell the caller what is being done, and which fraction of it is over."""
        now = time.monotonic()
        if self._reported and self._reported[0] == what and now < self._reported[1] + REPORT_S:
            return
        self._reported = (what, now)
        self.send("report", what, fraction)

    @contextmanager
    def within(self, limit_s: float, message: str) -> Iterator[None]:
        """Guard a piece of work: if it takes longer, the caller gets a `MemlabError`.

        Args:
            limit_s: Seconds.
            message: What the error says.
        """
        outer, self._deadline = self._deadline, (time.monotonic() + limit_s, message)
        try:
            yield
        finally:
            self._deadline = outer

    def give(self, value: object) -> None:
        """Hand the caller something before the result; it waits for this in `Worker.take`."""
        self.send("value", value)

    def wait(self) -> None:
        """Wait until the caller says `Worker.go_on`."""
        self._connection.recv()

    def send(self, *message: object) -> None:
        """Send a message that `Worker` knows."""
        with self._lock:
            self._connection.send(message)

    def _watch(self, parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
            if self._deadline is not None and time.monotonic() > self._deadline[0]:
                self.send("error", MemlabError.exit_code, self._deadline[1])
                break
        os._exit(1)


class Worker:
    """A process that calls `function(link, *arguments)`; use it as a context manager.

    Leaving the context ends the process, whatever it was doing.
    """

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._connection, its_end = Pipe()
        # What a driver or a crash prints is kept to explain a worker that vanished.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed on leaving)
        program = f"import sys; sys.path[:] = {sys.path!r}; from memlab.device import worker; "
        self._process = subprocess.Popen(
            [sys.executable, "-c", program + f"worker.serve({its_end.fileno()})"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(its_end.fileno(),),
            env={name: value for name, value in os.environ.items() if name not in UNWANTED},
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
            self._process.wait(GONE_S)
        self._output.close()

    def take(self, progress: Progress | None = None) -> Any:
        """Wait for what the worker hands over before its result.

        Args:
            progress: Told what the worker reports.

        Raises:
            MemlabError: What the worker raised, as one of the root classes, or that it died.
        """
        return self._wait_for("value", progress)

    def go_on(self) -> None:
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
            kind, *content = self._connection.recv()
        except (EOFError, ConnectionError):
            raise DeviceError(self._obituary()) from None
        if kind == "error":
            code, message = content
            raise _KINDS.get(code, MemlabError)(message)
        if kind == "report" and progress is not None:
            progress(*content)
        return kind, content[0]

    def _obituary(self) -> str:
        code = self._process.wait(GONE_S)
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        return (
            f"the process that used the GPU died ({how}; {last}): see with nvidia-smi whether the "
            "GPU is still there, or go on without it with --device h200"
        )


def call(function: Callable[..., Any], *arguments: object, progress: Progress | None = None) -> Any:
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


def serve(file_descriptor: int) -> None:
    """Do the work of a worker process; never returns.

    The process leaves without unwinding the interpreter, so that no destructor calls a driver
    that a fault has left unusable.

    Args:
        file_descriptor: The worker's end of the pipe.
    """
    connection = Connection(file_descriptor)
    try:
        function, arguments = connection.recv()
        link = Link(connection)
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
