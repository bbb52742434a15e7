"""Arbitrary formats of `printf`: the result is a text of limited length."""

from __future__ import annotations

from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.emulator.machine.printf import MAX_FIELD_WIDTH, format_printf

CONVERSIONS = st.from_regex(
    r"%[-+ #0]{0,3}(\*|[0-9]{1,12})?(\.(\*|[0-9]{0,12}))?(hh|h|ll|l|j|z|t|L)?[a-zA-Z%]",
    fullmatch=True,
)


@given(
    st.lists(CONVERSIONS | st.text(max_size=5), max_size=8).map("".join),
    st.binary(max_size=64) | st.just(b"\xff" * 64) | st.just(b"\xff\xff\xff\x7f" * 16),
)
@cases(100)
def test_any_format_gives_a_bounded_text(form: str, arguments: bytes) -> None:
    text = format_printf(form, arguments, lambda address: "text")

    # The longest result of a conversion: digits, 309 before the point, the sign, the prefix.
    assert len(text) <= len(form) + form.count("%") * (2 * MAX_FIELD_WIDTH)
