"""The benchmarks of commands: what they time exists. Nothing is timed, and little executed."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer.main
from paths import REPOSITORY

from benchmarks import commands, engine, hopper_clocks, microbenchmarks, stages
from memlab.cli.app import app
from memlab.device.datasheets.loader import load_datasheet
from memlab.errors import UsageError
from memlab.roofline.documents.runs import run_document
from memlab.roofline.run import Run

MAKE_DOCS = REPOSITORY / "docs" / "make.py"
EMULATED = ("--device", "h200", "--quiet")


@dataclass(frozen=True)
class Recorder(engine.Engine):
    """An engine that starts nothing: it takes a second for everything.

    Attributes:
        run: The run that a command writes to its output.
        commands: The words of each command behind `python`.
        probes: The words of each probe.
    """

    run: Run
    commands: list[list[str]] = field(default_factory=list)
    probes: list[list[str]] = field(default_factory=list)

    def wall_s(self, *command: str | Path, threads: int | None = None) -> float:
        words = [str(word) for word in command]
        self.commands.append(words)
        if "--output" in words:
            path = Path(words[words.index("--output") + 1])
            path.write_text(json.dumps(run_document(self.run)), encoding="utf-8")
        if Path(words[0]).name == MAKE_DOCS.name:
            assert list(Path(words[0]).parent.glob("lessons/[0-9]*.md"))
        return 1.0

    def probe(self, *words: str, threads: int = 1) -> float:
        self.probes.append(list(words))
        return 1.0


@pytest.fixture(scope="module")
def probes() -> Mapping[str, Callable[..., float]]:
    """The probes by name, from a module that finds its imports by itself."""
    sys.path.insert(0, str(engine.PROBE.parent))
    try:
        module = __import__(engine.PROBE.stem)
    finally:
        sys.path.remove(str(engine.PROBE.parent))
    return dict(module.PROBES)


def parse(words: Sequence[str]) -> None:
    """Parse a command of memlab, and execute nothing.

    Raises:
        UsageError, typer.TyperException: There is no such command or option, or an option of one
            value is given twice.
    """
    command: Any = typer.main.get_command(app)
    context, name, left = None, "memlab", list(words)
    while True:
        context = command.make_context(name, left, parent=context)
        if not hasattr(command, "resolve_command"):
            return
        left = [*context._protected_args, *context.args]
        name, command, left = command.resolve_command(context, left)


@pytest.mark.parametrize("row", engine.ROWS, ids=lambda row: row.name)
def test_what_a_row_measures_exists(
    row: engine.Row, make_run: Callable[..., Run], probes: Mapping[str, Callable[..., float]]
) -> None:
    recorder = Recorder(REPOSITORY, REPOSITORY, 2, make_run())
    row.measure(recorder)
    assert recorder.commands or recorder.probes
    for words in recorder.commands:
        if words[:2] == ["-m", "memlab"]:
            parse(words[2:])
        elif words[:2] == ["-m", "pytest"]:
            _, _, recipe = (REPOSITORY / "Makefile").read_text().partition("\ntest:")
            made = shlex.split(recipe.splitlines()[1])
            assert set(made[made.index("pytest") + 1 :]) <= set(words)
        else:
            assert [Path(word).name for word in words] == [MAKE_DOCS.name]
    for name, *arguments in recorder.probes:
        inspect.signature(probes[name]).bind(*arguments)


def test_the_share_of_a_run_that_is_verified_is_read_from_its_document(
    make_run: Callable[..., Run],
) -> None:
    # 800 of 16384 blocks, 204800 of 2048 x 2048 elements: one of 20.48 each
    recorder = Recorder(REPOSITORY, REPOSITORY, 1, make_run())
    assert engine.verified_share(recorder) == pytest.approx(100 / 20.48)


def test_the_timed_runs_are_commands() -> None:
    for words, *_ in commands.RUNS:
        parse(words.split())


@pytest.mark.parametrize(
    "words", ["run tiled --width 256 --width 512", "run tiled --widht 256", "run no-such-kernel"]
)
def test_a_command_with_a_mistake_is_found(words: str) -> None:
    with pytest.raises((UsageError, typer.TyperException)):
        parse(words.split())


def test_every_stage_of_a_run_is_charged(tmp_path: Path) -> None:
    environment = os.environ | {"MEMLAB_STORE": str(tmp_path / "runs.sqlite3")}
    words = ("run", "tiled", "--width", "64", *EMULATED)
    done = subprocess.run(
        [sys.executable, "-m", stages.__name__, *words],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seconds = json.loads(done.stdout)
    assert [name for name, spent in seconds.items() if not spent > 0] == []
    assert seconds.keys() == {stages.IMPORTS, stages.REST, *stages.STAGES}


TABLES = {
    "issue": "tests/data/h200-issue.csv",
    "neighbours": "tests/data/h200-neighbours.csv",
    "loaded": "tests/data/h200-loaded.csv",
    "load_results": "docs/results/h200-load-results.csv",
    "scattered_loads": "docs/results/h200-scattered-loads.csv",
    "block_ends": "tests/data/h200-block-ends.csv",
    "block_paces": "docs/results/h200-block-paces.csv",
    "block_places": "docs/results/h100-block-places.csv",
    "hinted_lines": "docs/results/h100-hinted-lines.csv",
    "replaced_lines": "docs/results/h200-replaced-lines.csv",
    "contended_words": "docs/results/h200-contended-words.csv",
    "missed_loads": "docs/results/h100-missed-loads.csv",
    "stored_parts": "docs/results/h100-stored-parts.csv",
    "short_tiles": "docs/results/h100-short-tiles.csv",
    "constant_walks": "docs/results/h100-constant-walks.csv",
    "warp_ends": "docs/results/h200-warp-ends.csv",
    "active_clusters": "tests/data/h200-active-clusters.csv",
    "cluster_times": "tests/data/h200-cluster-times.csv",
    "barrier_waits": "docs/results/h200-barrier-waits.csv",
    "product_issue": "docs/results/h200-product-issue.csv",
    "load_clock": "docs/results/h200-load-clock.csv",
    "tensor_stores": "tests/data/h100-tensor-stores.csv",
    "launches": "tests/data/h200-launches.csv",
    "shared_copies": "docs/results/h200-copies.csv",
    "shared_floats": "docs/results/h200-shared-floats.csv",
    "tile_reads": "docs/results/h200-tile-reads.csv",
    "joins": "docs/results/h200-joins.csv",
    "kept_lines": "docs/results/h200-kept-lines.csv",
    "row_reads": "docs/results/h100-row-reads.csv",
    "shared_streams": "docs/results/h100-shared-streams.csv",
    "merged_copies": "docs/results/h200-merged-copies.csv",
    "copied_rows": "docs/results/h200-copied-rows.csv",
    "column_reads": "docs/results/h200-column-reads.csv",
    "row_updates": "docs/results/h200-row-updates.csv",
    "random_gathers": "docs/results/h200-random-gathers.csv",
    "cas_loops": "docs/results/h200-cas-loops.csv",
}
"""Tables of micro-benchmarks, by the programs that print them."""


def test_all_microbenchmarks_are_there() -> None:
    names = [*microbenchmarks.TIMED, *microbenchmarks.COUNTED]
    assert len(set(names)) == len(names)
    assert set(TABLES) <= set(names)
    for name in names:
        assert (microbenchmarks.HERE / f"{name}.cu").is_file()


@pytest.mark.parametrize(("name", "table"), TABLES.items())
def test_tables_have_the_columns_that_microbenchmarks_print(name: str, table: str) -> None:
    source = (microbenchmarks.HERE / f"{name}.cu").read_text()
    joined = re.sub(r'"\s+"', "", source)
    (header,) = re.findall(r'printf\("([a-z_][a-z0-9_,]+)\\n"\)', joined)
    columns = header.split(",")
    if name in microbenchmarks.COUNTED:
        columns += microbenchmarks.COUNTED[name].metrics
    with (REPOSITORY / table).open() as file:
        found = file.readline().rstrip("\n").split(",")
    # A table of one kernel leaves out its name.
    assert found in (columns, columns[1:] if columns[0] == "kernel" else columns)


def test_clocks_of_hopper_are_of_the_launches_and_columns_of_the_table() -> None:
    h100 = load_datasheet("h100")
    launches = []
    for name, sizes in hopper_clocks.LAUNCHES:
        assert hopper_clocks.prepared(name, sizes, h100).kernel == name
        launches.append(hopper_clocks.launch_text(name, sizes))
    with (REPOSITORY / "docs" / "results" / "h100-hopper-clocks.csv").open() as file:
        head, *rows = (line.split(",") for line in file)
    assert head[0] == "launch"
    assert [name.strip() for name in head[2:]] == [*hopper_clocks.METRICS]
    assert [row[0] for row in rows[: len(launches)]] == launches


@pytest.mark.parametrize(
    ("table", "launches", "metric"),
    [
        ("docs/results/h200-hopper-clocks.csv", 22, "dram__cycles_elapsed.max"),
        ("docs/results/h200-hopper-repeats.csv", 20, "lrc__lts2lrc_sectors_op_read.sum"),
        ("docs/results/h200-hopper-stalls.csv", 19, "smsp__issue_active.avg"),
        ("tests/data/h200-hopper-waves.csv", 15, "lts__t_sectors_srcunit_tex_op_read.sum"),
    ],
)
def test_a_table_of_hopper_can_be_counted_again(table: str, launches: int, metric: str) -> None:
    path, h200 = REPOSITORY / table, load_datasheet("h200")
    found, metrics = hopper_clocks.table_of(path)
    assert len(found) == launches
    for name, sizes in found:
        assert hopper_clocks.prepared(name, sizes, h200).kernel == name
    assert [hopper_clocks.launch_text(*launch) for launch in found] == list(
        dict.fromkeys(line.split(",")[0] for line in path.read_text().splitlines()[1:])
    )
    assert metric in metrics.values()
    assert all("." in name for name in metrics.values())
