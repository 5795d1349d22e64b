"""What `verify` returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from pylogtable.presentation import count_text, table_html, titled_html


@dataclass(frozen=True)
class Problem:
    """One finding of `Topic.verify`: the broken rule of the specification, and the object."""

    rule: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path} breaks [{self.rule}]: {self.detail}"


@dataclass(frozen=True)
class Unchecked:
    """What `Topic.verify` could not look at, because the store failed: an object, or a folder with
    objects. Nothing is known about it."""

    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path} could not be checked: {self.detail}"


@dataclass
class VerifyReport:
    """What `Topic.verify` checked and found. It is true if it has looked at everything, and there
    are no problems. If the store failed, `unchecked` says where: verify again later."""

    problems: list[Problem] = field(default_factory=list)
    commits: int = 0
    leaves: int = 0
    segments: int = 0
    records: int = 0
    unchecked: list[Unchecked] = field(default_factory=list)

    @property
    def sound(self) -> bool | None:
        """True if nothing is wrong, False if there are problems. None if that is not known: there
        are no problems where `verify` has looked, but it could not look everywhere."""
        if self.problems:
            return False
        return None if self.unchecked else True

    def __bool__(self) -> bool:
        return self.sound is True

    def __str__(self) -> str:
        looked = ", ".join(count_text(count, noun) for noun, count in self._looked()) + " read"
        if self:
            return f"sound: {looked}"
        lines: list[object] = []
        if self.problems:
            lines += [f"{len(self.problems)} problem(s) in {looked}:", *self.problems]
        if self.unchecked:
            found = "" if self.problems else f" No problem in the rest: {looked}."
            places = count_text(len(self.unchecked), "place")
            lines += [
                f"could not look at {places}, because the store failed.{found} Verify again later:",
                *self.unchecked,
            ]
        return "\n".join(map(str, lines))

    def _repr_html_(self) -> str:
        verdicts = {True: "sound", False: "damaged", None: "not known: the store failed"}
        looked = [(f"{noun}s", f"{count:,}") for noun, count in self._looked()]
        facts = [("verdict", verdicts[self.sound]), *looked]
        tables = [table_html(facts)]
        if self.problems:
            broken = [(p.path, f"[{p.rule}]", p.detail) for p in self.problems]
            tables.append(table_html(broken, ("object", "broken rule", "what is wrong")))
        if self.unchecked:
            rows = [(place.path, place.detail) for place in self.unchecked]
            tables.append(table_html(rows, ("could not look at", "because")))
        return titled_html("verify", *tables)

    def _looked(self) -> list[tuple[str, int]]:
        counts = (self.commits, self.leaves, self.segments, self.records)
        return list(zip(("commit", "index file", "segment", "record"), counts, strict=True))
