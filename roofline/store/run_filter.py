"""Which of the stored runs are meant: by device, kernel, label, time and number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class RunFilter:
    """The conditions for a run; all that are given must hold.

    Attributes:
        device: The run's device: its key (`h200`, `cuda:0`) or its name; None for any.
        kernels: Kernels, of which one must be the run's; patterns such as `filter-*` too. Empty
            for any.
        labels: Names, of which one must be the run's label or its sweep's; patterns too. Empty for
            any.
        since: The run was made then or later; None for any time.
        last: The most runs that are meant; of more, the newest. None for all.
    """

    device: str | None = None
    kernels: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    since: datetime | None = None
    last: int | None = None

    def accepts(self, document: str | bytes) -> bool:
        """Whether a stored document has one of the labels, and is of the time.

        Raises:
            UsageError: One of them is asked for, and the document cannot be read.
        """
        if not self.labels and self.since is None:
            return True
        try:
            values = json.loads(document)
            names = labels_in(values)
            if self.labels and not any(matches_any(name, self.labels) for name in names):
                return False
            return self.since is None or _time(values["created_at"]) >= self.since
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise UsageError(str(error)) from error


def labels_in(document: Mapping[str, Any]) -> set[str]:
    """Return the names that a run's document has: its label and its sweep."""
    identity = document.get("identity", {})  # older versions wrote none
    return {identity.get("label", ""), identity.get("sweep", "")} - {""}


def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name is one of these, or fits one of them as a pattern with `*`, `?` and `[]`."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _time(text: str) -> datetime:
    """Read ISO 8601; a time without a zone is in UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
