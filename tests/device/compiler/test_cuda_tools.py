import os
from pathlib import Path

import numpy as np
import pytest

from memlab.device.compiler import cuda_tools
from memlab.device.compiler.cuda_tools import find_cuda_tool, tool_version


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Folders of tools in the order of the search, none of which holds anything yet."""
    for variable in cuda_tools.TOOLKIT_VARIABLES:
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(cuda_tools, "DEFAULT_TOOLKIT", tmp_path / "default")
    monkeypatch.setattr(cuda_tools, "_package_folders", lambda: (tmp_path / "package",))
    return [
        tmp_path / "package",
        *(tmp_path / variable / "bin" for variable in cuda_tools.TOOLKIT_VARIABLES),
        tmp_path / "path",
        tmp_path / "default" / "bin",
    ]


def _put(folder: Path, name: str, mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_the_first_place_of_the_documented_order_wins(places):
    assert find_cuda_tool("toolx") is None
    for folder in reversed(places):  # the last one first, so that each must beat all behind it
        tool = _put(folder, "toolx")
        assert find_cuda_tool("toolx") == tool


def test_folders_and_files_without_an_executable_bit_are_no_tools(places):
    (places[0] / "toolx").mkdir(parents=True)
    _put(places[1], "toolx", 0o644)
    last = _put(places[-1], "toolx")
    assert find_cuda_tool("toolx") == last


def test_a_changed_tool_has_another_version(places):
    path = _put(places[-1], "toolx")
    before = tool_version(path, "nvidia-cuda-nvdisasm")
    path.write_text("#!/bin/sh\nexit 1\n")
    os.utime(path, ns=(1, 1))
    assert tool_version(path, "nvidia-cuda-nvdisasm") != before


def test_a_tool_of_the_packages_has_the_version_of_its_package(places):
    path = _put(places[0], "toolx")
    assert tool_version(path, "numpy") == np.__version__
