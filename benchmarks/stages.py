"""Where a command spends its time: `python -m benchmarks.stages run tiled` prints it by stage.

The functions at which a stage of a run begins are wrapped. The time of a stage is that of its
functions without other stages inside them, so that the stages add up. What lies in none, such as
reading the command line, is `rest`.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from typing import Any

STAGES = {
    "compile": ("memlab.device.emulation.device:compile_launch",),
    "inputs": ("memlab.device.emulation.execution:make_inputs",),
    "load": (
        "memlab.device.emulation.execution:parser.parse_ptx",
        "memlab.device.emulation.execution:load_program",
    ),
    "machine code": ("memlab.device.emulator.codegen.program_code:_load",),
    "engine": ("memlab.device.emulation.execution:Execution.run",),
    "models": (
        "memlab.device.emulator.models.address_streams:build_access_stream",
        "memlab.device.emulation.cache_counters:model_caches",
        "memlab.device.emulation.device:warp_clocks",
    ),
    "verification": ("memlab.device.emulation.execution:verify",),
    "store": ("memlab.roofline.store.store:Store.check", "memlab.roofline.store.store:Store.add"),
    "report": ("memlab.cli.commands.run:_print_report",),
}
"""The stages of `memlab run`, with the places at which their functions are looked up."""

IMPORTS = "imports"
REST = "rest"
"""What lies in no stage, with the start of the interpreter."""


class StageClock:
    """Charges time to the innermost stage.

    Attributes:
        seconds: Seconds by stage.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {REST: 0.0, IMPORTS: 0.0} | dict.fromkeys(STAGES, 0.0)
        self._open = [REST]
        self._last = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge the time of a block of code to a stage."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._last
        self._last = now

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is charged to a stage."""

        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.stage(name):
                return function(*arguments, **named)

        return timed

    def watch_imports(self) -> None:
        """Charge the import of modules to `IMPORTS`."""
        # Python calls this function for each module that is not loaded yet.
        bootstrap: Any = sys.modules["_frozen_importlib"]
        bootstrap._find_and_load = self.wrap(IMPORTS, bootstrap._find_and_load)

    def watch_stages(self) -> None:
        """Wrap the functions of all stages."""
        for name, places in STAGES.items():
            for place in places:
                module, _, path = place.partition(":")
                *owners, attribute = path.split(".")
                owner: Any = importlib.import_module(module)
                for part in owners:
                    owner = getattr(owner, part)
                setattr(owner, attribute, self.wrap(name, getattr(owner, attribute)))


def measure(command: Sequence[str], repetitions: int) -> dict[str, float]:
    """Run a command of memlab in new processes; the seconds by stage of the fastest."""
    fastest: dict[str, float] = {}
    for _ in range(repetitions):
        started = time.perf_counter()
        process = subprocess.run(
            [sys.executable, "-m", __name__, *command], capture_output=True, check=True
        )
        wall_s = time.perf_counter() - started
        stages: dict[str, float] = json.loads(process.stdout)
        stages[REST] += wall_s - sum(stages.values())
        if not fastest or wall_s < sum(fastest.values()):
            fastest = stages
    return fastest


def main() -> int:
    """Run the command that the process was given, and print the seconds by stage as JSON."""
    clock = StageClock()
    clock.watch_imports()
    from memlab.cli.app import main as command_line

    clock.watch_stages()
    with redirect_stdout(sys.stderr):
        code = command_line(sys.argv[1:])
    print(json.dumps(clock.seconds))
    return code


if __name__ == "__main__":
    sys.exit(main())
