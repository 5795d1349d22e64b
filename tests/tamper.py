"""Changes manifest objects by hand, as no writer would."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def edited(data: bytes | None, change: Callable[[dict[str, Any]], object]) -> bytes:
    """The object after a change. It has no checksum, like one of an older writer: otherwise the
    checksum alone would give the change away [SUM-1]."""
    body = json.loads(data or b"")
    body.pop("checksum", None)
    change(body)
    return json.dumps(body).encode()
