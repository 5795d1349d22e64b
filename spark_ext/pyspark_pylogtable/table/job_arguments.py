"""Arguments that several scheduled jobs have."""

from __future__ import annotations

import json
from typing import Any

from pylogtable import InvalidRequestError


def parse_storage_options(text: str | None, option: str) -> dict[str, Any] | None:
    """They may hold secrets, so the message does not repeat them."""
    try:
        options = json.loads(text) if text is not None else None
    except ValueError:
        raise InvalidRequestError(f"{option} is not JSON") from None
    if options is not None and not isinstance(options, dict):
        raise InvalidRequestError(f"{option} must be a JSON object")
    return options
