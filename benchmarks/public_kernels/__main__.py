"""The command `python -m benchmarks.public_kernels`: run the listed kernels of public repositories.

    python -m benchmarks.public_kernels CHECKOUTS [--only TEXT] [--kernel TEXT] [--jobs N]
                                        [--write FOLDER]

`CHECKOUTS` is a folder with the repositories, each at the commit of its list and named without its
owner. With `--write docs/results` the results of all lists go to `public-kernels.csv` and `.md`.
The exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.public_kernels.listing import read_lists
from benchmarks.public_kernels.results import figures, write_results
from benchmarks.public_kernels.trial import Trial, run_trial


def main() -> int:
    """Read the command line, run the kernels, print and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.public_kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="repositories whose names contain a text")
    parser.add_argument("--kernel", default="", help="kernels whose names contain a text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--write", type=Path, help="the folder of the results")
    chosen = parser.parse_args()
    kernels = [each for each in read_lists(chosen.only) if chosen.kernel in each.name]
    folders = {chosen.checkouts / each.folder for each in kernels}
    missing = sorted(str(each) for each in folders if not each.is_dir())
    if missing:
        parser.error(f"there is no checkout {missing[0]}: clone it there, or choose with --only")
    trials = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for trial in pool.map(partial(run_trial, checkouts=chosen.checkouts), kernels):
            trials.append(trial)
            print(_line(trial), flush=True)
    measured = figures(trials)
    print("\n".join(figure.line() for figure in measured))
    if chosen.write:
        write_results(trials, chosen.write)
    return int(any(figure.missed for figure in measured))


def _line(trial: Trial) -> str:
    """A trial in a few words."""
    parts = [
        f"{trial.repository} {trial.file}:{trial.kernel}: {trial.first_result}",
        trial.message,
        f"second command {trial.second_result}" if trial.second_command else "",
        f"{trial.seconds} s" if trial.seconds else "",
        f"reference {trial.verified}" if trial.verified else "",
        f"check {trial.check_result}" if trial.check_result else "",
        f"{trial.findings} ({trial.judged})" if trial.findings else "",
    ]
    return "; ".join(filter(None, parts))


if __name__ == "__main__":
    sys.exit(main())
