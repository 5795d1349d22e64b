"""Messages on standard error: errors, warnings, notes, progress, and questions.

Each message is one line. With `--output json` errors and warnings are JSON objects, and notes are
left out.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

from pylogtable import LogTableError, StorageError, TopicNotFoundError
from pylogtable.cli.streams import is_terminal, obeying, visible, write_error

if TYPE_CHECKING:
    from pylogtable.cli.session import Session


#: The speed that is shown is that of so many seconds.
SPEED_SECONDS = 10.0


def report_error(session: Session, kind: str, message: str, **more: object) -> None:
    """Print an error in one line and make the exit status non-zero."""
    session.has_failed = True
    line = " ".join(message.split())
    if session.is_json:
        write_error(json.dumps({"error": kind, "message": line, **more}, ensure_ascii=False))
    else:
        write_error(f"pylogtable: {line}")


def show_traceback(session: Session) -> None:
    """With `--verbose`, print the traceback of the error that is being handled."""
    if session.verbose:
        write_error(traceback.format_exc().rstrip())


@dataclass
class Attempt:
    """The outcome of one topic's turn; `error` is the message if it failed. `is_of_store` is true
    if the store failed, and nothing is known about the topic."""

    error: str | None = None
    is_of_store: bool = False


@contextmanager
def continue_on_error(
    session: Session, topic: str, reported: str | None = None
) -> Iterator[Attempt]:
    """Report a failure in one topic, and let the command continue with the next topic. An error
    that was `reported` before is not reported again."""
    attempt = Attempt()
    try:
        yield attempt
    except LogTableError as error:
        attempt.error, attempt.is_of_store = str(error), isinstance(error, StorageError)
        if attempt.error == reported:
            return
        show_traceback(session)
        is_named = isinstance(error, TopicNotFoundError)
        message = str(error) if is_named else f"{topic}: {error}"
        report_error(session, type(error).__name__, message, topic=topic)


def note(session: Session, message: str) -> None:
    """Print a remark for people; programs that asked for JSON do not need it."""
    if not session.is_json:
        write_error(message)


def warn(session: Session, message: str) -> None:
    """Print a warning, also for programs that asked for JSON."""
    write_error(json.dumps({"warning": message}) if session.is_json else f"pylogtable: {message}")


class _AsWarning(logging.Handler):
    def __init__(self, session: Session) -> None:
        super().__init__(logging.WARNING)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        warn(self._session, record.getMessage())


@contextmanager
def library_warnings(session: Session) -> Iterator[None]:
    """Print what the library warns of, or logs as a warning, as warnings of the program."""
    logger, handler = logging.getLogger("pylogtable"), _AsWarning(session)

    def show(message: Warning | str, *_: object, **__: object) -> None:
        warn(session, str(message))

    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)


def asks_about_settings(yes: bool) -> bool:
    """Whether to ask before a command that only applies the settings of a topic. It asks people,
    and no scheduler: the owner of the topic has decided."""
    return not yes and is_terminal(sys.stdin)


def confirm(action: str, yes: bool, *, can_dry_run: bool = True) -> None:
    """Ask before a destructive action on a terminal; elsewhere raise unless `--yes` was given."""
    if yes:
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        dry_run = ", or --dry-run to see what it would do" if can_dry_run else ""
        raise click.ClickException(f"this would {action}; add --yes to confirm{dry_run}")
    if not click.confirm(f"This will {action}. Continue?", err=True):
        raise click.ClickException("cancelled; nothing was changed")


class ShowDetail(Protocol):
    """Sets the detail shown after an action that takes long, such as a count. `seconds` is how long
    it has taken so far."""

    def __call__(self, detail: str, seconds: float = 0.0) -> None: ...


class _Lines:
    def __init__(self, action: str, seconds: float) -> None:
        self._action, self._seconds = action, seconds
        self._said, self._said_at = "", 0.0

    def __call__(self, detail: str, seconds: float = 0.0) -> None:
        if detail != self._said and seconds - self._said_at >= self._seconds:
            self._said, self._said_at = detail, seconds
            write_error(f"{self._action} {detail}")


@contextmanager
def progress(
    action: str, *, show: bool = True, line_seconds: float = math.inf
) -> Iterator[ShowDetail]:
    """Show a spinner on a terminal while something takes long. It yields a function that sets the
    detail shown after `action`. Without a terminal it prints a line, at most every `line_seconds`,
    if there is news."""
    if not (show and is_terminal(sys.stderr)):
        yield _Lines(action, line_seconds)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(file=obeying(sys.stderr)).status(Text(visible(action))) as status:
        yield lambda detail, seconds=0.0: status.update(Text(visible(f"{action} {detail}")))


class Speed:
    """An amount per second, over the last `SPEED_SECONDS`: what follows may run for days."""

    def __init__(self) -> None:
        self._points = deque([(0.0, 0)])

    def at(self, seconds: float, amount: int) -> float:
        """The speed now, when so much was done in so many seconds."""
        while len(self._points) > 1 and self._points[1][0] <= seconds - SPEED_SECONDS:
            self._points.popleft()
        before, had = self._points[0]
        self._points.append((seconds, amount))
        return (amount - had) / max(seconds - before, 0.001)
