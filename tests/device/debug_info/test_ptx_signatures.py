"""Signatures from PTX, compared with those from debug information."""

import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.datasheets import loader
from memlab.device.debug_info.cubin_signatures import read_signature as read_of_cubin
from memlab.device.debug_info.kernel_lookup import signature_of
from memlab.device.debug_info.ptx_signatures import find_entry, find_signature, with_parameters
from memlab.device.devices import launch_limits
from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.signature import KernelParameter

H200 = loader.load_datasheet("h200")


@pytest.mark.parametrize("name", ["tiled", "filter-constant", "tensor-bf16", "register-pressure"])
def test_sizes_pointers_variables_and_bounds_are_those_of_debug_information(name):
    launch = CATALOG[name].prepare({}, launch_limits(H200))
    compiled = compile_launch(launch, (9, 0))
    truth = signature_of(TranslationUnit.of(launch, (9, 0)), launch.entry)
    found = find_signature(compiled.ptx, launch.entry, "k.ptx")
    assert [each.nbytes for each in found.parameters] == [each.nbytes for each in truth.parameters]
    for ours, theirs in zip(found.parameters, truth.parameters, strict=True):
        assert ours.kind in ("untyped", theirs.kind)
    sizes = {each.linkage_name: each.nbytes for each in found.variables}  # C++'s const ones, too
    assert sizes.items() >= {(each.linkage_name, each.nbytes) for each in truth.variables}
    assert found.bounds == truth.bounds
    assert found.used >= {each.linkage_name for each in truth.variables} & truth.used
    machine = read_of_cubin(compiled.cubin, launch.entry)
    assert [each.nbytes for each in machine.parameters] == [
        each.nbytes for each in truth.parameters
    ]
    assert machine.bounds == truth.bounds


def test_a_kernel_is_found_by_its_name_in_cpp():
    known = ["_Z5scalePfi", "_ZN2ns5scaleEPf", "plain", "_Z3addIfEvPT_"]
    assert find_entry(known, "plain", "k.ptx") == "plain"
    assert find_entry(known, "add", "k.ptx") == "_Z3addIfEvPT_"
    assert find_entry(known, "ns::scale", "k.ptx") == "_ZN2ns5scaleEPf"
    assert find_entry(["only"], "", "k.ptx") == "only"
    with pytest.raises(UsageError, match=r"several kernels 'scale'.*_Z5scalePfi.*_ZN2ns5scaleEPf"):
        find_entry(known, "scale", "k.ptx")
    with pytest.raises(UsageError, match=r"4 kernels, '_Z5scalePfi', .*as in k.ptx:_Z5scalePfi"):
        find_entry(known, "", "k.ptx")
    with pytest.raises(UsageError, match="no kernel 'plane': did you mean 'plain'"):
        find_entry(known, "plane", "k.ptx")
    with pytest.raises(UsageError, match="has no kernel: "):
        find_entry([], "", "k.ptx")


def test_a_front_ends_parameters_must_have_the_sizes_of_the_ptx():
    ptx = ".version 8.0\n.target sm_80\n.visible .entry k(.param .u64 a, .param .u32 n) { ret; }"
    signature = find_signature(ptx, "k", "k.ptx")
    pointer = KernelParameter("x", "pointer", "f32", "float *", 8)
    number = KernelParameter("n", "scalar", "i32", "int", 4)
    declared = with_parameters(signature, (pointer, number), "k.py")
    assert declared.parameters == (pointer, number)
    for wrong in ((pointer,), (pointer, pointer)):
        with pytest.raises(UsageError, match="8, 4 bytes in PTX"):
            with_parameters(signature, wrong, "k.py")


def test_the_variables_that_can_be_filled_are_listed():
    ptx = (
        ".version 8.0\n.target sm_80\n.global .align 4 .s32 counter;\n"
        ".extern .global .align 4 .u32 elsewhere;\n.const .align 8 .f64 table[3] = {1.0};\n"
        ".global .align 1 .b8 $str[4];\n.visible .entry k() { ret; }"
    )
    found = find_signature(ptx, "k", "k.ptx").variables
    assert [(each.name, each.space, each.dtype, each.shape) for each in found] == [
        ("counter", "global", "i32", ()),
        ("table", "const", "f64", (3,)),
    ]
    assert [each.initialized for each in found] == [False, True]


def test_a_parameter_that_cannot_be_read_is_quoted():
    ptx = ".version 8.0\n.target sm_80\n\n.visible .entry k(.param u64 a) { ret; }"
    with pytest.raises(UsageError, match=r"^k.ptx\(4\): the parameter '.param u64 a' of k"):
        find_signature(ptx, "k", "k.ptx")
