"""The entries of the shadow memory, against lists of all accesses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.emulator.checks.shadow_memory import (
    THREAD_AND_WARP_ID_SHIFTS,
    AccessHistory,
)
from memlab.device.emulator.codegen.check_layout import THREAD_MASK, TIME_SHIFT

UNITS = 8
THREADS = (0, 1, 2, 31, 32, 33, 64)

# An instruction: some threads, and the pair of units that each of them touches.
INSTRUCTION = st.dictionaries(st.sampled_from(THREADS), st.integers(0, UNITS // 2 - 1), min_size=1)


@given(st.lists(INSTRUCTION, min_size=1, max_size=6))
def test_the_last_access_and_the_last_by_another_thread_and_warp_are_kept(
    instructions: list[dict[int, int]],
) -> None:
    kept = AccessHistory(UNITS, THREAD_AND_WARP_ID_SHIFTS)
    every: list[list[tuple[int, int]]] = [[] for _ in range(UNITS)]  # time and thread
    for time, instruction in enumerate(instructions, 1):
        pairs = sorted(instruction.items())
        threads = np.array([thread for thread, _ in pairs])
        units = np.array([[2 * pair, 2 * pair + 1] for _, pair in pairs]).reshape(-1)
        kept.add(units, time << TIME_SHIFT | np.repeat(threads, 2))
        for thread, pair in pairs:
            every[2 * pair].append((time, thread))
            every[2 * pair + 1].append((time, thread))

    for unit, accesses in enumerate(every):
        found = [
            (int(entries[unit]) >> TIME_SHIFT, int(entries[unit]) & THREAD_MASK)
            for entries in kept.recorded_accesses
        ]
        last = accesses[-1] if accesses else (0, 0)
        assert found[0] == last
        for bits, other in zip(THREAD_AND_WARP_ID_SHIFTS, found[1:], strict=True):
            apart = [access for access in accesses if access[1] >> bits != last[1] >> bits]
            time = max((access[0] for access in apart), default=0)
            first = next((access for access in apart if access[0] == time), (0, 0))
            if time == last[0] or not apart:
                assert other == first
            else:  # of one instruction any may be kept
                assert other in [access for access in apart if access[0] == time]
