"""A trace as `memlab trace` makes it, for tests of its report and its picture."""

from memlab.device.array_element import Element
from memlab.device.tracing.records import ArrayUse, ElementAccess, ThreadTrace, Trace


def example_trace(extent: int = 4) -> Trace:
    """A naive product of `extent` rows, followed by one thread."""

    def touch(array: str, index: int, kind: str = "load") -> ElementAccess:
        return ElementAccess(1, kind, Element("global", array, index, divmod(index, extent)), 0)  # type: ignore[arg-type]

    steps = (
        *(touch("M", extent + i) for i in range(extent)),
        *(touch("N", i * extent) for i in range(extent)),
        touch("M", extent),
        touch("P", extent, "store"),
    )
    shape = (extent, extent)
    return Trace(
        kernel="naive",
        parameters={"width": extent},
        device="test",
        grid=(extent, extent, 1),
        block=(1, 1, 1),
        block_index=(0, 1, 0),
        followed=ThreadTrace((0, 0, 0), steps, 0),
        threads=(),
        phases=0,
        arrays=(
            ArrayUse("M", shape, {1: 3, 2: 1}, None, tuple(range(extent, 2 * extent)), ()),
            ArrayUse("N", shape, {1: 4}, None, tuple(range(0, extent**2, extent)), ()),
            ArrayUse("P", shape, {}, None, (), (extent,)),
        ),
        shared_reuse=None,
        staged_share=None,
    )
