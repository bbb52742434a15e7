"""memlab: how well a CUDA kernel uses memory, and how close that brings it to the GPU's limits.

The commands of the command line, as functions:

    import memlab

    memlab.devicequery("a100").total_memory_bytes
    run = memlab.run("tiled", width=1024, tile=16)
    memlab.run("saxpy.cu:saxpy", grid=16, block=256, args=[2.0, x, memlab.inout(y), y.size])
    memlab.run(add, grid=16, block=256, args=[x, y, memlab.out(x.size, "f4")])   # of Numba
    memlab.analyze("transpose", width=512)
    memlab.check("tiled", width=100).findings
    memlab.sweep("tiled", tile=[8, 16, 32]).best
    memlab.roofline(run)

Each function returns a record, which prints as one line. A notebook shows its report or its
picture; `memlab.report` writes the report as text, and `memlab.frame` makes a pandas frame of runs.
Nothing is stored unless `keep=True` asks for it. `help(memlab.run)` tells the rest.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from memlab.presentation import set_presenter

if TYPE_CHECKING:
    from memlab.arguments import inout, offset, out, source, surface, texture
    from memlab.comparisons.baselines import check_baseline, save_baseline
    from memlab.comparisons.comparing import compare
    from memlab.drawing import roofline
    from memlab.errors import DeviceError, Incomplete, MemlabError, MemlabWarning, UsageError
    from memlab.inspection import analyze, check, occupancy, sass, trace
    from memlab.lookup import explain, kernels, lesson
    from memlab.named_runs import find_runs
    from memlab.pages import report_page
    from memlab.querying import calibrate, devicequery, doctor, peaks
    from memlab.reporting import frame, report
    from memlab.running import run
    from memlab.stored_runs import annotate, runs
    from memlab.sweeps.sweeping import sweep

    __version__: str

__all__ = [
    "DeviceError",
    "Incomplete",
    "MemlabError",
    "MemlabWarning",
    "UsageError",
    "__version__",
    "analyze",
    "annotate",
    "calibrate",
    "check",
    "check_baseline",
    "compare",
    "devicequery",
    "doctor",
    "explain",
    "find_runs",
    "frame",
    "inout",
    "kernels",
    "lesson",
    "occupancy",
    "offset",
    "out",
    "peaks",
    "report",
    "report_page",
    "roofline",
    "run",
    "runs",
    "sass",
    "save_baseline",
    "source",
    "surface",
    "sweep",
    "tensor_map",
    "texture",
    "trace",
]

_MODULES = {
    "arguments": ("inout", "offset", "out", "source", "surface", "tensor_map", "texture"),
    "comparisons.baselines": ("check_baseline", "save_baseline"),
    "comparisons.comparing": ("compare",),
    "drawing": ("roofline",),
    "errors": ("DeviceError", "Incomplete", "MemlabError", "MemlabWarning", "UsageError"),
    "inspection": ("analyze", "check", "occupancy", "sass", "trace"),
    "lookup": ("explain", "kernels", "lesson"),
    "named_runs": ("find_runs",),
    "pages": ("report_page",),
    "querying": ("calibrate", "devicequery", "doctor", "peaks"),
    "reporting": ("frame", "report"),
    "running": ("run",),
    "stored_runs": ("annotate", "runs"),
    "sweeps.sweeping": ("sweep",),
}
"""The modules that define the public names. Each is imported when one of its names is used, since
`import memlab` and `memlab --help` must not wait for NumPy."""

_ROOMS = ("cli", "device", "kernels", "lessons", "roofline")
"""The packages inside memlab. In a clone they are symbolic links."""

_REQUIRED = ("numpy", "typer", "rich", "platformdirs", "elftools")
"""Some of the packages that installing memlab installs."""


def _check_installation() -> None:
    """Stop with the next step where memlab is not installed.

    Raises:
        ImportError: Folders of memlab or packages that it needs are missing.
    """
    # os.path, since pathlib would be the slowest import of all.
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    root = os.path.dirname(folder)  # noqa: PTH120
    if not all(os.path.isdir(os.path.join(folder, room)) for room in _ROOMS):  # noqa: PTH112, PTH118
        problem = (
            "git has not made the symbolic links in memlab/: run 'git config core.symlinks true' "
            "and 'git checkout HEAD -- memlab' in that folder, then 'pip install .'"
        )
    elif missing := [name for name in _REQUIRED if find_spec(name) is None]:
        is_clone = os.path.isfile(os.path.join(root, "pyproject.toml"))  # noqa: PTH113, PTH118
        step = "'pip install .' in that folder" if is_clone else "'pip install memlab'"
        problem = f"{missing[0]} is missing: run {step}"
    else:
        return
    # With its name, `python -m memlab` prints the message alone.
    raise ImportError(f"memlab is not installed ({root}): {problem}", name=__name__)


_check_installation()

# Importing a package makes it an attribute of the package around it, once. It is done here, and
# undone, for those that have the name of a function.
_NAMESAKES = {name: import_module(f"{__name__}.{name}") for name in ("kernels", "roofline")}
for _name in _NAMESAKES:
    del globals()[_name]

set_presenter(lambda: import_module(f"{__name__}.reporting"))


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name == "__version__":
        from memlab.version import memlab_version

        value: Any = memlab_version()
    else:
        module = next((module for module, names in _MODULES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{module}"), name)
    if name in _NAMESAKES:
        # `import memlab.kernels.catalog as catalog` looks for the module in the function.
        value.__dict__ = _NAMESAKES[name].__dict__
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
