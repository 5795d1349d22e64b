"""Standard input, output and error, including closed ones and pipes whose reader has gone.

Python sets a standard stream to None if its file descriptor is closed (`>&-`). The next file to be
opened would then get that descriptor, so closed descriptors are filled with /dev/null first.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any

import click


def fill_closed_streams() -> None:
    """Open /dev/null in place of closed standard streams.

    `sys.stdin` and `sys.stdout` stay None, so that commands can detect this. Messages to a closed
    standard error are dropped.
    """
    # In this order, because open() returns the lowest free descriptor.
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        os.open(os.devnull, os.O_WRONLY)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def standard_input() -> IO[bytes]:
    """Standard input as bytes; raises if it is closed."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed; pipe the lines in, or use < FILE")
    return sys.stdin.buffer


def write_bytes(data: Any) -> None:
    """Write bytes to standard output at once, after the text that was printed before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_error(line: str) -> None:
    """Print a line to standard error; ignore it if nobody can read it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def is_terminal(stream: IO[str] | None) -> bool:
    """True if the stream is a terminal."""
    return stream is not None and stream.isatty()


def discard(stream: IO[str]) -> None:
    """Send the rest of a broken stream to /dev/null, or Python fails when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
