"""All cases of which results are recorded."""

from __future__ import annotations

import recorded_kernels
import recorded_programs
from recorded_results import Case

CASES: tuple[Case, ...] = (*recorded_programs.cases(), *recorded_kernels.cases())
