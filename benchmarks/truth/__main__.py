"""The command `python -m benchmarks.truth`: prepare and make measurements, compare with them.

    python -m benchmarks.truth compare [--held-out [2|3|4|5|6] | --all | --public CHECKOUTS]
                                       [--jobs N] [--cache FOLDER] [--only TEXT ...] [--operations]
                                       [--stalls] [--errors FILE]
                                       [--device NAME | FILE.toml] [--measured TABLE.csv]
    python -m benchmarks.truth data FOLDER
    python -m benchmarks.truth prepare FOLDER [--only TEXT ...]
                                       [--held-out [2|3|4|5|6] | --public CHECKOUTS]
    python -m benchmarks.truth measure FOLDER TABLE.csv [--seconds N]

`prepare` compiles launches to a folder; `measure` runs them on the GPU of the machine that it runs
on, under Nsight Compute; the table belongs to `docs/results/h200-truth.csv`, that of the kinds
`operations` and `atomics` to `h200-operations.csv`, those of the later sets that were put aside to
the tables with `held-out` in their names, that of the public kernels of the lists of
`benchmarks.public_kernels` to `h100-public-kernels.csv`. `compare` runs the launches on the
emulated device that was measured, or with `--device` and `--measured` those that another GPU ran on
it, emulated; with `--operations` it lists integer operations, 16-bit FLOPs and instructions by
pipe. `data` writes the arrays that launches read from files, for `memlab run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.truth import cases, compare, data, errors, measure
from memlab.device.datasheets import loader
from memlab.device.properties import DeviceProperties


def main() -> None:
    """Read the command line and run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.truth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    chosen: dict[str, Any] = {
        "nargs": "+",
        "default": [""],
        "metavar": "TEXT",
        "help": "names that contain a text, or a kind",
    }
    aside: dict[str, Any] = {
        "nargs": "?",
        "type": int,
        "const": cases.FIRST_ASIDE,
        "choices": tuple(cases.SETS),
        "help": "the launches put aside alone: at first, or later: second (2) to sixth (6)",
    }
    public: dict[str, Any] = {
        "type": _folder,
        "metavar": "CHECKOUTS",
        "help": "the kernels of public repositories in a folder of their checkouts",
    }
    comparing = commands.add_parser("compare", help="compare the emulated with the measured")
    sets = comparing.add_mutually_exclusive_group()
    sets.add_argument("--held-out", **aside)
    sets.add_argument("--all", action="store_true", help="these and the others")
    sets.add_argument("--public", **public)
    comparing.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    comparing.add_argument("--cache", type=Path, help="a folder that keeps the emulations")
    comparing.add_argument("--only", **chosen)
    comparing.add_argument("--operations", action="store_true", help="list arithmetic by pipe")
    comparing.add_argument("--stalls", action="store_true", help="list why warps wait")
    comparing.add_argument("--errors", type=Path, help="write the quantiles of the errors here")
    comparing.add_argument("--device", help="a datasheet, its name or .toml; else the measured one")
    comparing.add_argument("--measured", type=Path, help="the table of another GPU's measurement")
    comparing.set_defaults(command=_compare)
    for name, help_text in (
        ("data", "write the arrays that launches read from files"),
        ("prepare", "compile all launches to a folder"),
        ("measure", "measure them on this machine's GPU"),
        ("time", "time launches with events; for `measure`"),
        ("launch", "run launches once; for `measure`"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("folder", type=Path)
        command.set_defaults(command=_on_folder, verb=name)
        if name == "prepare":
            command.add_argument("--only", **chosen)
            sets = command.add_mutually_exclusive_group()
            sets.add_argument("--held-out", **aside)
            sets.add_argument("--public", **public)
        elif name == "measure":
            command.add_argument("table", type=Path)
            command.add_argument("--seconds", type=float, default=360.0, help="the limit")
        elif name in ("time", "launch"):
            command.add_argument("names", nargs="+")
    options = parser.parse_args()
    options.command(options)


def _folder(text: str) -> Path:
    folder = Path(text)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}: clone repositories there")
    return folder


def _on_folder(options: argparse.Namespace) -> None:
    match options.verb:
        case "data":
            for name in data.array_names():
                data.write_array(options.folder / f"{name}.npy")
        case "prepare":
            chosen = cases.chosen_cases(options.held_out, options.only, options.public)
            measure.prepare(options.folder, chosen)
        case "measure":
            measure.measure(options.folder, options.table, options.seconds)
        case verb:
            measure.run_launches(options.folder, options.names, timed=verb == "time")


def _compare(options: argparse.Namespace) -> None:
    every = options.all or options.public
    held_out = None if every else options.held_out or cases.USED
    compared = compare.compare_launches(
        cases.chosen_cases(held_out, options.only, options.public),
        options.jobs,
        options.cache,
        properties=_datasheet(options.device) if options.device else None,
        measured_table=options.measured,
    )
    if not compared:
        sys.exit("no launch with measurements was emulated")
    counters = compare.ARITHMETIC if options.operations else compare.SHOWN
    print(f"{compare.launch_table(compared, counters)}\n\n{compare.summary(compared)}")
    if options.stalls:
        print("\n" + compare.stall_table(compared))
    if options.errors:
        options.errors.write_text(errors.quantiles_toml(compared))


def _datasheet(name: str) -> DeviceProperties:
    is_path = loader.is_datasheet_path(name)
    return loader.read_datasheet(name) if is_path else loader.load_datasheet(name)


if __name__ == "__main__":
    main()
