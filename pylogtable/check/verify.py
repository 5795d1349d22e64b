"""Checks a topic against the specification and names what is wrong. Changes nothing.

A check is a function that takes a `Subject` and yields `Problem`s. To add one, write it in
`manifest_checks.py`, `chain_checks.py` or `data_checks.py`, and name it in `CHECKS` or
`DATA_CHECKS`. A feature above this room has checks of its own, and gives them in `more`. A check
lets errors of the store pass, or looks inside `looking.at`: a store that fails is no problem of the
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pylogtable.check.chain_checks import (
    check_commits_from_the_future,
    check_roots,
    check_stranded_commits,
)
from pylogtable.check.data_checks import check_compacted_keys, check_contents
from pylogtable.check.loaded_topic import (
    MISSING,
    GaveUpError,
    Looking,
    Subject,
    load_subject,
    problem_of,
)
from pylogtable.check.manifest_checks import (
    check_commit_gap,
    check_files,
    check_group_states,
    check_partitions,
    check_replay,
    check_unique_paths,
)
from pylogtable.check.report import Problem, VerifyReport
from pylogtable.errors import CorruptTopicError
from pylogtable.format.paths import MANIFEST_DIR
from pylogtable.storage.base import ObjectStore

Check = Callable[[Subject], Iterator[Problem]]

#: These need the manifest, the groups' states and a listing.
CHECKS: tuple[Check, ...] = (
    check_partitions,
    check_replay,
    check_roots,
    check_unique_paths,
    check_commit_gap,
    check_stranded_commits,
    check_commits_from_the_future,
    check_group_states,
    check_files,
)
#: These read every record.
DATA_CHECKS: tuple[Check, ...] = (
    check_contents,
    check_compacted_keys,
)


def verify(
    store: ObjectStore, topic_id: str, *, data: bool, more: Sequence[Check] = ()
) -> VerifyReport:
    """Run all checks on the topic with this id at the root of `store`, and `more` of other rooms;
    with `data` also those that read every record."""
    report = VerifyReport()
    looking = Looking(report)
    subject: Subject | None = None
    with looking.at(MANIFEST_DIR):
        try:
            subject = load_subject(store, topic_id, report, looking)
        except CorruptTopicError as error:
            report.problems.append(problem_of(error, error.path))
    if subject is None:
        return report
    try:
        for check in (*CHECKS, *more, *(DATA_CHECKS if data else ())):
            with looking.at(MANIFEST_DIR):
                _run(check, subject)
    except GaveUpError:
        pass  # the report says so
    return report


def _run(check: Check, subject: Subject) -> None:
    try:
        for problem in check(subject):
            subject.report.problems.append(problem)
    except MISSING as error:  # it was there when the topic was listed
        subject.report.problems.append(problem_of(error, MANIFEST_DIR))
