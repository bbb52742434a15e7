"""The SM clock of a launch: it falls where tensor cores are busy.

Within some microseconds the clock comes near to one that lies, by the share of time in which the
tensor cores multiply, between that which the vendor's peak assumes and a lower one. The clocks of
18 launches with products of warpgroups on an H200 follow this within 2% (root mean square,
docs/results/h200-hopper-repeats.csv).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.properties import DeviceProperties, clock_hz
from memlab.device.sm_model.pipes import factor_type
from memlab.device.sm_model.records import SCHEDULERS, Kind, Unit
from memlab.device.sm_model.simulation import Workload


@dataclass(frozen=True)
class LoadClock:
    """How the SM clock changes in a launch.

    Attributes:
        first_hz: The clock at the start.
        idle_hz: The clock that it comes near to while the tensor cores have nothing to do.
        loaded_hz: The same while they multiply all the time.
        settling_s: The time constant; 0 where it has that clock from the start.
    """

    first_hz: float
    idle_hz: float
    loaded_hz: float
    settling_s: float = 0.0

    def mean_hz(self, seconds: float, load: float) -> float:
        """The mean clock of the first seconds.

        Args:
            seconds: How long the launch lasts.
            load: The share of that time in which the tensor cores multiply, each product with the
                load of its type.
        """
        settled = self.idle_hz + (self.loaded_hz - self.idle_hz) * load
        if not self.settling_s or seconds <= 0:
            return settled
        passed = seconds / self.settling_s
        return settled + (self.first_hz - settled) * -math.expm1(-passed) / passed


def load_clock(work: Workload, properties: DeviceProperties) -> LoadClock:
    """The clock of a launch, by what it executes: the peak where no tensor core takes part.

    Where nothing is known of its load, and for other products than those of warpgroups, it is the
    one that the vendor's peak assumes.
    """
    steps, peak = work.steps, clock_hz(properties) or 1.0
    tensor = min(properties.tensor_clock_hz or peak, peak)
    loaded, settling_s = properties.tensor_load_clock_hz, properties.tensor_load_settling_s
    executed = _executed(work)
    if loaded and (executed & (steps["kind"] == int(Kind.PRODUCT))).any():
        return LoadClock(peak, tensor, min(loaded, tensor), settling_s or 0.0)
    if (executed & (steps["unit"] == int(Unit.TENSOR))).any():
        return LoadClock(tensor, tensor, tensor)
    return LoadClock(peak, peak, peak)


def type_loads(
    instructions: Sequence[MachineInstruction], properties: DeviceProperties
) -> NDArray[np.float64]:
    """The load of each instruction on the tensor cores, where BF16 has 1."""
    by_type = properties.tensor_type_loads
    return np.array([by_type.get(factor_type(step.opcode), 1.0) for step in instructions])


def tensor_load(work: Workload, clocks: float, loads: NDArray[np.float64]) -> float:
    """The share of the simulated clocks in which the tensor cores multiply.

    Args:
        work: What was simulated.
        clocks: How long it took.
        loads: By which the time of each instruction counts, shape (instructions,).
    """
    steps = work.steps
    on_tensor = steps["unit"] == int(Unit.TENSOR)
    busy = float((steps["issued"] * steps["busy"] * loads)[on_tensor].sum())
    return busy / SCHEDULERS / clocks if clocks else 0.0


def _executed(work: Workload) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each instruction lies on a warp's path."""
    passed = np.zeros(len(work.steps) + 1, np.int64)
    for path in {*work.active, *work.idle}:
        np.add.at(passed, work.paths[path][:, 0], 1)
        np.add.at(passed, work.paths[path][:, 1], -1)
    executed: np.ndarray[tuple[int], np.dtype[np.bool_]] = passed.cumsum()[:-1] > 0
    return executed
