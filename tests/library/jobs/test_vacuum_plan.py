"""What vacuum may delete, from a listing alone."""

from __future__ import annotations

from pylogtable.format.paths import commit_path, root_path
from pylogtable.jobs.vacuum_plan import Listed, Needed, plan_vacuum

OLD, YOUNG, BEFORE = 0, 100, 50


def test_commits_stay_after_a_young_root_of_version_zero() -> None:
    """Whoever begins with that root reads all commits after it, also if another root is young."""
    roots = [Listed(root_path(version), 1, YOUNG) for version in (0, 5)]
    commits = [Listed(commit_path(version), 1, OLD) for version in range(10)]
    needed = Needed(frozenset(), frozenset(), 9, frozenset())
    assert plan_vacuum([*roots, *commits], needed, BEFORE).commits == ()
    assert len(plan_vacuum([roots[1], *commits], needed, BEFORE).commits) == 5
