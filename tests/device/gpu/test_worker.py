"""Workers: their results, and their death, time limits and end."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import REPOSITORY

from memlab.device.gpu import worker as worker_module
from memlab.device.gpu.worker import Worker, WorkerLink, call_in_worker
from memlab.errors import DeviceError, MemlabError, UsageError


def double(link: WorkerLink, value: int) -> dict[str, int]:
    return {"value": 2 * value, "process": os.getpid()}


def stages(link: WorkerLink) -> str:
    for _ in range(1000):
        link.report("counting", 0.5)
    link.report("done counting")
    return "counted"


def fail(link: WorkerLink, code: int) -> None:
    raise {1: MemlabError, 2: UsageError, 3: DeviceError}[code](f"failed with {code}")


def crash(link: WorkerLink) -> None:
    print("the driver said: something broke", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def stumble(link: WorkerLink) -> None:
    raise ZeroDivisionError("by nothing")


def hang(link: WorkerLink, limit_s: float) -> None:
    with link.within(limit_s, DeviceError("it never ended")):
        time.sleep(60)


def sleep_with_the_lock() -> None:
    """Hang like a call of the driver in which PyCUDA keeps Python's lock."""
    ctypes.PyDLL(None).sleep(60)


def hang_with_the_lock(link: WorkerLink) -> None:
    with link.within(0.2, MemlabError("the driver did not answer")):
        sleep_with_the_lock()


def hang_later(link: WorkerLink) -> None:
    with link.within(0.2, MemlabError("the first one is over, and may not be blamed")):
        pass
    time.sleep(0.5)


def hang_after_a_step(link: WorkerLink) -> None:
    with link.within(0.3, MemlabError("the whole never ended")):
        with link.within(60, MemlabError("a step that did end")):
            pass
        time.sleep(60)


def finish_in_time(link: WorkerLink) -> str:
    with link.within(0.3, MemlabError("it was in time")):
        return "done"


def stop_answering(link: WorkerLink) -> None:
    link._connection.close()
    time.sleep(60)


def hang_for_good(link: WorkerLink, file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    link.hand_over("hanging")
    sleep_with_the_lock()


def report_and_sleep(link: WorkerLink, file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    link.hand_over("sleeping")
    time.sleep(60)


def echo(link: WorkerLink) -> str:
    link.hand_over("first")
    link.wait()
    return "second"


def group(link: WorkerLink) -> int:
    return os.getpgrp()


def environment(link: WorkerLink) -> dict[str, str]:
    return dict(os.environ)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(process: int) -> bool:
    deadline = time.monotonic() + 60  # only a fault takes so long
    while alive(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(process)


def test_launches_never_wait_in_a_worker(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    found = call_in_worker(environment)

    assert "CUDA_LAUNCH_BLOCKING" not in found
    assert found["CUDA_VISIBLE_DEVICES"] == "0"


def test_an_interrupt_of_the_caller_is_none_of_the_worker() -> None:
    """A terminal sends Ctrl-C to a process group, to which the worker must not belong."""
    assert call_in_worker(group) != os.getpgrp()


def test_work_is_done_in_another_process() -> None:
    answer = call_in_worker(double, 21)

    assert answer["value"] == 42
    assert answer["process"] != os.getpid()


def test_reports_arrive_in_order_and_are_thinned() -> None:
    told: list[tuple[str, float | None]] = []

    assert (
        call_in_worker(stages, progress=lambda what, done: told.append((what, done))) == "counted"
    )
    assert told[0] == ("counting", 0.5)
    assert told[-1] == ("done counting", None)
    assert len(told) < 20


@pytest.mark.parametrize(("code", "kind"), [(1, MemlabError), (2, UsageError), (3, DeviceError)])
def test_errors_keep_their_kind(code: int, kind: type[MemlabError]) -> None:
    with pytest.raises(kind, match=f"^failed with {code}$") as caught:
        call_in_worker(fail, code)
    assert type(caught.value) is kind


def test_a_worker_that_dies_is_one_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeviceError, match=r"died .killed by SIGSEGV; the driver said: something"):
        call_in_worker(crash)
    assert capfd.readouterr() == ("", "")


def test_an_unexpected_error_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MemlabError, match=r"^ZeroDivisionError: by nothing$"):
        call_in_worker(stumble)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("work", "arguments", "kind", "message"),
    [
        (hang, (0.2,), DeviceError, "it never ended"),
        (hang_with_the_lock, (), MemlabError, "the driver did not answer"),
        (hang_after_a_step, (), MemlabError, "the whole never ended"),
    ],
)
def test_what_never_ends_is_stopped(
    work: Callable[..., None], arguments: tuple[float, ...], kind: type[MemlabError], message: str
) -> None:
    with pytest.raises(kind, match=f"^{message}$") as caught:  # they would end after a minute
        call_in_worker(work, *arguments)

    assert type(caught.value) is kind


def test_what_was_in_time_is_not_blamed_by_a_caller_that_looks_late() -> None:
    with Worker(finish_in_time) as worker:
        time.sleep(1)
        assert worker.result() == "done"


def test_a_worker_that_neither_answers_nor_ends_is_one_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "EXIT_TIMEOUT_S", 0.2)
    with pytest.raises(
        DeviceError, match=r"\(process \d+\) stopped answering.*restart the machine"
    ):
        call_in_worker(stop_answering)


def test_a_guard_ends_with_what_it_guards() -> None:
    assert call_in_worker(hang_later) is None


def test_leaving_early_ends_the_worker(tmp_path: Path) -> None:
    file = tmp_path / "process"
    with Worker(report_and_sleep, str(file)) as worker:
        assert worker.take() == "sleeping"

    assert not alive(int(file.read_text()))


def test_a_worker_hands_over_and_waits() -> None:
    with Worker(echo) as worker:
        assert worker.take() == "first"
        worker.resume()
        assert worker.result() == "second"


def test_a_worker_that_dies_is_noticed_when_told_to_go_on() -> None:
    with Worker(crash) as worker:
        time.sleep(0.5)
        worker.resume()
        with pytest.raises(DeviceError, match="SIGSEGV"):
            worker.take()


@pytest.mark.skipif(sys.platform != "linux", reason="CUDA's workers run on Linux")
@pytest.mark.parametrize(
    ("work", "how"), [(report_and_sleep, signal.SIGKILL), (hang_for_good, signal.SIGTERM)]
)
def test_a_worker_does_not_outlive_its_caller(
    work: Callable[..., None], how: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "process"
    program = (
        f"import sys; sys.path[:] = {[str(REPOSITORY), *sys.path]!r}\n"
        "from memlab.device.gpu.worker import Worker\n"
        f"from {__name__} import {work.__name__} as work\n"
        f"worker = Worker(work, {str(file)!r}); worker.take()\n"
        f"import os, time; time.sleep(0.2); os.kill(os.getpid(), {int(how)})"
    )
    subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parent)

    assert wait_until_gone(int(file.read_text()))


def test_a_script_without_a_main_guard_may_use_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from memlab.device.gpu.worker import call_in_worker\n"
        "import operator, os\n"
        "print('once'); print(call_in_worker(isinstance, object))\n"
    )
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True)

    assert done.stdout == "once\nTrue\n"
