"""The state of a kernel's Git repository, compared with repositories that the test makes."""

import subprocess

from memlab.kernels.user.repository import RepositoryState, repository_state

AUTHOR = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")


def git(folder, *arguments):
    run = subprocess.run(
        ["git", *AUTHOR, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def test_the_state_follows_the_repository(tmp_path):
    kernel, other = tmp_path / "k.cu", tmp_path / "other.cu"
    kernel.write_text("one")
    other.write_text("one")
    git(tmp_path, "init")
    assert repository_state(kernel) == RepositoryState()  # before its first commit

    git(tmp_path, "add", "k.cu")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert repository_state(kernel) == RepositoryState(commit, clean=True)
    assert repository_state(other) == RepositoryState(commit, clean=False)  # not tracked

    kernel.write_text("two")
    assert repository_state(kernel) == RepositoryState(commit, clean=False)


def test_a_file_outside_a_repository_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert repository_state(tmp_path / "k.cu") == RepositoryState()
    assert repository_state(tmp_path / "missing" / "k.cu") == RepositoryState()


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert repository_state(tmp_path / "k.cu") == RepositoryState()
