"""The groups in which machine code issues its accesses, of machine code made by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hand_made_code import END, PLAIN, code_of

from memlab.device.machine_code import issue_groups
from memlab.device.machine_code.flow_graph import flow_graph
from memlab.device.machine_code.instructions import Control

LOAD = ("LDG.E", "", (), None)


def groups_of(monkeypatch: pytest.MonkeyPatch, steps, lines, boards, waits):
    """The groups by line, of instructions that hold a dependence counter and wait for some."""
    code = code_of(*steps)
    instructions = tuple(
        replace(step, ptx_line=line, control=Control(1, board, None, mask))
        for step, line, board, mask in zip(code.instructions, lines, boards, waits, strict=True)
    )
    graph = flow_graph(replace(code, instructions=instructions))
    monkeypatch.setattr(issue_groups, "replace", lambda step, **changes: _changed(step, changes))
    program = SimpleNamespace(steps=tuple(map(_load, sorted(set(lines) - {0}))))
    found = issue_groups.with_issue_groups(graph, program)
    return [step.issue_groups for step in found.steps]


def _load(line):
    row = SimpleNamespace(kind="load", space="global")
    return SimpleNamespace(row=row, instruction=SimpleNamespace(ptx_line=line))


def _changed(item, changes):
    return SimpleNamespace(**(vars(item) | changes))


def test_a_use_of_what_was_loaded_ends_a_group(monkeypatch):
    # The first sum waits for another counter than those of the loads before it.
    steps = [LOAD, PLAIN, LOAD, PLAIN, LOAD, END]
    found = groups_of(
        monkeypatch, steps, [1, 0, 2, 0, 3, 0], [0, None, 1, None, 0, None], [0, 4, 0, 1, 0, 0]
    )

    assert found[0] == found[1] != found[2]


def test_copies_of_a_load_are_told_apart(monkeypatch):
    steps = [LOAD, LOAD, PLAIN, LOAD, END]
    found = groups_of(monkeypatch, steps, [1, 1, 0, 1, 0], [0, 1, None, 2, None], [0, 0, 3, 0, 0])

    first, second, third = found[0]
    assert first == second != third
