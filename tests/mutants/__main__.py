"""Plants faults, runs the tests on each, and reports the faults that no test finds."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .line_coverage import COMPILED, choose_tests, trace_coverage
from .operators import Mutation
from .targets import ROOT, Target, equivalents, sample, stale, targets
from .trial import Planter, Recorder, in_child, prepare, run_tests

PER_MODULE = 12
"""Faults drawn per module."""
LEAST = 0.9
"""Smallest fraction of the faults that the tests must find."""
BUDGET_S = 60.0
"""Seconds of tests per fault."""


@dataclass(frozen=True)
class Result:
    """The outcome of one fault.

    Attributes:
        target: The module.
        mutation: The fault.
        outcome: `killed`, `timeout` or `survived`.
        detail: The test that found the fault; for a survivor, how many tests ran.
    """

    target: Target
    mutation: Mutation
    outcome: str
    detail: str

    def line(self) -> str:
        """The fault with its place and outcome."""
        return f"{self.target.path}:{self.mutation.line}  {self.mutation.text}  [{self.detail}]"


def main() -> int:
    """Run the command; return 1 if too many faults survive or an equivalent entry is stale."""
    options = _argument_parser().parse_args()
    prepare()
    known = equivalents()
    selected = [
        target
        for target in targets()
        if (options.module in f"{target.room}:{target.path}" if options.module else target.default)
    ]
    paths = [target.path for target in targets()]
    coverages = {}
    for file in dict.fromkeys(file for target in selected for file in target.tests):
        print(f"tracing {file}", file=sys.stderr, flush=True)
        coverages[file] = trace_coverage(file, paths)
    results = []
    equivalent: Counter[str] = Counter()
    for target in selected:
        most = None if options.all else options.per_module
        for mutation in sample(target.mutations(), options.seed, most):
            if any(entry.matches(target.path, mutation) for entry in known):
                equivalent[target.path] += 1
                continue
            tests = choose_tests(target, mutation, coverages, options.budget)
            results.append(_try(target, mutation, tests))
            print(f"{results[-1].outcome:<9}{results[-1].line()}", file=sys.stderr, flush=True)
    found = sum(result.outcome != "survived" for result in results)
    print(_report(results, equivalent))
    paths = [target.path for target in selected]
    outdated = stale([entry for entry in known if entry.path in paths])
    for entry in outdated:
        print(f"stale in equivalent.toml: {entry.path}  {entry.line}  {entry.mutation}")
    return int(bool(outdated) or found < options.least * len(results))


def _argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--module", default="", help="select the modules whose ROOM:PATH contains this text"
    )
    parser.add_argument(
        "--per-module", type=int, default=PER_MODULE, help="faults drawn per module"
    )
    parser.add_argument("--all", action="store_true", help="plant all faults")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of tests per fault")
    parser.add_argument(
        "--least",
        type=float,
        default=LEAST,
        help="smallest fraction of the faults that must be found",
    )
    return parser


def _try(target: Target, mutation: Mutation, tests: dict[str, float]) -> Result:
    """Plant a fault and run its tests until one of them fails."""
    if not tests:
        return Result(target, mutation, "survived", "no test executes it")
    limit_s = 30.0 + 5 * sum(tests.values())
    run = in_child(lambda folder: _failed_test(target, mutation, tests, folder), limit_s)
    if run.timed_out:
        return Result(target, mutation, "timeout", "too slow")
    if run.answer is None:
        return Result(target, mutation, "killed", "the process ended")
    if run.answer:
        return Result(target, mutation, "killed", run.answer)
    return Result(target, mutation, "survived", f"{len(tests)} tests pass")


def _failed_test(target: Target, mutation: Mutation, tests: dict[str, float], folder: Path) -> str:
    """The first test that finds a fault; empty if none does."""
    path = ROOT / target.path
    code = compile(mutation.plant(target.source), path, "exec", dont_inherit=True)
    sys.meta_path.insert(0, Planter(path, code))
    # A fault may spoil compiled files, so they go to a copy of the cache.
    compiled = folder / "compiled"
    shutil.copytree(COMPILED, compiled, copy_function=os.link)
    plugin = Recorder(tests)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    run_tests(files, folder, compiled, plugin, "-x")
    return plugin.failed


def _report(results: Sequence[Result], equivalent: Counter[str]) -> str:
    """The table of modules and rooms, and the list of survivors."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.target.path].append(result)
    for result in results:
        groups[f"room {result.target.room}"].append(result)
    groups["all"] = list(results)
    head = ("", "faults", "killed", "timeout", "survived", "equivalent", "found")
    form = "{:<48}" + "{:>11}" * (len(head) - 1)
    lines = [form.format(*head)]
    for name, group in groups.items():
        outcomes = Counter(result.outcome for result in group)
        skipped = sum(equivalent[path] for path in {result.target.path for result in group})
        found = f"{1 - outcomes['survived'] / len(group):.0%}" if group else "-"
        counts = (len(group), *(outcomes[name] for name in ("killed", "timeout", "survived")))
        lines.append(form.format(name, *counts, skipped, found))
    lines += ["", "Survivors"]
    for result in results:
        if result.outcome == "survived":
            lines += [result.line(), f"    {result.mutation.source}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
