"""Standard input, output and error, including closed ones and pipes whose reader has gone.

Records, names and error messages may contain anything, and a terminal obeys escape sequences. So
control characters are shown as text on a terminal. Pipes and files get every byte as it is.

Python sets a standard stream to None if its file descriptor is closed (`>&-`). The next file to be
opened would then get that descriptor, so closed descriptors are filled with /dev/null first.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO

import click

# Characters that a terminal obeys, or that reorder the text around them. The line feed and the tab
# are harmless. JSON output has no raw character below 0x20, and \uXXXX is an escape in JSON too, so
# JSON stays valid.
_REORDERING = [0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_AS_TEXT = {
    **{code: f"\\x{code:02x}" for code in range(0x20) if chr(code) not in "\n\t"},
    **{code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_REORDERING)},
}


def visible(text: str) -> str:
    """The text with its control characters as escapes, such as \\x1b."""
    return text.translate(_AS_TEXT)


class _Terminal(io.TextIOWrapper):
    """A terminal that shows control characters instead of obeying them. `plain` obeys them: it is
    for colours and spinners of our own."""

    def __init__(self, plain: TextIO) -> None:
        super().__init__(
            plain.buffer, plain.encoding, errors="backslashreplace", line_buffering=True
        )
        self.plain = plain

    def isatty(self) -> bool:
        """True: only terminals are wrapped."""
        return True

    def write(self, text: str) -> int:
        """Write the text with its control characters as escapes."""
        super().write(visible(text))
        return len(text)


@contextmanager
def safe_terminals() -> Iterator[None]:
    """While this lasts, output and messages cannot control the terminal they go to."""
    before = sys.stdout, sys.stderr
    safe = [_Terminal(stream) if is_terminal(stream) else stream for stream in before]
    sys.stdout, sys.stderr = safe
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in safe:
            if isinstance(stream, _Terminal):
                stream.detach()


def obeying(stream: TextIO) -> TextIO:
    """The terminal itself, for text that contains escape sequences on purpose."""
    return stream.plain if isinstance(stream, _Terminal) else stream


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
    if isinstance(sys.stdout, _Terminal):
        sys.stdout.write(bytes(data).decode(errors="backslashreplace"))
        sys.stdout.flush()
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_error(line: str) -> None:
    """Print a line to standard error; ignore it if nobody can read it. If a disk is full, there may
    be room for a later one."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard(sys.stderr)
    except OSError:
        pass


def is_terminal(stream: IO[str] | None) -> bool:
    """True if the stream is a terminal."""
    return stream is not None and stream.isatty()


def discard(stream: IO[str]) -> None:
    """Send the rest of a broken stream to /dev/null, or Python fails when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
