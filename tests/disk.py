"""A local disk that fails at the commits of one topic, as the operating system reports it.

For code that opens its stores by itself, so that no `FaultyStore` can be handed in.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pylogtable.runtime import Runtime
from pylogtable.storage import local

#: Whether the commit was stored cannot be known.
UNKNOWN = OSError(errno.EIO, os.strerror(errno.EIO))
#: The commit was not stored, and never will be.
REFUSED = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_commits(
    patch: pytest.MonkeyPatch, topic: Path, error: BaseException, *, lands: bool = False
) -> None:
    """Each commit to the topic in this folder meets the error, after it landed or without. With an
    `OSError` a commit that landed cannot be read back either. Nobody waits for it to go away."""
    manifest = topic / "_manifest"
    landed: set[Path] = set()
    real_link = os.link

    def link(source: str, target: str) -> None:
        if Path(target).parent != manifest:
            real_link(source, target)
            return
        if lands and not landed:
            real_link(source, target)
            landed.add(Path(target))
        raise error

    def open_file(path: str, *how: Any) -> Any:
        if Path(path) in landed and isinstance(error, OSError):
            raise error
        return open(path, *how)

    patch.setattr(os, "link", link)
    patch.setattr(local, "open", open_file, raising=False)
    defaults = Runtime.__init__.__defaults__
    assert defaults is not None
    patch.setattr(Runtime.__init__, "__defaults__", (*defaults[:-1], 0.0))  # patience_seconds
