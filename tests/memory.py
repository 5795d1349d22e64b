"""How much memory this process has had at most."""

from __future__ import annotations

import re
from pathlib import Path


def peak_bytes() -> int:
    """The high-water mark of the resident set. Not `ru_maxrss`, which a child inherits from the
    process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def reset_peak() -> int:
    """Let the high-water mark begin anew at what is used now, and return it."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_bytes()
