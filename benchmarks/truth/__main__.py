"""The command `python -m benchmarks.truth`: prepare and make measurements, compare with them.

python -m benchmarks.truth compare [--held-out] [--jobs N] [--cache FOLDER] [--only TEXT ...]
        [--errors FILE]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.truth import compare, errors
from benchmarks.truth.cases import all_cases
from benchmarks.truth.measured import measured_launches
from benchmarks.truth.modelled import modelled_launches


def main() -> None:
    """Read the command line and run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    commands = parser.add_subparsers(required=True)
    comparing = commands.add_parser("compare", help="compare the emulated H200 with the measured")
    comparing.add_argument("--held-out", action="store_true", help="the launches put aside alone")
    comparing.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    comparing.add_argument("--cache", type=Path, help="a folder that keeps the emulations")
    comparing.add_argument("--only", nargs="+", default=[""], help="names that contain a text")
    comparing.add_argument("--errors", type=Path, help="write the quantiles of the errors here")
    comparing.set_defaults(command=_compare)
    options = parser.parse_args()
    options.command(options)


def _compare(options: argparse.Namespace) -> None:
    measured = measured_launches()
    cases = [
        case
        for case in all_cases()
        if case.name in measured
        and case.held_out == options.held_out
        and any(text in case.name for text in options.only)
    ]
    by_name, compared = {case.name: case for case in cases}, []
    for name, modelled in modelled_launches(cases, options.jobs, options.cache):
        if modelled.failure:
            print(f"{name}: not emulated: {modelled.failure}", file=sys.stderr)
        else:
            compared.append(compare.Comparison(by_name[name], measured[name], modelled))
    if not compared:
        sys.exit("no launch with measurements was emulated")
    print(f"{compare.launch_table(compared)}\n\n{compare.summary(compared)}")
    if options.errors:
        options.errors.write_text(errors.quantiles_toml(compared))


if __name__ == "__main__":
    main()
