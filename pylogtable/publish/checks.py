"""Checks on the published tables of a topic: engines can read them."""

from __future__ import annotations

from collections.abc import Iterator

from pylogtable.check.loaded_topic import Subject, problem_of
from pylogtable.check.report import Problem
from pylogtable.errors import CorruptTopicError, InvalidRequestError, UnsupportedFormatError
from pylogtable.publish.table import ChangedByOthersError, Table
from pylogtable.publish.tables import tables_in
from pylogtable.runtime import Runtime


def check_published_tables(subject: Subject) -> Iterator[Problem]:
    """A published table of the topic can be read, all files that it shows are there [PUB-1], and no
    other writer has changed it [PUB-5]. Tables of others, and what a deleted topic has left, are
    not looked at."""
    for table in tables_in(subject.sizes, subject.store, Runtime()):
        with subject.looking.at(table.folder):
            yield from _check_table(subject, table)


def _check_table(subject: Subject, table: Table) -> Iterator[Problem]:
    topic_id = subject.snapshot.topic_id
    try:
        newest = table.newest()
        if newest is None or newest.state.topic_id != topic_id:
            return
        files = table.files(newest)
        hiding = table.hiding_objects(newest)
    except CorruptTopicError as error:
        if table.topic_id() in (None, topic_id):
            yield problem_of(error, error.path)
        return
    except UnsupportedFormatError as error:
        yield Problem("PUB-5", table.folder, str(error))
        return
    except ChangedByOthersError as error:
        if table.topic_id() == topic_id:
            yield Problem("PUB-5", table.folder, str(error))
        return
    except InvalidRequestError:
        return  # it is not ours, or pyiceberg is missing
    for path in sorted({*files, *hiding} - subject.sizes.keys()):
        if subject.store.size_of(path) is None:  # it may be newer than the listing
            detail = (
                f"the {table.format} table needs the file for its entry {newest.number}, but it "
                "is missing; unpublish the topic and publish it again"
            )
            yield Problem("PUB-9" if path in hiding else "PUB-1", path, detail)
