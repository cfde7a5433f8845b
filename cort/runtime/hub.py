"""Files of a repository on the Hugging Face hub, at a fixed commit."""

from __future__ import annotations

import logging
from pathlib import Path

from cort.runtime.errors import input_error, reason_of
from cort.runtime.interruption import Interrupted


def fetch_snapshot(
    name: str,
    revision: str,
    expected: str,
    fix: str,
    allow: list[str],
    ignore: list[str] | None = None,
    kind: str = "model",
) -> Path:
    """Download the files that match `allow` but not `ignore`, or find them in the hub's cache; return their folder.

    :param revision: a commit, or a pull request with the beginning of its commit (``refs/pr/2@0123abc``).
    :param kind: of the repository: model or dataset.
    :raises InputError: for a failed download, or a pull request that is at another commit now.
    """
    from huggingface_hub import snapshot_download

    # The hub's client would log each of its dozens of requests.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    ref, _, commit = revision.partition("@")
    try:
        path = snapshot_download(name, repo_type=kind, revision=ref, allow_patterns=allow, ignore_patterns=ignore)
    except Interrupted:
        raise
    except Exception as error:  # the client's transport layer raises errors of its own
        raise input_error(name, f"a failed download ({reason_of(error)})", expected, fix) from error
    folder = Path(path)
    # The cache names each folder after its commit.
    if not folder.name.startswith(commit):
        found, expected = f"commit {folder.name} at {ref}", f"one that begins with {commit}"
        raise input_error(name, found, expected, "review what has changed there, then name its commit")
    return folder
