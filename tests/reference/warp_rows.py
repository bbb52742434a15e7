"""The reference of shuffles, votes, matches and reductions."""

import numpy as np

from tests.reference import warp
from tests.reference.rows import op

for mode in ("up", "down", "bfly", "idx"):
    op(f"shfl.sync.{mode}.b32 d|p", warp.shuffle(mode))
    op(f"shfl.sync.{mode}.b32", warp.first_result(warp.shuffle(mode)))
op("vote.sync.{all,any,uni}.pred", make=warp.vote)
op("vote.sync.ballot.b32", warp.vote("ballot"))
op("activemask.b32", warp.active_mask)
op("match.any.sync.{b32,b64}", warp.match_any)
op("match.all.sync.{b32,b64} d|p", warp.match_all)
op("match.all.sync.{b32,b64}", warp.first_result(warp.match_all))
op("elect.sync d|p", warp.elect)
for name, reduction, identity in (
    ("add.{u32,s32}", np.add, 0),
    ("min.u32", np.minimum, 0xFFFF_FFFF),
    ("min.s32", np.minimum, 0x7FFF_FFFF),
    ("max.u32", np.maximum, 0),
    ("max.s32", np.maximum, -0x8000_0000),
    ("and.b32", np.bitwise_and, 0xFFFF_FFFF),
    ("or.b32", np.bitwise_or, 0),
    ("xor.b32", np.bitwise_xor, 0),
):
    op(f"redux.sync.{name}", warp.reduce_members(reduction, identity))
