"""Writes events to the log: a message for people, and the same values as fields for programs."""

from __future__ import annotations

import logging

# A library prints nothing by itself.
logging.getLogger("pylogtable").addHandler(logging.NullHandler())


def log_event(logger: logging.Logger, level: int, message: str, **fields: object) -> None:
    """Log a message such as `"%(job)s of %(topic)s"`, whose values are fields of the record too.
    Nothing is formatted unless somebody listens.

    >>> log_event(logger, logging.INFO, "topic %(topic)s was created", topic="orders")
    """
    if logger.isEnabledFor(level):
        logger.log(level, message, fields, extra=fields, stacklevel=2)
