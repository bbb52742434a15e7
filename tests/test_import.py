"""What `import memlab` costs and gives."""

from __future__ import annotations

import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from importlib import import_module, metadata, resources
from pathlib import Path

import pytest
from paths import REPOSITORY

import memlab
from memlab.cli.app import COMMANDS

HEAVY = {"numpy", "pandas", "matplotlib", "typer", "rich", "cuda", "elftools", "sqlite3", "pycuda"}


def all_modules() -> list[str]:
    """Every module of memlab."""
    return [module.name for module in pkgutil.walk_packages(memlab.__path__, "memlab.")]


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


@pytest.mark.parametrize("package", ["pycuda", "cuda", "triton"])
def test_no_gpu_package_is_imported_before_it_is_needed(package: str) -> None:
    assert package not in imported_by("import memlab; memlab.run; memlab.peaks; memlab.report")


def test_a_command_that_executes_nothing_does_not_import_the_emulator() -> None:
    assert "llvmlite" not in imported_by("import memlab; memlab.devicequery('h200')")


def test_the_public_names_are_there_and_nothing_else() -> None:
    commands = set(COMMANDS) - {"init", "help", "baseline"}
    errors = {"MemlabError", "UsageError", "DeviceError", "Incomplete", "MemlabWarning"}

    assert set(dir(memlab)) == commands | errors | {
        "report",
        "report_page",
        "frame",
        "inout",
        "offset",
        "out",
        "find_runs",
        "annotate",
        "save_baseline",
        "source",
        "texture",
        "surface",
        "tensor_map",
        "check_baseline",
        "__version__",
    }
    assert memlab.__version__ == metadata.version("memlab")
    with pytest.raises(AttributeError, match="no attribute 'roofing'"):
        _ = memlab.roofing


def test_no_import_puts_a_module_in_place_of_a_function() -> None:
    modules = [name for name in all_modules() if not name.endswith("__main__")]
    code = f"""
import importlib, inspect, memlab
for name in {modules!r}:
    importlib.import_module(name)
import memlab.kernels.catalog, memlab.roofline.plots.roofline
from memlab import *
for name in memlab.__all__:
    value = getattr(memlab, name)
    assert value is globals()[name]
    assert name == "__version__" or inspect.isclass(value) or inspect.isfunction(value), name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_under_the_name_of_a_function_can_be_imported() -> None:
    import memlab.kernels.catalog as catalog  # noqa: PLR0402 - this form is what is tested
    import memlab.roofline.units as units  # noqa: PLR0402

    assert catalog is sys.modules["memlab.kernels.catalog"]
    assert units is sys.modules["memlab.roofline.units"]
    assert inspect.signature(memlab.kernels).parameters == {}
    assert memlab.kernels.__name__ == "kernels"
    assert "Returns:" in (inspect.getdoc(memlab.kernels) or "")


@pytest.mark.parametrize("name", sorted(set(memlab.__all__) - {"__version__"}))
def test_the_help_of_a_name_is_complete(name: str) -> None:
    public = getattr(memlab, name)
    text = inspect.getdoc(public) or ""

    assert "memlab.lab" not in text
    assert not re.search(r"\b[Ss]ee `", text)
    if inspect.isfunction(public):
        parameters = inspect.signature(public).parameters
        for parameter in parameters:
            assert re.search(rf"^ +\*{{0,2}}{parameter}: ", text, re.MULTILINE), parameter
        assert "Returns:" in text


def test_nothing_is_stored_unless_asked() -> None:
    functions = [getattr(memlab, name) for name in memlab.__all__]
    defaults = [
        inspect.signature(function).parameters["keep"].default
        for function in functions
        if inspect.isfunction(function) and "keep" in inspect.signature(function).parameters
    ]
    assert defaults
    assert not any(defaults)


def test_python_dash_m_is_the_command_line() -> None:
    command = [sys.executable, "-m", "memlab", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == f"memlab {memlab.__version__}\n"


def bare_checkout(folder: Path, links: bool) -> Path:
    """A clone in which nothing was installed; without links, as git makes it where it cannot."""
    package = folder / "memlab"
    package.mkdir()
    for file in (REPOSITORY / "memlab").glob("*.py"):
        shutil.copy(file, package)
    for room in ("cli", "device", "kernels", "lessons", "roofline"):
        if links:
            (package / room).symlink_to(REPOSITORY / room)
        else:
            (package / room).write_text(f"../{room}")
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize(
    ("links", "step"), [(True, "run 'pip install .'"), (False, "git checkout HEAD -- memlab")]
)
def test_a_bare_checkout_says_in_one_line_what_to_do(
    links: bool, step: str, tmp_path: Path
) -> None:
    folder = bare_checkout(tmp_path, links)
    for words in (["-c", "import memlab"], ["-m", "memlab", "run", "tiled"]):
        done = subprocess.run(
            [sys.executable, "-S", *words],  # -S: no installed packages
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={"PATH": "/usr/bin:/bin"},
        )
        *traceback, last = done.stderr.splitlines()
        assert done.returncode == 1
        assert "memlab is not installed" in last
        assert step in last
        assert "circular" not in done.stderr
        assert not (traceback and words[0] == "-m")


@pytest.mark.parametrize("name", ["cli", "kernels", "device", "roofline"])
def test_the_rooms_are_installed_inside_memlab(name: str) -> None:
    assert import_module(f"memlab.{name}")


def test_sources_and_datasheets_are_installed() -> None:
    kernels = {file.name for file in resources.files("memlab.kernels").iterdir()}
    sheets = {file.name for file in resources.files("memlab.device.datasheets").iterdir()}

    assert {"naive.cu", "tiled.cu", "tiled_dynamic.cu"} <= kernels
    assert {"h200.toml", "pmpp.toml"} <= sheets
