"""Print every figure with its limit; exit with 1 if one is missed."""

from __future__ import annotations

import os
import sys

from benchmarks import commands, engine, user_kernels
from benchmarks.truth import cases, compare


def main() -> int:
    """Run all benchmarks, in about a quarter of an hour."""
    print("Engine, old beside new")
    figures = engine.report(engine.default_rows())
    print(flush=True)
    for title, measure in (
        ("Whole commands", commands.runs),
        ("Start-up", commands.start_up),
        ("User kernels, 4 million elements", user_kernels.runs),
        ("Headers", user_kernels.headers),
    ):
        measured = measure()
        figures += measured
        print(f"{title}\n" + "\n".join(figure.line() for figure in measured) + "\n", flush=True)
    for held_out, title in {cases.USED: "used for the models", **cases.SETS}.items():
        chosen = cases.chosen_cases(held_out)
        compared = compare.compare_launches(chosen, os.cpu_count() or 1)
        measured = compare.figures(compared, title)
        figures += measured
        print(f"Models against an NVIDIA H200, launches {title}\n{compare.summary(compared)}\n")
        print("\n".join(figure.line() for figure in measured) + "\n", flush=True)
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
