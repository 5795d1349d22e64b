"""What tests of planted bugs share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_second_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are live are refused when they are planned again, which would hide that the
    outcome of a put was not found out."""
    monkeypatch.setattr("pylogtable.append.plan.find_live", lambda *_: None)
