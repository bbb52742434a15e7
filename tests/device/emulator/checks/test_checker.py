"""What the tools are told of a launch, and what one tool alone does."""

import numpy as np
import pytest
from ptx import check, kernel, numbered

from memlab.device.checking.findings import TOOLS
from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.checks.observations import Site

EVERYTHING = """.reg .pred %p; .reg .b32 %t, %x; .reg .b64 %a; .shared .align 4 .b8 s[64];
mov.u32 %t, %tid.x; ld.param.u64 %a, [a];
cp.async.ca.shared.global [s], [%a], 4; cp.async.commit_group; cp.async.wait_group 0;
membar.gl; fence.sc.cta; bar.warp.sync -1;
ld.shared.u32 %x, [s+32];
st.shared.u32 [s], %t;
st.global.u32 [%a+4096], %x;
shfl.sync.down.b32 %x, %t, 1, 31, 0xffff;
setp.lt.u32 %p, %t, 8; @%p bar.sync 0;
ret;"""
ARRAY = {"a": np.zeros(8, np.uint32)}


def test_each_tool_alone_finds_what_it_finds_among_all() -> None:
    text = kernel(numbered(EVERYTHING), ".u64 a")
    every = check(text, ARRAY)
    assert {each.tool for each in every.mistakes} == set(TOOLS)
    for tool in TOOLS:
        assert list(check(text, ARRAY, tools=(tool,)).mistakes) == every.of(tool)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [(0, 31, True), (31, 32, False), (1023, 1024, False), (64, 95, True)],
)
def test_threads_of_one_warp_are_known(first: int, second: int, same: bool) -> None:
    assert Checker.is_same_warp(Site(0, first), Site(1, second)) == same


def test_without_initcheck_nothing_is_missing_in_an_output() -> None:
    text = kernel("ret;", ".u64 a")
    found = check(text, ARRAY, outputs=("a",), tools=("memcheck",))
    assert found.checker.never_written("a").size == 0
    assert check(text, ARRAY, outputs=("a",)).checker.never_written("a").size == 8
