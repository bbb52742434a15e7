"""The measurement on a GPU: launches that were compiled elsewhere, under Nsight Compute.

`prepare` writes the launches and their machine code to a file. On the machine with the GPU,
`measure` times each launch with events and cold caches, then collects the counters, some launches
in one process of Nsight Compute. The table is written anew after each process, so that an
interrupted measurement keeps its rows.
"""

from __future__ import annotations

import csv
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.counters import DATASHEET
from benchmarks.truth import metrics
from benchmarks.truth.cases import Case
from benchmarks.truth.data import write_array
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.datasheets import loader
from memlab.device.gpu.device import LoadedLaunch, prepare_on_gpu
from memlab.device.gpu.driver import translated_errors
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import TimingSettings
from memlab.device.nvidia_tools import ncu
from memlab.device.nvidia_tools.launch_request import run_tool
from memlab.errors import MemlabError
from memlab.kernels.launch import Buffer, Launch, NpyFile

LAUNCHES = "launches.pickle"
SEED = 0
TIMED = TimingSettings(samples=9, settle_s=0.0, settle_cap_s=0.2)
GROUP = 13
"""Launches in one process of Nsight Compute."""
GROUP_TIMEOUT_S = 150.0
_UNKNOWN = re.compile(r"Failed to find metric (?:regex:)?([\w.]+)")
DONE = "launched: "
"""What a process prints before a launch's name when it has ended."""


@dataclass(frozen=True)
class Prepared:
    """A compiled launch.

    Attributes:
        name: The name of its case.
        kind: Its kind.
        held_out: Its set, as of `Case`.
        launch: The launch, without references.
        compiled: Its code.
    """

    name: str
    kind: str
    held_out: int
    launch: Launch
    compiled: CompiledKernel


def prepare(folder: Path, chosen: Iterable[Case]) -> None:
    """Compile launches and write them to a folder.

    Args:
        folder: The folder.
        chosen: The launches; those that cannot be compiled are left out, with a message.
    """
    properties = loader.load_datasheet(DATASHEET)
    prepared = []
    for case in chosen:
        try:
            launch = case.launch()
            compiled = compile_launch(launch, properties.compute_capability)
        except MemlabError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            continue
        plain = replace(launch, references={})
        prepared.append(Prepared(case.name, case.kind, case.held_out, plain, compiled))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LAUNCHES).write_bytes(pickle.dumps(prepared))
    size_mib = (folder / LAUNCHES).stat().st_size / 2**20
    print(f"{len(prepared)} launches, {size_mib:.1f} MiB in {folder / LAUNCHES}")


def prepared_launches(folder: Path) -> list[Prepared]:
    """Read what `prepare` wrote."""
    prepared: list[Prepared] = pickle.loads((folder / LAUNCHES).read_bytes())
    return prepared


def run_launches(folder: Path, names: Sequence[str], *, timed: bool) -> None:
    """Run launches in this process, one after another, and print a line for each that has ended.

    Args:
        folder: The folder of `prepare`.
        names: Which launches.
        timed: Whether to time each with events too; the line then ends in the median and the
            clock.
    """
    with GpuSession(0) as session:
        for one in prepared_launches(folder):
            if one.name not in names:
                continue
            try:
                figures = _run(session, one, timed=timed)
            except MemlabError as error:
                print(f"{one.name}: {error}", file=sys.stderr, flush=True)
                continue
            print("\t".join([DONE + one.name, *figures]), flush=True)


def _run(session: GpuSession, one: Prepared, *, timed: bool) -> list[str]:
    ready = _load(session, one)
    if timed:
        samples = session.time(
            ready.run_once, TIMED, flush=True, what=one.name, restore=ready.restore
        )
        clock_hz = samples.clock_hz
        return [f"{1e9 * samples.median_s:.0f}", "" if clock_hz is None else f"{clock_hz:.0f}"]
    with translated_errors(one.name):
        ready.run_once()
    session.synchronize(one.name)
    return []


def _load(session: GpuSession, one: Prepared) -> LoadedLaunch:
    for buffer in one.launch.buffers:
        if isinstance(buffer, Buffer) and isinstance(buffer.fill, NpyFile):
            write_array(Path(buffer.fill.path))
    return prepare_on_gpu(session, one.launch, one.compiled, SEED)


