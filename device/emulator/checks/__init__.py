"""Checks of a launch in the emulator, after the tools of NVIDIA's Compute Sanitizer.

`checker` is notified of every access, barrier and fence of a launch. It passes them to four tools:
`bounds` (memcheck), `initialisation` (initcheck), `races` (racecheck) and `barriers` (synccheck).
`happens_before` and `release_acquire` hold the order of accesses, by barriers and by atomics after
fences. `program_analysis` finds once per program what is to be watched, and `pointer_origin` the
array that an address was computed from. `observations` collects the mistakes.
"""
