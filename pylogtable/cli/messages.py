"""Messages on standard error: errors, warnings, notes, progress, and questions. What the library
says is said in the words of the command line.

Each message is one line. With `--output json` errors and warnings are JSON objects, and notes are
left out. With `--log-format json` every line is an object, as those of the log are.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import click

from pylogtable import LogTableError, StorageError, TopicNotFoundError
from pylogtable.cli.python_words import for_command_line
from pylogtable.cli.session import Session, current_session
from pylogtable.cli.streams import is_terminal, obeying, visible, write_error
from pylogtable.log_lines import as_json, as_text, details_of

#: The logger of what the program itself says.
PROGRAM_LOGGER = "pylogtable.cli"
#: The speed that is shown is that of so many seconds.
SPEED_SECONDS = 10.0


def report_error(session: Session, kind: str, message: str, **more: object) -> None:
    """Print an error in one line and make the exit status non-zero."""
    session.has_failed = True
    line = for_command_line(" ".join(message.split()), session.only_topic)
    if session.logs_json:
        exception = traceback.format_exc() if session.verbose and sys.exc_info()[0] else None
        tell(session, line, logging.ERROR, error=kind, exception=exception, **more)
    elif session.is_json:
        write_error(json.dumps({"error": kind, "message": line, **more}, ensure_ascii=False))
    else:
        write_error(f"pylogtable: {line}")


def show_traceback(session: Session) -> None:
    """With `--verbose`, print the traceback of the error that is being handled."""
    if session.verbose and not session.logs_json:
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


def tell(session: Session, message: str, level: int = logging.INFO, **fields: object) -> None:
    """Print a line, as it is or as a JSON object with these fields."""
    if session.logs_json:
        named = {"name": PROGRAM_LOGGER, "levelno": level, "levelname": logging.getLevelName(level)}
        write_error(as_json(logging.makeLogRecord({**fields, **named, "msg": message})))
    else:
        write_error(message)


def note(session: Session, message: str) -> None:
    """Print a remark for people; programs that asked for JSON do not need it."""
    if not session.is_json:
        tell(session, message)


def warn(session: Session, message: str, **details: object) -> None:
    """Print a warning, also for programs that asked for JSON. These get its details, people only
    the traceback of an exception among them."""
    if session.logs_json:
        tell(session, message, logging.WARNING, **details)
    elif session.is_json:
        write_error(json.dumps({"warning": message, **details}))
    else:
        lines = [f"pylogtable: {message}", details.get("exception")]
        write_error("\n".join(str(line) for line in lines if line))


class _OfLibrary(logging.Handler):
    """Prints what the library logs, and its warnings as warnings of the program."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        message = for_command_line(said)
        if message != said:
            record = logging.makeLogRecord({**record.__dict__, "msg": message, "args": None})
        if self._session.logs_json:
            write_error(as_json(record))
        elif record.levelno >= logging.WARNING:
            warn(self._session, message, **details_of(record))
        else:
            write_error(as_text(record))


class _OfOthers(logging.Handler):
    """What other libraries log goes where Python prints it, unless each line is to be JSON."""

    def __init__(self, session: Session, usual: logging.Handler | None) -> None:
        super().__init__(logging.WARNING)
        self._session = session
        self._usual = usual

    def emit(self, record: logging.LogRecord) -> None:
        if self._session.logs_json:
            write_error(as_json(record))
        elif self._usual is not None:
            self._usual.handle(record)


@contextmanager
def library_messages(session: Session) -> Iterator[None]:
    """Print what the library logs, and what it warns of as warnings of the program."""
    logger, handler = logging.getLogger("pylogtable"), _OfLibrary(session)
    level, usual = logger.level, logging.lastResort

    def show(message: Warning | str, *_: object, **__: object) -> None:
        warn(session, for_command_line(str(message)))

    logger.addHandler(handler)
    logging.lastResort = _OfOthers(session, usual)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logging.lastResort = usual


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
    it has taken so far. On a terminal there is a line below for each of `rows`."""

    def __call__(self, detail: str, seconds: float = 0.0, rows: Sequence[str] = ()) -> None: ...


class _Lines:
    def __init__(self, session: Session, action: str, seconds: float) -> None:
        self._session, self._action, self._seconds = session, action, seconds
        self._said, self._said_at = "", 0.0

    def __call__(self, detail: str, seconds: float = 0.0, rows: Sequence[str] = ()) -> None:
        if detail != self._said and seconds - self._said_at >= self._seconds:
            self._said, self._said_at = detail, seconds
            tell(self._session, f"{self._action} {detail}")


@contextmanager
def progress(
    action: str, *, show: bool = True, line_seconds: float = math.inf
) -> Iterator[ShowDetail]:
    """Show a spinner on a terminal while something takes long. It yields a function that sets the
    detail shown after `action`. Without a terminal it prints a line, at most every `line_seconds`,
    if there is news."""
    session = current_session(click.get_current_context())
    if session.logs_json or not (show and is_terminal(sys.stderr)):
        yield _Lines(session, action, line_seconds)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(file=obeying(sys.stderr)).status(Text(visible(action))) as status:

        def update(detail: str, seconds: float = 0.0, rows: Sequence[str] = ()) -> None:
            lines = [f"{action} {detail}", *(f"  {row}" for row in rows)]
            status.update(Text("\n".join(map(visible, lines))))

        yield update


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
