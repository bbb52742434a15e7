"""The ways through ptxas's functions for divisions and roots, in hand-made flow graphs."""

from __future__ import annotations

import pytest
from hand_made_code import END, PLAIN, code_of

from memlab.device.machine_code.flow_graph import flow_graph
from memlab.device.machine_code.slow_paths import avoided_blocks

CALL = ("CALL.REL.NOINC", "", (), 32)
RETURN = ("RET.REL.NODEC", "", ("R4", "`(k)"), None)
# 0: the call; 1: EXIT; the function: 2: @P0 BRA 96; 3: @P1 BRA 96; 4: PLAIN, RET; 5: PLAIN, RET
FUNCTION = (
    ("BRA", "P0", (), 112),
    ("BRA", "P1", (), 112),
    PLAIN,
    RETURN,
    END,
    PLAIN,
    RETURN,
)


def graph_of(name):
    return flow_graph(code_of(CALL, END, *FUNCTION, functions={32: name}))


def test_a_zero_takes_the_branches_of_the_function():
    graph = graph_of("$__internal_0_$__cuda_sm20_dblrcp_rn_slowpath_v3")  # not taken, then taken

    avoided = avoided_blocks(graph)

    first = {graph.instructions(block)[0].address for block in avoided}
    assert first == {64}  # between the second branch and where it goes


@pytest.mark.parametrize(
    "name", ["$__internal_0_$__cuda_sm20_div_rn_f64_full", "$__internal_0_$other"]
)
def test_a_function_with_other_branches_is_left_as_it_is(name):
    assert not avoided_blocks(graph_of(name))