def measure(folder: Path, table: Path, limit_s: float) -> None:
    """Measure all launches and write a table with a row for each.

    Args:
        folder: The folder of `prepare`.
        table: The CSV file; the list of known metrics and messages are written next to it.
        limit_s: No process is started after this time, seconds.

    Raises:
        SystemExit: Nsight Compute is not installed.
    """
    program = ncu.find_ncu()
    if program is None:
        sys.exit(f"Nsight Compute (ncu) is not installed: {ncu.INSTALL_ADVICE}")
    ends_s = time.monotonic() + limit_s
    table.parent.mkdir(parents=True, exist_ok=True)
    listing = metrics.listed_metrics(program)
    table.with_name("ncu-metrics.txt").write_text(listing)
    known = metrics.known_names(listing)
    prepared = prepared_launches(folder)
    rows: dict[str, dict[str, str]] = {
        one.name: {"launch": one.name, "kind": one.kind, "held_out": str(one.held_out)}
        for one in prepared
    }
    messages = table.with_name("messages.txt")
    messages.write_text("")
    groups = [prepared[first : first + GROUP] for first in range(0, len(prepared), GROUP)]
    for group in groups:
        output = _output(_command(folder, "time", [one.name for one in group]))
        for name, figures in _event_times(output):
            rows[name] |= figures
        _append(messages, output)
    _write(table, rows)
    print(f"{sum('cold_median_ns' in row for row in rows.values())} launches timed", flush=True)
    wanted = metrics.traffic_metrics(known)
    print("unknown here, left out:", *sorted(set(metrics.TRAFFIC) - set(wanted)), flush=True)
    for chosen in (wanted, metrics.detail_metrics(known)):
        print(f"{len(chosen)} metrics", flush=True)
        for group in groups:
            began_s = time.monotonic()
            if began_s > ends_s:
                print("the time is up: the other launches lack these metrics", flush=True)
                break
            output = _under_ncu(program, chosen, folder, [one.name for one in group])
            measured = dict(rows_by_launch(output, group))
            for name, row in measured.items():
                rows[name] |= row
            _write(table, rows)
            _append(messages, output)
            taken_s = time.monotonic() - began_s
            print(f"{len(measured)} of {len(group)} launches, {taken_s:.0f} s", flush=True)


def _command(folder: Path, verb: str, names: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.truth", verb, str(folder), *names]


def _event_times(output: str) -> Iterator[tuple[str, dict[str, str]]]:
    for line in output.splitlines():
        if line.startswith(DONE):
            name, time_ns, clock_hz = line.removeprefix(DONE).split("\t")
            yield name, {"cold_median_ns": time_ns, "event_clock_hz": clock_hz}


def _under_ncu(program: Path, chosen: list[str], folder: Path, names: Sequence[str]) -> str:
    """Profile launches; metrics that turn out to be unknown are removed from `chosen`."""
    while True:
        output = _output(
            [
                *(str(program), "--csv", "--page", "raw", "--print-units", "base"),
                *("--metrics", ",".join(chosen), "--target-processes", "all"),
                *("--clock-control", "none", "--cache-control", "all"),
                *("--print-kernel-base", "mangled"),  # as entries are named
                *_command(folder, "launch", names),
            ]
        )
        unknown = set(_UNKNOWN.findall(output)) & set(chosen)
        if not unknown:
            return output
        print("unknown to ncu, left out:", *sorted(unknown), flush=True)
        chosen[:] = [metric for metric in chosen if metric not in unknown]


def _output(words: Sequence[str]) -> str:
    try:
        return run_tool(words, GROUP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"==ERROR== not finished in {GROUP_TIMEOUT_S:g} s: {' '.join(words)}\n"


def rows_by_launch(
    output: str, group: Sequence[Prepared]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The metrics of each launch: kernels are listed in the order in which they ran."""
    lines = output.splitlines()
    done = [line.removeprefix(DONE) for line in lines if line.startswith(DONE)]
    entries = {one.name: one.launch.entry for one in group}
    table = list(csv.reader(line for line in lines if line.startswith('"')))
    header = next((row for row in table if row[0] == "ID"), [])
    for row in table:
        values = dict(zip(header, row, strict=False))
        ran = [name for name in done if entries[name] == values.get("Kernel Name")]
        if not ran:
            continue  # the header, or a kernel of the driver that fills an array
        done = done[done.index(ran[0]) + 1 :]
        yield (
            ran[0],
            {
                name: value.replace(",", "")
                for name, value in values.items()
                if "__" in name or name.startswith(metrics.UNLISTED)
            },
        )


def _append(messages: Path, output: str) -> None:
    """Keep what a process printed besides its tables; print the last line if it failed."""
    kept = [line for line in output.splitlines() if line and not line.startswith('"')]
    with messages.open("a") as file:
        file.write("\n".join([*kept[-200:], ""]))
    if kept and not kept[-1].startswith((DONE, "==PROF==")):
        print(kept[-1], flush=True)


def _write(table: Path, rows: Mapping[str, Mapping[str, str]]) -> None:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    partial = table.with_name(f".{table.name}")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())
    partial.replace(table)
