"""A process that forks writers of a store: a fork starts in a millisecond and can be killed.

Run with the document of a run to store. Each line on stdin asks for something, as JSON:

- `{"path", "runs", "delay_s"}`: one writer that adds runs until it is killed, so many seconds
  after it has reported so many;
- `{"path", "writers", "runs"}`: as many writers that start at once and add so many runs each.

Each answer is a line of JSON: what was reported as stored, `[[id, number]]`, `number` being the
tile that the writer gave its run. A run is reported as a user's program would: after `add`.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from memlab.roofline.documents.runs import run_from_document
from memlab.roofline.run import Run
from memlab.roofline.store.store import Store


def write(store: Store, run: Run, numbers: range, report: int) -> None:
    for number in numbers:
        # Up to about twenty pages of the file, so that a kill can interrupt long writes.
        advice = ("x" * random.Random(number).randrange(80_000),) if number % 2 else ()
        measurement = replace(run.measurement, tile=number)
        stored = store.add(replace(run, measurement=measurement, advice=advice))
        os.write(report, f"{stored.id} {number}\n".encode())


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


def pairs(lines: Iterable[str]) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in lines]


def killed(run: Run, path: str, runs: int, delay_s: float) -> list[list[int]]:
    reader, report = os.pipe()
    first = random.randrange(10**9)
    child = fork(lambda: write(Store(path), run, range(first, 2 * 10**9), report))
    os.close(report)
    with os.fdopen(reader) as lines:
        found = [lines.readline() for _ in range(runs)]
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer ended before it was killed"
        return pairs([*found, *lines])


def together(run: Run, path: str, writers: int, runs: int) -> list[list[int]]:
    reader, report = os.pipe()
    gate, opener = os.pipe()

    def work(writer: int) -> None:
        os.close(opener)
        os.read(gate, 1)  # returns when the last opener is closed
        write(Store(path), run, range(writer * runs, (writer + 1) * runs), report)

    children = [fork(lambda writer=writer: work(writer)) for writer in range(writers)]
    os.close(report)
    os.close(opener)
    with os.fdopen(reader) as lines:
        found = pairs(lines)
    os.close(gate)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * writers
    return found


def main() -> None:
    run = run_from_document(json.loads(Path(sys.argv[1]).read_text()))
    random.seed(5)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = killed(run, **asked) if "delay_s" in asked else together(run, **asked)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
