"""The flags of nvcc that change a kernel's code, as options of NVRTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab.kernels.user.kernel import UserKernel

SWITCHES = ("ftz", "prec_div", "prec_sqrt", "fmad")
"""Flags that take true or false (nvcc's manual, "Steering GPU Code Generation")."""

LESS_EXACT_OPTIONS = ("--use_fast_math", "--ftz=true", "--prec-div=false", "--prec-sqrt=false")
"""Options with which float32 functions, quotients or roots may have larger errors, and numbers
below 2^-126 count as 0 (CUDA C++ Programming Guide, "Mathematical Functions")."""


def flag_options(kernel: UserKernel) -> tuple[str, ...]:
    """Give the flags of a kernel as options of NVRTC; those that are not given are left out."""
    switches = ((name, getattr(kernel, name)) for name in SWITCHES)
    return (
        *(["--use_fast_math"] if kernel.use_fast_math else []),
        *(
            f"--{name.replace('_', '-')}={'true' if value else 'false'}"
            for name, value in switches
            if value is not None
        ),
        *(f"--ptxas-options={option}" for option in kernel.ptxas_options),
    )


def less_exact_options(options: Iterable[str]) -> list[str]:
    """Return the options of NVRTC that allow larger errors in float32."""
    return [option for option in options if option in LESS_EXACT_OPTIONS]
