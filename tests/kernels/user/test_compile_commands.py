"""The flags of a project's own build."""

import json
import os

import pytest

from memlab.kernels.user.compile_commands import ProjectFlags, project_flags
from memlab.kernels.user.kernel import UserKernel, compile_options


@pytest.fixture
def project(tmp_path):
    """A project with a source, folders of headers inside and outside, and its build's flags."""
    root = tmp_path / "project"
    for folder in ("src", "inc", "src/beside", "build/CMakeFiles"):
        (root / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / "src/k.cu").write_text("")
    return root


def write(project, command, place="build", file="../src/k.cu", **more):
    key = "arguments" if isinstance(command, list) else "command"
    entry = {"directory": str(project / "build"), "file": file, key: command, **more}
    other = {**entry, "file": "../src/other.cu", key: "nvcc -DOTHER"}
    (project / place / "compile_commands.json").write_text(json.dumps([other, entry]))
    os.utime(project / place / "compile_commands.json", ns=(1, hash(str(command)) & 0xFFFFFFFF))


@pytest.mark.parametrize("place", ["build", ".", "src"])
def test_the_flags_of_the_source_are_read(project, place):
    command = (
        "nvcc -forward-unknown-to-host-compiler -DTILE=16 -D NDEBUG '-DNAME=a b' -I../inc "
        f"-isystem={project}/src/beside -std=gnu++14 --options-file CMakeFiles/flags.rsp "
        '"--generate-code=arch=compute_80,code=[sm_80]" -gencode arch=compute_90a,code=sm_90a '
        "-x cu -c ../src/k.cu -o k.o"
    )
    (project / "build/CMakeFiles/flags.rsp").write_text("-DFROM_FILE -I ../src\n")
    write(project, command, place)
    inside = (f"{project}/inc", f"{project}/src/beside", f"{project}/src")
    if place == "src":  # the project is then the folder src
        inside = inside[1:]
    flags = project_flags(str(project / "src/k.cu"))
    defines = ("TILE=16", "NDEBUG", "NAME=a b", "FROM_FILE")
    assert flags.std == "c++14"
    assert flags.architectures == ("sm_80", "sm_90a")
    assert flags.defines == (defines if place != "src" else defines[:-1])
    assert flags.include == (inside if place != "src" else inside[:1])
    write(project, command.split(), place)
    assert project_flags(str(project / "src/k.cu")).std == "c++14"


def test_folders_outside_the_project_are_not_taken(project, tmp_path):
    (project / "link").symlink_to(tmp_path / "outside")
    write(project, f"nvcc -I{tmp_path}/outside -I../../outside -I/ -I../link -I.. -c ../src/k.cu")
    assert project_flags(str(project / "src/k.cu")).include == (str(project),)
    (tmp_path / "outside/flags.rsp").write_text("-DLEAKED")
    write(project, "nvcc --options-file ../../outside/flags.rsp -c ../src/k.cu")
    assert project_flags(str(project / "src/k.cu")) == ProjectFlags()


def test_what_the_user_says_comes_first(project):
    write(project, "nvcc -DTILE=16 -DSIDE=2 -I../inc -std=c++14 -arch=sm_90a -gencode=code=sm_80")
    source = str(project / "src/k.cu")
    options = compile_options(UserKernel(source, defines=("TILE=8",), include=(str(project),)))
    assert "-DTILE=16" not in options
    assert "-DSIDE=2" in options
    assert options.index(f"-I{project}") < options.index(f"-I{project}/inc")
    assert "-std=c++14" in options
    assert "--specific-arch=sm_90a" in options
    assert not any("sm_80" in option for option in options)
    assert "-std=c++14" not in compile_options(UserKernel(source, std="c++20"))


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "[1, {}]", '[{"directory": 1, "file": 2}]', "[" * 100_000]
)
def test_a_damaged_file_counts_as_none(project, text):
    (project / "build/compile_commands.json").write_text(text)
    assert project_flags(str(project / "src/k.cu")) == ProjectFlags()


def test_a_source_that_no_build_compiles_has_no_flags(project):
    write(project, "nvcc -DTILE=16")
    (project / "src/new.cu").write_text("")
    assert project_flags(str(project / "src/new.cu")) == ProjectFlags()
    assert project_flags("nul\0.cu") == ProjectFlags()
