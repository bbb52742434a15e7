"""The reference of the tensor cores."""

from memlab.device.emulator.isa.table import TABLE
from tests.reference import tensor
from tests.reference.rows import op

for opcode in TABLE:
    name, _, end = opcode.partition(" ")
    if end == "result" and name.startswith("mma"):
        op(opcode, tensor.mma(name))
    elif end == "result" and name.startswith("wmma"):
        op(opcode, tensor.wmma(name))
for trans in ("", ".trans"):
    for count in (1, 2, 4):
        distribute = tensor.distribute_rows(count, bool(trans))
        op(f"ldmatrix.sync.m8n8.x{count}{trans}.b16 result", distribute)
    op(f"stmatrix.sync.m8n8{trans}.b16 rows", tensor.gather_rows(bool(trans)))
op("movmatrix.sync.m8n8.trans.b16", tensor.transpose_fragment)
