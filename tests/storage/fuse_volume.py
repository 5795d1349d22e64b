"""A FUSE file system that shows a folder as Unity Catalog shows a volume: files are written once,
from start to end. Hard links and renames are not implemented, and neither are appends and writes
in the middle.

>>> python -m tests.storage.fuse_volume FOLDER MOUNT

It prints a line when it is mounted, and ends with SIGTERM.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

_STAT = ("st_mode", "st_size", "st_nlink", "st_uid", "st_gid")
_TIMES = ("st_atime", "st_mtime", "st_ctime")


@contextmanager
def mounted(folder: Path, mount: Path) -> Iterator[Path]:
    """Show `folder` at `mount`. Skips the test where there is no FUSE."""
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError) as error:
        pytest.skip(f"no FUSE here: {error}")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no FUSE here: this user may not open /dev/fuse")
    command = [sys.executable, "-m", "tests.storage.fuse_volume", str(folder), str(mount)]
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True) as volume:
        assert volume.stdout is not None
        assert volume.stderr is not None
        try:
            if volume.stdout.readline() != "mounted\n":
                pytest.skip(f"no FUSE here: {volume.stderr.read().strip()}")
            yield mount
        finally:
            volume.terminate()


def _serve(folder: str, mount: str) -> None:
    import mfusepy

    class Volume(mfusepy.Operations):
        use_ns = True

        def init(self, path: str) -> None:
            print("mounted", flush=True)

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            found = os.lstat(folder + path)
            times = {name: getattr(found, f"{name}_ns") for name in _TIMES}
            return {**{name: getattr(found, name) for name in _STAT}, **times}

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(folder + path)]

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(folder + path, mode)

        def rmdir(self, path: str) -> None:
            os.rmdir(folder + path)

        def unlink(self, path: str) -> None:
            os.unlink(folder + path)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return os.open(folder + path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

        def open(self, path: str, flags: int) -> int:
            if flags & os.O_APPEND:
                raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))
            if flags & os.O_ACCMODE == os.O_RDWR:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return os.open(folder + path, flags)

        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            if length:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            os.truncate(folder + path, 0)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            if offset != os.fstat(fh).st_size:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return os.pwrite(fh, data, offset)

        def fsync(self, path: str, datasync: int, fh: int) -> None:
            os.fsync(fh)

        def release(self, path: str, fh: int) -> None:
            os.close(fh)

        def link(self, target: str, source: str) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        def rename(self, old: str, new: str, *flags: int) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    mfusepy.FUSE(Volume(), mount, foreground=True, nothreads=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
