from hand_made_code import END, PLAIN, code_of

from memlab.device.machine_code.flow_graph import EXIT, Edge, flow_graph


def edges(graph):
    return {(edge.source, edge.destination) for edge in graph.edges}


def test_a_branch_with_a_second_predicate_may_go_on():
    graph = flow_graph(code_of(PLAIN, ("BRA", "", ("!P2", "`(.L)"), 48), PLAIN, END))

    assert {(0, 1), (0, 2), (1, 2)} <= edges(graph)


def test_a_guarded_exit_lets_the_other_threads_go_on():
    graph = flow_graph(code_of(("EXIT", "P0", (), None), PLAIN, END))

    assert {(0, EXIT), (0, 1), (1, EXIT)} <= edges(graph)


def test_a_call_returns_unless_it_goes_to_no_function():
    # 0: @!P0 CALL 48; 1: BRA 0; 2: padding; 3: EXIT
    jump = code_of(("CALL.REL.NOINC", "!P0", (), 48), ("BRA", "", (), 0), PLAIN, END)
    graph = flow_graph(jump)
    assert not graph.calls
    assert {(0, 1), (0, 3), (1, 0)} <= edges(graph)
    assert graph.loops == ((0, frozenset({0, 1})),)

    call = code_of(("CALL.REL.NOINC", "", (), 48), END, PLAIN, END, functions={48: "$slow"})
    graph = flow_graph(call)
    assert [(one.block, one.function) for one in graph.calls] == [(0, 3)]
    assert Edge(0, 1) in graph.edges
    assert Edge(0, 3) not in graph.edges
