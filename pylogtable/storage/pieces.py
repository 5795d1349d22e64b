"""Reads a large object piece by piece, so that it never has to fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pylogtable.storage.threads import lent_threads

PIECE_BYTES = 8 * 2**20


def pieces(file: pa.NativeFile, size_bytes: int) -> Iterator[bytes]:
    """The first `size_bytes` of a file, fewer if it is shorter. While one piece is used, another
    thread reads the next one."""
    if size_bytes <= PIECE_BYTES:
        yield file.read(size_bytes)
        return
    with lent_threads(1) as pool:
        read = [min(PIECE_BYTES, size_bytes - at) for at in range(0, size_bytes, PIECE_BYTES)]
        coming = pool.submit(file.read, read[0])
        for size in read[1:]:
            piece = coming.result()
            coming = pool.submit(file.read, size)
            yield piece
        yield coming.result()
