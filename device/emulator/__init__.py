"""A PTX emulator that runs all lanes of many blocks at once and counts as the hardware does.

The rooms, in the order in which a kernel passes through them:

- `ptx` parses the PTX text.
- `isa` is the instruction table: the machine code of each opcode.
- `program` inlines calls, expands macros and decodes the instructions by the table.
- `codegen` turns a program into machine code: stretches of instructions, the accesses to memory
  with their counts, and the schedule of groups of lanes.
- `machine` runs the code over the lanes of a chunk of blocks, and does what is rare; observers
  watch the run, and one of them, the execution policy, may direct it.
- `sampling` chooses the blocks of a large grid to execute, and finds blocks that do the same.
- `models` turns the trace of a representative block into cache traffic and a critical path.
- `checks` is the execution policy that finds mistakes in accesses and synchronization.

Each room imports only those above it in this list; `sampling`, `models` and `checks` do not import
one another.
"""
