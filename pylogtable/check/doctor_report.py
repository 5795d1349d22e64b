"""The reports of `diagnose`, and of the doctor for Spark: checks in order, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass

from pylogtable.presentation import table_html, titled_html

OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True)
class DoctorCheck:
    """One check of `diagnose`. `status` is "ok", "warning" or "failed"; `advice` says what to do
    about it."""

    name: str
    status: str
    detail: str
    advice: str = ""

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.status:<8}{self.name}: {self.detail}{advice}"


@dataclass(frozen=True)
class DoctorReport:
    """The result of `diagnose`: all checks in order. It is true if none failed, and prints as a
    list of checks."""

    url: str
    checks: tuple[DoctorCheck, ...]

    def __bool__(self) -> bool:
        return all(check.status != FAILED for check in self.checks)

    @property
    def verdict(self) -> str:
        """The last line of the report."""
        return f"{self.url} {'can' if self else 'cannot'} hold topics"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.checks), self.verdict])

    def _repr_html_(self) -> str:
        rows = [(check.name, check.status, check.detail, check.advice) for check in self.checks]
        return titled_html(self.verdict, table_html(rows, ("check", "status", "found", "advice")))
