"""Records the results of the emulator again, and says in words what differs.

python -m tests.recorded                      record all cases, and write the files
python -m tests.recorded --only random-017    one case, or all whose name begins so
python -m tests.recorded --check              compare alone
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

from recorded_cases import CASES
from recorded_results import OtherCompiler, Record, as_json, compare, load, save


def main(words: Sequence[str] | None = None) -> int:
    """Record again; gives 1 where a comparison alone found a difference."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.recorded",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME", default="", help="a case, or how names begin")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(words)
    chosen = [case for case in CASES if case.name.startswith(options.only)]
    if not chosen:
        parser.error(f"no case has a name that begins with {options.only!r}")
    made: dict[str, dict[str, Record]] = defaultdict(dict)
    different = 0
    for case in chosen:
        try:
            now = as_json(case.record())
        except Exception as error:  # whatever an emulator under work raises
            now = {"raised": f"{type(error).__name__}: {error}"}
        made[case.file][case.name] = now
        before = load(case.file).get(case.name)
        try:
            found = ["not recorded yet"] if before is None else compare(before, now)
        except OtherCompiler as reason:
            found = [str(reason)]
        different += bool(found)
        for line in found:
            print(f"{case.name}: {line}", flush=True)
    for file, records in made.items():
        if not options.check:
            names = {case.name for case in CASES if case.file == file}
            kept = {name: record for name, record in load(file).items() if name in names}
            save(file, kept | records)
    print(f"{len(chosen) - different} of {len(chosen)} cases as recorded")
    return int(options.check and different > 0)


if __name__ == "__main__":
    sys.exit(main())
