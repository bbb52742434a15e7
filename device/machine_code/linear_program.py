"""A linear program in non-negative variables, built row by row and solved by HiGHS.

HiGHS: Huangfu and Hall, "Parallelizing the dual revised simplex method", Mathematical Programming
Computation 10 (2018).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import highspy

Floats = NDArray[np.float64]
Row = Mapping[int, float]
"""The coefficients of a row, by variable."""
_INTERIOR: Mapping[str, str | float] = {
    "solver": "ipm",
    "run_crossover": "off",  # to a vertex
    "presolve": "off",  # it would decide between equal variables
    "ipm_optimality_tolerance": 1e-11,
}
"""Options of HiGHS for the interior point method alone."""
_NOTHING = 1e-7  # the tolerance to which HiGHS meets constraints, of values and of costs


class LinearProgram:
    """Minimizes the cost of non-negative variables under linear constraints."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._rows: list[tuple[Row, float, float]] = []

    def add_variable(self, cost: float = 0.0) -> int:
        """Add a variable, and return its number."""
        self._costs.append(cost)
        return len(self._costs) - 1

    def add_cost(self, variable: int, cost: float) -> None:
        """Add to the cost of a variable."""
        self._costs[variable] += cost

    def require_equal(self, row: Row, value: float) -> None:
        """Require that a sum has a value."""
        self._rows.append((row, value, value))

    def require_at_most(self, row: Row, value: float) -> None:
        """Require that a sum is at most a value."""
        self._rows.append((row, -math.inf, value))

    def prefer_equal(self, row: Row, value: float, short_cost: float, excess_cost: float) -> None:
        """Let a deviation of a sum from a value cost, by its size: below and above the value."""
        short, excess = self.add_variable(short_cost), self.add_variable(excess_cost)
        self.require_equal({**row, short: 1.0, excess: -1.0}, value)

    def prefer_at_most(self, row: Row, value: float, excess_cost: float) -> None:
        """Let what a sum exceeds a value by cost, by its size."""
        self.require_at_most({**row, self.add_variable(excess_cost): -1.0}, value)

    def solve(self, *, central: bool = False) -> Floats | None:
        """The values of the variables; None if no values meet the constraints.

        Args:
            central: Where several solutions cost the least, take one in the middle of them. Another
                one, a vertex, gives all to some of the variables between which the constraints do
                not decide.
        """
        import highspy

        solver, model = _quiet_solver(), self._model()
        solver.setOptionValue("threads", 1)
        solver.passModel(model)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = _values(solver)
        if not central or _is_unique(solver, model):
            return values
        # The interior point method ends near the center of the optimal solutions.
        for option, value in _INTERIOR.items():
            solver.setOptionValue(option, value)
        solver.clearSolver()
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return values
        middle = _values(solver)
        middle[middle < _NOTHING] = 0.0
        return middle

    def _model(self) -> highspy.HighsLp:
        """The program as HiGHS takes it."""
        import highspy

        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._costs), len(self._rows)
        model.col_cost_ = np.array(self._costs)
        model.col_lower_ = np.zeros(len(self._costs))
        model.col_upper_ = np.full(len(self._costs), np.inf)
        model.row_lower_ = np.array([low for _, low, _ in self._rows])
        model.row_upper_ = np.array([high for _, _, high in self._rows])
        matrix = model.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_ = np.cumsum([0, *(len(row) for row, _, _ in self._rows)])
        matrix.index_ = np.array([variable for row, _, _ in self._rows for variable in row])
        matrix.value_ = np.array([value for row, _, _ in self._rows for value in row.values()])
        return model


def _values(solver: highspy.Highs) -> Floats:
    values: Floats = np.maximum(np.array(solver.getSolution().col_value), 0.0)
    return values


def _is_unique(solver: highspy.Highs, model: highspy.HighsLp) -> bool:
    """Whether each change of a solution costs: no variable that is at a bound may leave it free."""
    import highspy

    solution, basis = solver.getSolution(), solver.getBasis()
    basic = highspy.HighsBasisStatus.kBasic
    at_bound = [np.array([status != basic for status in basis.col_status])]
    # Rows that are no equations have a variable, too, which is what is left to their bound.
    is_free = np.array(model.row_lower_) != np.array(model.row_upper_)
    at_bound.append(np.array([status != basic for status in basis.row_status]) & is_free)
    duals = np.array(solution.col_dual), np.array(solution.row_dual)
    return all(
        bool((np.abs(dual[nonbasic]) > _NOTHING).all())
        for dual, nonbasic in zip(duals, at_bound, strict=True)
    )


def _quiet_solver() -> highspy.Highs:
    """A solver that prints nothing, not even when it is made, as HiGHS does from 1.16 on."""
    import highspy

    class QuietSolver(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 - the constructor calls it
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()  # type: ignore[no-untyped-call]

    solver = QuietSolver()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    return solver
