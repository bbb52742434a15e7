"""What NVIDIA's Compute Sanitizer looks for, looked for in the emulator.

`checker` is told of every access, barrier and fence of a launch and hands them to the four tools:
`bounds` (memcheck), `initialisation` (initcheck), `races` (racecheck) and `barriers` (synccheck).
`order` and `publication` know which accesses lie before which, by barriers and by atomics behind
fences. `provenance` says which array an address was meant for. What they see is collected in
`observations`.
"""
