"""Documents of runs, as a store from elsewhere may hold them: read and shown, or refused."""

from __future__ import annotations

import functools
import io
import json
import operator
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any
from unicodedata import category

from fuzzing import ODD, cases
from hypothesis import given
from hypothesis import strategies as st

from memlab.cli.render import console, run_report
from memlab.cli.runs import _table
from memlab.errors import UsageError
from memlab.roofline.run import Run
from memlab.roofline.serialize import run_document, run_from_document, runs_csv

STRANGE = st.one_of(
    st.sampled_from([None, True, 0, -1, 0.5, 1e308, 10**400, "Infinity", "NaN", [], [[]], {}]),
    ODD,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, from the outside in."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, (dict, list)):
            yield from places(part, (*path, key))
        else:
            yield (*path, key)


@given(data=st.data())
@cases(60)
def test_a_changed_document_is_shown_or_refused(
    make_run: Callable[..., Run], data: st.DataObject
) -> None:
    document = json.loads(json.dumps(run_document(make_run())))
    *way, last = data.draw(st.sampled_from(list(places(document))))
    around = functools.reduce(operator.getitem, way, document)
    if isinstance(around, dict) and data.draw(st.booleans()):
        del around[last]
    else:
        around[last] = data.draw(STRANGE)
    try:
        run = run_from_document(document)
    except UsageError:
        return
    screen = io.StringIO()
    with redirect_stdout(screen):
        console().print(run_report(run))
        console().print(_table([run], 80))
    runs_csv([run])
    assert not [each for each in screen.getvalue() if category(each) == "Cc" and each != "\n"]
