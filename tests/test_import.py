"""What `import memlab` costs and gives."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, resources

import pytest

import memlab

HEAVY = {"numpy", "pandas", "matplotlib", "typer", "rich", "cuda", "elftools", "sqlite3", "pycuda"}


def imported_by(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_memlab_imports_nothing_heavy() -> None:
    assert HEAVY.isdisjoint(imported_by("import memlab"))


@pytest.mark.parametrize("package", ["pycuda", "cuda"])
def test_no_gpu_package_is_imported_before_it_is_needed(package: str) -> None:
    assert package not in imported_by("import memlab; memlab.run; memlab.peaks; memlab.report")


def test_everything_promised_is_there() -> None:
    for name in memlab.__all__:
        assert getattr(memlab, name)


@pytest.mark.parametrize("name", ["cli", "kernels", "device", "roofline"])
def test_the_rooms_are_installed_inside_memlab(name: str) -> None:
    assert import_module(f"memlab.{name}")


def test_sources_and_datasheets_are_installed() -> None:
    kernels = {each.name for each in resources.files("memlab.kernels").iterdir()}
    sheets = {each.name for each in resources.files("memlab.device.datasheets").iterdir()}

    assert {"naive.cu", "tiled.cu", "tiled_dynamic.cu"} <= kernels
    assert {"h200.toml", "pmpp.toml"} <= sheets
