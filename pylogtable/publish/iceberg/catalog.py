"""Registers a topic's Iceberg table in a catalog: SQL, REST, Glue, Hive, whatever pyiceberg knows.

The catalog's entry points to the newest metadata file of the topic's folder. So an engine sees the
same table by catalog and by path. We do not commit through the catalog: it would write metadata
files of its own, and there would be two tables that differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pylogtable.errors import CommitConflictError, InvalidRequestError, StorageError
from pylogtable.publish.iceberg.manifests import need_pyiceberg
from pylogtable.publish.iceberg.metadata import TOPIC_ID
from pylogtable.publish.iceberg.table import IcebergTable

#: How often an entry may change under our hands.
ATTEMPTS = 10
_NUMBER = re.compile(r"/v([0-9]+)\.metadata\.json$")


def register(table: IcebergTable, catalog: Any, identifier: str | Sequence[str]) -> str:
    """Let an entry of a pyiceberg catalog show what the published table shows now. Returns the
    address of the metadata file.

    Call it after each publication. An entry that shows something newer stays as it is. An entry of
    another table is refused, and nothing is changed. Where the catalog cannot replace an entry in
    one step, it is dropped and made again. No file is removed with it. In between, readers are told
    that there is no such table; after a crash there, the next call makes the entry.
    """
    need_pyiceberg()
    from pyiceberg.catalog import Catalog
    from pyiceberg.exceptions import (
        NoSuchNamespaceError,
        NoSuchTableError,
        TableAlreadyExistsError,
    )

    if not isinstance(catalog, Catalog):
        raise InvalidRequestError(
            f"catalog must be a catalog of pyiceberg, not {type(catalog).__name__}: "
            "pyiceberg.catalog.load_catalog(...)"
        )
    name = _name(identifier)
    location = table.newest_location()
    if location is None:
        raise InvalidRequestError(
            'the topic has no Iceberg table yet; publish it first: topic.publish(["iceberg"])'
        )
    for _ in range(ATTEMPTS):
        entry = _entry(catalog, name)
        if entry is not None and not _is_older(entry, location, name):
            return location
        try:
            if entry is None:
                catalog.register_table(name, location)
            else:
                _replace(catalog, name, location)
            return location
        except NoSuchNamespaceError as error:
            raise InvalidRequestError(
                f"the catalog has no namespace for {_shown(name)}: "
                f"catalog.create_namespace({name[:-1]!r})"
            ) from error
        except (NoSuchTableError, TableAlreadyExistsError):
            continue  # another publication was faster: look again
        except Exception as error:  # each catalog has its own errors
            raise StorageError(
                f"the catalog did not take {_shown(name)}: {error}. Its entry may be missing now; "
                "the topic and its table are as before. Register it again"
            ) from error
    raise CommitConflictError(
        f"the entry {_shown(name)} of the catalog changes all the time; register it again"
    )


def _name(identifier: str | Sequence[str]) -> tuple[str, ...]:
    """The namespace and the name of an entry."""
    if isinstance(identifier, str):
        name = tuple(identifier.split("."))
    elif isinstance(identifier, list | tuple) and all(isinstance(p, str) for p in identifier):
        name = tuple(identifier)
    else:
        name = ()
    if len(name) < 2 or not all(name):
        raise InvalidRequestError(
            "identifier must have a namespace and a name, such as 'shop.orders' or "
            f"('shop', 'orders'), not {identifier!r}"
        )
    return name


def _entry(catalog: Any, name: tuple[str, ...]) -> Any:
    """The entry of the catalog; None if there is none."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None
    except Exception as error:  # each catalog has its own errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidRequestError(
            f"the entry {_shown(name)} of the catalog cannot be loaded: {reason}. If the catalog "
            "itself does not answer, register again when it does. If the entry points to a file "
            "that is gone, as after unpublish, drop it and register again: "
            f"catalog.drop_table({_shown(name)!r})"
        ) from error


def _is_older(entry: Any, location: str, name: tuple[str, ...]) -> bool:
    """True if the entry shows an older version of the same table."""
    place, drop = entry.metadata_location, f"catalog.drop_table({_shown(name)!r})"
    folder = location.rpartition("/")[0]
    if TOPIC_ID not in entry.metadata.properties or place.rpartition("/")[0] != folder:
        raise InvalidRequestError(
            f"the entry {_shown(name)} of the catalog is another table ({place}). Nothing was "
            f"changed; choose another name, or drop it: {drop}"
        )
    shown, wanted = _NUMBER.search(place), _NUMBER.search(location)
    if shown is None or wanted is None:
        raise InvalidRequestError(
            f"another writer has changed the table by the entry {_shown(name)} of the catalog "
            f"({place}): it no longer shows what the topic has. Nothing was changed; drop the "
            f"entry and register again: {drop}"
        )
    return int(shown[1]) < int(wanted[1])


def _replace(catalog: Any, name: tuple[str, ...], location: str) -> None:
    from pyiceberg.exceptions import TableAlreadyExistsError

    try:
        catalog.register_table(name, location, overwrite=True)
    except (NotImplementedError, TypeError, TableAlreadyExistsError):
        catalog.drop_table(name)
        catalog.register_table(name, location)


def _shown(name: tuple[str, ...]) -> str:
    return ".".join(name)
