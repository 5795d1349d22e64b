"""JSON objects in option values, with errors that name the option and show an example."""

from __future__ import annotations

import json

from pylogtable import InvalidRequestError


def json_object(option: str, text: str, example: str) -> dict[str, object]:
    """The JSON object in `text`. Raises for anything else, and for a name that is given twice."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            raise ValueError("a name is given twice")
        return entries

    try:
        content = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise expected(option, example, text, str(error)) from None
    if not isinstance(content, dict):
        raise expected(option, example, text)
    return content


def expected(option: str, example: str, text: str, why: str = "") -> InvalidRequestError:
    """The error for a value of the wrong form, in the Kafka connector's words."""
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return InvalidRequestError(
        f"{option}: Expected e.g. {example}, got {shown}" + (f" ({why})" if why else "")
    )
