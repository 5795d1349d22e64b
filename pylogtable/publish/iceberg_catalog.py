"""Registers a topic's Iceberg table in a catalog: SQL, REST, Glue, Hive, whatever pyiceberg knows.

The catalog's entry points to the newest metadata file of the topic's folder. So an engine sees the
same table by catalog and by path. We do not commit through the catalog: it would write metadata
files of its own, and there would be two tables that differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pylogtable.arguments import names_in
from pylogtable.errors import CommitConflictError, InvalidRequestError, StorageError
from pylogtable.publish.iceberg_manifests import need_pyiceberg
from pylogtable.publish.iceberg_metadata import TOPIC_ID
from pylogtable.publish.iceberg_table import IcebergTable

#: How often an entry may change under our hands.
ATTEMPTS = 10
_NUMBER = re.compile(r"(.*/metadata/)v([0-9]+)\.metadata\.json")


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
    else:
        name = tuple(names_in("identifier", identifier))
    if len(name) < 2 or not all(name):
        raise InvalidRequestError(
            f"identifier must have a namespace and a name, such as 'shop.orders', not "
            f"{identifier!r}"
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
        raise InvalidRequestError(
            f"the entry {_shown(name)} of the catalog cannot be loaded ({error}). If it was for "
            f"this topic, drop it: catalog.drop_table({_shown(name)!r})"
        ) from error


def _is_older(entry: Any, location: str, name: tuple[str, ...]) -> bool:
    """True if the entry shows an older version of the same table."""
    shown, wanted = _NUMBER.fullmatch(entry.metadata_location), _NUMBER.fullmatch(location)
    is_ours = TOPIC_ID in entry.metadata.properties
    if not is_ours or shown is None or wanted is None or shown[1] != wanted[1]:
        raise InvalidRequestError(
            f"the entry {_shown(name)} of the catalog is another table "
            f"({entry.metadata_location}). Nothing was changed; choose another name, or drop it: "
            f"catalog.drop_table({_shown(name)!r})"
        )
    return int(shown[2]) < int(wanted[2])


def _replace(catalog: Any, name: tuple[str, ...], location: str) -> None:
    from pyiceberg.exceptions import TableAlreadyExistsError

    try:
        catalog.register_table(name, location, overwrite=True)
    except (NotImplementedError, TypeError, TableAlreadyExistsError):
        catalog.drop_table(name)
        catalog.register_table(name, location)


def _shown(name: tuple[str, ...]) -> str:
    return ".".join(name)
