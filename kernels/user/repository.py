"""The Git repository that holds a kernel's file: its commit, and whether its files are changed."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_GIT_TIMEOUT_S = 5.0
"""How long to wait for Git; a run never fails for it."""


@dataclass(frozen=True)
class RepositoryState:
    """The state of a file's repository.

    Attributes:
        commit: The commit that is checked out, 40 hexadecimal digits; None without a repository,
            before its first commit, or without Git.
        clean: Whether the file is tracked, and all tracked files are as in the commit; None
            without a commit.
    """

    commit: str | None = None
    clean: bool | None = None


def repository_state(file: Path) -> RepositoryState:
    """Ask Git about the repository of a file."""
    commit = _git(file.parent, "rev-parse", "--verify", "HEAD")
    if not commit:
        return RepositoryState()
    changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    tracked = _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    if changed is None:
        return RepositoryState()
    return RepositoryState(commit.strip(), not changed and tracked is not None)


def _git(folder: Path, *arguments: str) -> str | None:
    """Run Git in a folder; None where it fails. No program that the repository names is run."""
    command = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks", *arguments]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        finished = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.decode(errors="replace") if finished.returncode == 0 else None
