"""A PTX emulator that runs all lanes of many blocks at once and counts as the hardware does.

The way of a kernel through this folder: `parser` reads the PTX text, `lowering` puts calls and
macros in place, `isa` is the table that gives each opcode its meaning, `program` resolves one
against the other at load. `machine` then runs the program over the `threads` of a chunk of blocks:
`binding` and `accesses` tie each instruction to its `operands` once, and `control` decides who runs
next. `memory` holds the address spaces, `counters` counts requests, sectors and wavefronts,
`sampling` chooses the blocks of a large grid, and `caches` follows the recorded addresses through
L1 and L2. `checks` watches a run for mistakes.
"""
