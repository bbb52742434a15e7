"""The order in which a sweep looks at its points: all, some at random, or as an optimiser asks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Protocol

from memlab.errors import DeviceError, UsageError, suggest_nearest
from memlab.roofline.sweep.space import MAX_POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlab.roofline.sweep.space import Axis, Space

STRATEGIES = ("all", "random", "tpe")
"""`tpe` is Optuna's tree-structured Parzen estimator (Bergstra et al., NIPS 2011)."""

MAX_ASKS = 50
"""How often an optimiser may propose a point that is excluded or known before one is drawn at
random."""


class Strategy(Protocol):
    """Proposes points and is told what came of them."""

    def ask(self) -> int | None:
        """The number of the next point; None where there is none left."""
        ...

    def tell(self, number: int, rank: float | None) -> None:
        """Report a point.

        Args:
            number: The point.
            rank: Its figure, smaller for a better one; None where it is not done.
        """
        ...


def check_strategy(name: str, budget: int | None, points: int = 0) -> None:
    """Refuse a strategy before the work that it would order.

    Args:
        name: One of `STRATEGIES`.
        budget: The most points to ask for; None for all.
        points: The points of the space.

    Raises:
        UsageError: There is no such strategy, or it needs a budget.
    """
    if budget is None and points > MAX_POINTS:
        raise UsageError(
            f"the sweep has {points:,} points, and at most {MAX_POINTS:,} can all be run: give "
            "fewer values, or --strategy random --budget 100"
        )
    if name not in STRATEGIES:
        raise UsageError(f"no strategy {name!r}: {suggest_nearest(name, STRATEGIES)}")
    if budget is not None and budget < 1:
        raise UsageError(f"the budget must be 1 point or more, got {budget}: use --budget 100")
    if name != "all" and budget is None:
        raise UsageError(
            f"the strategy {name} needs a limit of points: add --budget 100, or use --strategy all"
        )


def make_strategy(
    name: str, space: Space, admits: Callable[[int], bool], budget: int | None, seed: int
) -> Strategy:
    """Make a strategy.

    Args:
        name: One of `STRATEGIES`.
        space: The points.
        admits: Whether a point may be run; the others are never asked for.
        budget: The most points to ask for; None for all.
        seed: Seed of the random choices.

    Raises:
        UsageError: As `check_strategy`.
        DeviceError: Optuna is not installed.
    """
    check_strategy(name, budget, space.size)
    numbers: Iterator[int] = iter(range(space.size))
    if name == "random":
        numbers = _shuffled(space.size, seed)
    if name == "tpe":
        return OptunaStrategy(space, admits, budget or space.size, seed)
    return ListStrategy(numbers, admits, budget)


def _shuffled(count: int, seed: int) -> Iterator[int]:
    """Numbers below `count` in random order, each once."""
    chance = random.Random(seed)
    if count <= MAX_POINTS:
        yield from chance.sample(range(count), count)
        return
    drawn: set[int] = set()  # of so many, those that are drawn twice are few
    while len(drawn) < MAX_POINTS:
        number = chance.randrange(count)
        if number not in drawn:
            drawn.add(number)
            yield number


class ListStrategy:
    """Points in a given order."""

    def __init__(
        self, numbers: Iterator[int], admits: Callable[[int], bool], budget: int | None
    ) -> None:
        self._numbers = filter(admits, numbers)
        self._left = budget

    def ask(self) -> int | None:
        """The number of the next point; None where there is none left."""
        if self._left == 0:
            return None
        number = next(self._numbers, None)
        if number is not None and self._left is not None:
            self._left -= 1
        return number

    def tell(self, number: int, rank: float | None) -> None:
        """Ignore what came of a point."""


class OptunaStrategy:
    """Points as an optimiser of Optuna asks for them, through its `ask` and `tell`."""

    def __init__(self, space: Space, admits: Callable[[int], bool], budget: int, seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise DeviceError(
                "the strategy tpe needs Optuna, which is not installed: pip install "
                "'memlab[sweep]', or use --strategy random"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study = optuna.create_study(sampler=sampler)
        self._distributions = {
            axis.name: _distribution(optuna, axis) for axis in space.axes if axis.varies
        }
        self._space, self._admits, self._left = space, admits, budget
        self._spare = filter(admits, _shuffled(space.size, seed))
        self._asked: dict[int, Any] = {}

    def ask(self) -> int | None:
        """The number of the next point; None where there is none left."""
        if self._left == 0:
            return None
        for _ in range(MAX_ASKS):
            trial = self._study.ask(self._distributions)
            number = self._space.number(
                [int(trial.params[axis.name]) if axis.varies else 0 for axis in self._space.axes]
            )
            if number not in self._asked and self._admits(number):
                return self._take(number, trial)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        number_or_none = next((n for n in self._spare if n not in self._asked), None)
        if number_or_none is None:
            return None
        places = self._space.place(number_or_none)
        self._study.enqueue_trial(
            {
                axis.name: place
                for axis, place in zip(self._space.axes, places, strict=True)
                if axis.varies
            }
        )
        return self._take(number_or_none, self._study.ask(self._distributions))

    def tell(self, number: int, rank: float | None) -> None:
        """Tell the optimiser what came of a point; one that is not done has failed."""
        trial = self._asked[number]
        if rank is None:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, rank)

    def _take(self, number: int, trial: Any) -> int:
        self._asked[number] = trial
        self._left -= 1
        return number


def _distribution(optuna: Any, axis: Axis) -> Any:
    """Positions on an axis: in order for numbers, without order for words."""
    count = len(axis.values)
    if axis.is_numeric and list(axis.values) == sorted(axis.values, key=int):
        return optuna.distributions.IntDistribution(0, count - 1)
    return optuna.distributions.CategoricalDistribution(tuple(range(count)))
