"""memlab.toml: its kernels, and that it can only name files in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from memlab.errors import UsageError
from memlab.kernels.user import project
from memlab.kernels.user.kernel import LAUNCH_OPTIONS, UserKernel
from memlab.kernels.user.launch_options import CPP_STANDARDS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a link out of it."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.cu").write_text("")
    (inside / "link.cu").symlink_to(tmp_path / "outside.cu")
    monkeypatch.chdir(inside)
    return inside


WHOLE = """
[kernels.saxpy]
source = "src/saxpy.cu"
entry = "ns::saxpy<32>"
grid = [64, 2]
block = 256
shared = 1024
defines = ["TILE=32"]
include = ["include"]
std = "c++20"
max-registers = 64
use-fast-math = true
prec-div = true
fmad = false
ptxas-options = ["-O1"]
args = ["f32=2.0", "f32[64]=@data/x.npy"]
constants = ["table=random"]
expect = ["y=@y.npy"]
tolerance = 1e-3

[kernels.other]
source = "other.cu"
"""


def test_a_file_gives_its_kernels_by_name(folder: Path) -> None:
    (folder / "memlab.toml").write_text(WHOLE)

    assert project.read_user_kernels() == {
        "saxpy": UserKernel(
            "src/saxpy.cu",
            "ns::saxpy<32>",
            "saxpy",
            grid=(64, 2),
            block=(256,),
            shared=1024,
            defines=("TILE=32",),
            include=("include",),
            std="c++20",
            max_registers=64,
            use_fast_math=True,
            prec_div=True,
            fmad=False,
            ptxas_options=("-O1",),
            args=("f32=2.0", "f32[64]=@data/x.npy"),
            constants=("table=random",),
            expect=("y=@y.npy",),
            tolerance=1e-3,
        ),
        "other": UserKernel("other.cu", "", "other"),
    }
    assert project.find_user_kernel("other") == UserKernel("other.cu", "", "other")
    assert project.find_user_kernel("a.cu:k") == UserKernel("a.cu", "k")
    assert project.find_user_kernel("tiled") is None


def test_a_byte_order_mark_does_no_harm(folder: Path) -> None:
    (folder / "memlab.toml").write_text("\ufeff" + WHOLE, "utf-8")
    assert list(project.read_user_kernels()) == ["saxpy", "other"]


def test_the_longest_file_is_read(folder: Path) -> None:
    (folder / "memlab.toml").write_text("# " + (2**20 - 2) * "x")
    assert project.read_user_kernels() == {}


def test_without_a_file_there_are_none(folder: Path) -> None:
    assert project.read_user_kernels() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[kernels.a]\nsource = \n",
            "memlab.toml is not valid TOML: Invalid value (at line 2, column 10)",
        ),
        ("[kernels.a]\ngrid = 1", "memlab.toml: kernels.a.source is missing: write source = "),
        ("[kernels.a]\nsource = 'a.cu'\ngrd = 1", "kernels.a.grd is unknown: did you mean 'grid'"),
        (
            "[kernels.a]\nsource = 'a.cu'\ngrid = true",
            "kernels.a.grid = true is not accepted. Blocks",
        ),
        (
            "[kernels.a]\nsource = 'a.cu'\ngrid = false",
            "kernels.a.grid = false is not accepted. Blocks",
        ),
        ("[kernels.a]\nsource = 'a.cu'\ngrid = [1, 2, 3, 4]", "grid = [1, 2, 3, 4] is not accept"),
        (
            "[kernels.a]\nsource = 'a.cu'\nblock = 0",
            "block = 0 is not accepted. Threads of a block",
        ),
        ("[kernels.a]\nsource = 'a.cu'\nargs = 'f32=2'", 'args = "f32=2" is not accepted. The arg'),
        ("[kernels.a]\nsource = 'a.cu'\nargs = [1]", 'write args = ["f32=2.0", '),
        ("[kernels.a]\nsource = 'a.cu'\nstd = 'c++98'", 'kernels.a.std = "c++98" is not accepted'),
        ("[kernels.a]\nsource = 'a.cu'\ntolerance = -1", "kernels.a.tolerance = -1 is not accept"),
        ("[kernels.a]\nsource = 'a.cu'\ntolerance = nan", "kernels.a: tolerance must be a number"),
        ("[kernels.a]\nsource = 'a.cu'\nftz = 'yes'", "write ftz = true"),
        ("[kernels.a]\nsource = 'a.cu'\nptxas-options = ['-o x']", "takes -O0 to -O3, got '-o x'"),
        ("[kernels.a]\nsource = 'a.cu'\nmax-registers = 300", "max-registers = 300 is not accept"),
        ("[kernels.a]\nsource = 'a.cu'\nreference = 'r.py:f'", "with --reference FILE.py:FUNCTION"),
        (
            "[kernels.tiled]\nsource = 'a.cu'",
            "kernels.tiled has the name of a kernel of the catalog",
        ),
        ("[kernels.'a.cu:b']\nsource = 'a.cu'", 'kernels."a.cu:b" is not a kernel name'),
        ("[kernel.a]\nsource = 'a.cu'", "kernel is unknown: did you mean 'kernels'?"),
        ("kernels = 3", "kernels = 3 is not accepted"),
        ("[kernels.a]\nsource = '../outside.cu'", 'kernels.a.source = "../outside.cu" leaves'),
        ("[kernels.a]\nsource = '/etc/passwd'", 'kernels.a.source = "/etc/passwd" leaves'),
        ("[kernels.a]\nsource = 'link.cu'", 'kernels.a.source = "link.cu" leaves the folder'),
        ("[kernels.a]\nsource = 'a/../a.cu'", 'kernels.a.source = "a/../a.cu" leaves'),
        ("[kernels.a]\nsource = 'a.cu'\ninclude = ['..']", 'kernels.a.include = ".." leaves'),
        ("[kernels.a]\nsource = 'a.cu'\nargs = ['f32[4] = @/x.npy']", 'kernels.a.args = "/x.npy"'),
        ("[kernels.a]\nsource = 'a.cu'\nconstants = ['t=@../t.npy']", "kernels.a.constants = "),
        ("[kernels.a]\nsource = 'a.cu'\nexpect = ['y=@../y.npy']", "kernels.a.expect = "),
        ('[kernels.a]\nsource = "a\\u0000.cu"', "leaves the folder of memlab.toml"),
        ("a = " + 5000 * "[", "memlab.toml is"),
        ("a = " + 5000 * "9", "memlab.toml is not valid TOML"),
        ("# " + (2**20 - 1) * "x", "memlab.toml is not a file of at most 1048576 bytes"),
        (f'[kernels.a]\nsource = "a.cu"\n{61 * "k"} = 1', f'a."{58 * "k"}… is unknown'),
    ],
)
def test_what_a_file_may_not_say_is_one_line(text: str, said: str, folder: Path) -> None:
    (folder / "memlab.toml").write_text(text)

    with pytest.raises(UsageError) as error:
        project.read_user_kernels()

    assert said in str(error.value)
    assert "memlab.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_and_a_folder_in_the_way_are_refused(folder: Path) -> None:
    (folder / "memlab.toml").write_bytes(b"# \xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        project.read_user_kernels()
    (folder / "memlab.toml").unlink()
    (folder / "memlab.toml").mkdir()
    with pytest.raises(UsageError, match="is not a file"):
        project.read_user_kernels()


def test_the_schema_is_sound_and_knows_every_choice() -> None:
    schema = project.schema()
    Draft202012Validator.check_schema(schema)
    properties = schema["$defs"]["kernel"]["properties"]

    own = {name.replace("_", "-") for name in LAUNCH_OPTIONS} - {"reference"}
    assert set(properties) == own | {"source", "entry"}
    assert tuple(properties["std"]["enum"]) == CPP_STANDARDS
    for definition in properties.values():
        assert definition["description"]
        assert definition["examples"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(["source", "entry", "grid", "block", "args", "tolerance", "std", "x"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(table=st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_table_is_a_kernel_or_one_line(
    table: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "_read_document", lambda path: {"kernels": {"a": table}})
    said = ""
    try:
        found = project.read_user_kernels()
    except UsageError as error:
        said = str(error)
    else:
        assert found["a"].source == table["source"]
    assert "\n" not in said
