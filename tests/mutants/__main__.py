"""Plant faults, run the tests, and say which faults they do not find."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .operators import Mutation
from .reach import COMPILED, chosen, reach
from .targets import ROOT, Target, equivalents, sample, stale, targets
from .trial import Planter, Watcher, in_child, prepare, run_tests

PER_MODULE = 12
LEAST = 0.9
"""Share of the faults that must be found."""
BUDGET_S = 60.0
"""Seconds of tests for a fault."""


@dataclass(frozen=True)
class Result:
    """What became of a fault.

    Attributes:
        target: The module.
        mutation: The fault.
        end: `killed`, `timeout` or `survived`.
        how: The test that found it; of what survived, how many tests ran.
    """

    target: Target
    mutation: Mutation
    end: str
    how: str

    def line(self) -> str:
        """The fault, where it is, and what became of it."""
        return f"{self.target.path}:{self.mutation.line}  {self.mutation.text}  [{self.how}]"


def main() -> int:
    """Run what the command line asks for; 1 where too many faults survive, or an entry is stale."""
    asked = _words().parse_args()
    prepare()
    known = equivalents()
    taken = [each for each in targets() if asked.module in f"{each.room}:{each.path}"]
    paths = [each.path for each in targets()]
    reaches = {}
    for file in dict.fromkeys(file for each in taken for file in each.tests):
        print(f"watching {file}", file=sys.stderr, flush=True)
        reaches[file] = reach(file, paths)
    results = []
    equivalent: Counter[str] = Counter()
    for target in taken:
        most = None if asked.all else asked.per_module
        for mutation in sample(target.mutations(), asked.seed, most):
            if any(each.is_(target.path, mutation) for each in known):
                equivalent[target.path] += 1
                continue
            tests = chosen(target, mutation, reaches, asked.budget)
            results.append(_try(target, mutation, tests))
            print(f"{results[-1].end:<9}{results[-1].line()}", file=sys.stderr, flush=True)
    killed = sum(each.end != "survived" for each in results)
    print(_report(results, equivalent))
    old = stale([each for each in known if any(each.path == other.path for other in taken)])
    for each in old:
        print(f"stale in equivalent.toml: {each.path}  {each.line}  {each.mutation}")
    return int(bool(old) or killed < asked.least * len(results))


def _words() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    words.add_argument("--module", default="", help="only rooms:modules whose names contain this")
    words.add_argument("--per-module", type=int, default=PER_MODULE, help="faults a module")
    words.add_argument("--all", action="store_true", help="every fault there is")
    words.add_argument("--seed", type=int, default=0, help="of the draw")
    words.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of tests a fault")
    words.add_argument("--least", type=float, default=LEAST, help="share that must be found")
    return words


def _try(target: Target, mutation: Mutation, tests: dict[str, float]) -> Result:
    """Plant a fault and run its tests until one fails."""
    if not tests:
        return Result(target, mutation, "survived", "no test runs it")
    limit_s = 30.0 + 5 * sum(tests.values())
    ending = in_child(lambda folder: _failed(target, mutation, tests, folder), limit_s)
    if ending.late:
        return Result(target, mutation, "timeout", "too slow")
    if ending.answer is None:
        return Result(target, mutation, "killed", "the process ended")
    if ending.answer:
        return Result(target, mutation, "killed", ending.answer)
    return Result(target, mutation, "survived", f"{len(tests)} tests pass")


def _failed(target: Target, mutation: Mutation, tests: dict[str, float], folder: Path) -> str:
    """The first test that finds a fault; empty where none does."""
    path = ROOT / target.path
    code = compile(mutation.plant(target.source), path, "exec", dont_inherit=True)
    sys.meta_path.insert(0, Planter(path, code))
    # With a fault, what is compiled may be wrong: none of it is kept.
    compiled = folder / "compiled"
    shutil.copytree(COMPILED, compiled, copy_function=os.link)
    watcher = Watcher(tests)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    run_tests(files, folder, compiled, watcher, "-x")
    return watcher.failed


def _report(results: Sequence[Result], equivalent: Counter[str]) -> str:
    """The table of modules and rooms, and what survived."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for each in results:
        groups[each.target.path].append(each)
    for each in results:
        groups[f"room {each.target.room}"].append(each)
    groups["all"] = list(results)
    head = ("", "faults", "killed", "timeout", "survived", "equivalent", "found")
    form = "{:<48}" + "{:>11}" * (len(head) - 1)
    lines = [form.format(*head)]
    for name, group in groups.items():
        ends = Counter(each.end for each in group)
        same = sum(equivalent[path] for path in {each.target.path for each in group})
        share = f"{1 - ends['survived'] / len(group):.0%}" if group else "-"
        counts = (len(group), ends["killed"], ends["timeout"], ends["survived"], same)
        lines.append(form.format(name, *counts, share))
    lines += ["", "Survivors"]
    for each in results:
        if each.end == "survived":
            lines += [each.line(), f"    {each.mutation.source}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
