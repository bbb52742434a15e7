"""What the text of a PTX file declares, by hand-written PTX with the answers known."""

import pytest

from memlab.device.compiler import ptx_text

MODULE = """
// .version 1.0 in a comment, and .entry not_this
.version 8.7
.target sm_90a, texmode_independent
.address_size 64
.file 1 "/a//b.cu"
.visible .shared .align 4 .b8 table[40];
.extern .shared .align 16 .b8 dynamic[];
.visible .const .align 8 .f64 factors[3] = {1.0, 2.0, 3.0};
.global .align 4 .u32 counter;
.extern .global .align 4 .u32 elsewhere;

.extern .func (.param .b32 result) vprintf (.param .b64 a, .param .b64 b);

.func (.param .b32 result) helper(.param .b32 x)
{
    .shared .align 4 .b8 inner[12];
    { mov.u32 %r1, inner; }
    ret;
}

.visible .entry first(
    .param .u64 .ptr .global .align 16 in, /* .param .u64 left_out, */
    .param .align 8 .b8 view[24],
    .param .f32 factor
)
.maxntid 16, 8
.minnctapersm 2
{
    .loc 2 7 1
    .loc 1 30 5
    mov.u32 %r0, table;
    call (r), helper, (x);
    ret;
}
.visible .entry second() .reqntid 32 { .shared .b8 alone[4]; mov.u32 %r0, alone; ret; }
"""


def test_the_head_of_a_module_is_read_and_comments_are_not():
    assert ptx_text.version(MODULE) == (8, 7)
    assert str(ptx_text.target(MODULE)) == "sm_90a"
    assert ptx_text.address_bits(MODULE) == 64
    assert list(ptx_text.kernels(MODULE)) == ["first", "second"]
    assert ptx_text.kernels(MODULE)["first"].line == 22


def test_parameters_have_their_sizes_alignments_and_kinds():
    first = ptx_text.parameters(ptx_text.kernels(MODULE)["first"])
    assert [(each.name, each.nbytes, each.alignment_bytes) for each in first] == [
        ("in", 8, 8),
        ("view", 24, 8),
        ("factor", 4, 4),
    ]
    assert [each.is_pointer for each in first] == [True, False, False]
    assert [each.is_array for each in first] == [False, True, False]
    assert ptx_text.parameters(ptx_text.kernels(MODULE)["second"]) == ()


def test_the_limits_of_blocks_are_read():
    kernels = ptx_text.kernels(MODULE)
    assert ptx_text.block_limits(kernels["first"]) == (128, None)
    assert ptx_text.block_limits(kernels["second"]) == (32, (32, 1, 1))


def test_shared_memory_counts_where_it_is_used_through_functions_too():
    assert ptx_text.static_shared_bytes(MODULE, "first") == 40 + 12
    assert ptx_text.static_shared_bytes(MODULE, "second") == 4


def test_variables_have_their_shapes():
    found = {each.name: each for each in ptx_text.variables(MODULE)}
    assert found["factors"].shape == (3,)
    assert found["factors"].nbytes == 24
    assert found["factors"].is_initialized
    assert not found["counter"].is_initialized
    assert found["elsewhere"].is_extern


def test_the_source_is_the_file_of_the_first_line():
    other = MODULE.replace('.file 1 "/a//b.cu"', '.file 1 "/a//b.cu"\n.file 2 "h.cuh"')
    assert ptx_text.source_lines(other, "first") == ("h.cuh", 7)
    assert ptx_text.source_lines(other.replace(".loc 2 7 1", ""), "first") == ("/a//b.cu", 30)
    assert ptx_text.source_lines(other, "second") == ("", 0)


def test_modules_of_a_dump_are_told_apart_and_the_first_keeps_its_lines():
    dump = (
        "\nFatbin elf code:\n================\narch = sm_80\n\n"
        "Fatbin ptx code:\n================\narch = sm_80\ncompressed\n\n"
        ".version 8.0\n.target sm_80\n"
        "Fatbin ptx code:\n================\narch = sm_90\n\n.version 8.0\n.target sm_90\n"
    )
    first, second = ptx_text.split_modules(dump)
    assert first.splitlines().index(".version 8.0") == dump.splitlines().index(".version 8.0")
    assert first.split() == [".version", "8.0", ".target", "sm_80"]
    assert second.split() == [".version", "8.0", ".target", "sm_90"]
    assert ptx_text.split_modules("nothing of the kind") == []


@pytest.mark.parametrize(
    ("target", "as_ptx", "as_machine_code"),
    [
        ("sm_80", [(8, 0), (8, 6), (9, 0), (12, 0)], [(8, 0), (8, 6)]),
        ("sm_86", [(8, 6), (9, 0), (12, 0)], [(8, 6)]),
        ("sm_90a", [(9, 0)], [(9, 0)]),
        ("sm_120", [(12, 0)], [(12, 0)]),
        ("sm_75", [(7, 5), (8, 0), (8, 6), (9, 0), (12, 0)], [(7, 5)]),
        ("sm_100f", [], []),
    ],
)
def test_a_target_suits_the_gpus_that_nvidia_documents(target, as_ptx, as_machine_code):
    devices = [(7, 5), (8, 0), (8, 6), (9, 0), (12, 0)]
    found = ptx_text.read_target(target)
    assert [each for each in devices if found.runs_as_ptx(each)] == as_ptx
    assert [each for each in devices if found.runs_as_machine_code(each)] == as_machine_code


def test_a_family_target_suits_its_family():
    family = ptx_text.read_target("sm_100f")
    assert family.runs_as_ptx((10, 0))
    assert family.runs_as_ptx((10, 3))
    assert not family.runs_as_ptx((12, 0))
    assert not ptx_text.read_target("sm_103f").runs_as_ptx((10, 0))
