"""Schemas from a registry with Confluent's API, by id or by GUID."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogtable.errors import InvalidRequestError, StorageError

#: How long a request may take, and how often it is repeated, unless the settings say otherwise.
_DEFAULTS: dict[str, Any] = {"timeout": 30, "max.retries": 2}
#: What registries answer for an id, a subject or a version that they do not have is 404xx. A 404
#: with another code is from something that is no registry.
_UNKNOWN = range(40400, 40500)


class UnknownSchemaError(Exception):
    """The registry has no schema of this name."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema, and what it refers to: deeper ones first, each once."""

    text: str
    type: str
    references: list[tuple[str, RegisteredSchema]] = field(default_factory=list)


class Registry:
    """`settings` are those of confluent-kafka's SchemaRegistryClient. `wire_format` is the form in
    which schemas are asked for, if not as they were registered."""

    def __init__(
        self, url: str, settings: Mapping[str, Any] | None, wire_format: str | None = None
    ) -> None:
        self._library = registry_library()
        self.url = url
        self._format = wire_format
        if "url" in (settings or {}):
            raise InvalidRequestError(
                "the setting url for the schema registry is given by `schema_registry` "
                "(--schema-registry); leave it out"
            )
        try:
            self._client = self._library.SchemaRegistryClient(
                {**_DEFAULTS, **(settings or {}), "url": url}
            )
        except (ValueError, TypeError, OSError) as error:
            raise InvalidRequestError(
                f"the schema registry at {url} cannot be used with these settings: {error}"
            ) from error

    def schema(self, name: int | str) -> RegisteredSchema:
        """Of an id, or of a GUID. Raises UnknownSchemaError if there is none."""
        if isinstance(name, int):
            found = self._ask(lambda: self._client.get_schema(name, fmt=self._format))
        else:
            found = self._ask(lambda: self._client.get_schema_by_guid(name, fmt=self._format))
        return self._with_references(found, ())

    def newest(self, subject: str) -> tuple[int, RegisteredSchema]:
        """The id and the schema of the newest version of a subject."""
        found = self._ask(lambda: self._client.get_latest_version(subject, fmt=self._format))
        return found.schema_id, self._with_references(found.schema, ())

    def _with_references(self, found: Any, trail: tuple[str, ...]) -> RegisteredSchema:
        if found is None or not found.schema_str:
            raise self._no_registry()
        references: list[tuple[str, RegisteredSchema]] = []
        for reference in found.references or ():
            if reference.name in trail:
                raise UnknownSchemaError(f"its reference {reference.name!r} refers to itself")
            version = self._version(reference)
            below = self._with_references(version.schema, (*trail, reference.name))
            references += [*below.references, (reference.name, below)]
        return RegisteredSchema(
            found.schema_str, found.schema_type or "AVRO", list(dict(references).items())
        )

    def _version(self, reference: Any) -> Any:
        return self._ask(
            lambda: self._client.get_version(
                reference.subject, reference.version, deleted=True, fmt=self._format
            )
        )

    def _no_registry(self) -> StorageError:
        return StorageError(
            f"what answers at {self.url} is no schema registry. Check the URL: it may lack a path, "
            "such as /apis/ccompat/v7"
        )

    def _ask(self, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except self._library.SchemaRegistryError as error:
            if error.http_status_code == 404 and error.error_code in _UNKNOWN:
                raise UnknownSchemaError(str(error.error_message)) from error
            raise StorageError(
                f"the schema registry at {self.url} answers with HTTP status "
                f"{error.http_status_code}: {error.error_message}. {_advice(error)}"
            ) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._no_registry() from error
        except Exception as error:
            # httpx is a part of confluent-kafka, under a name that changes.
            if not type(error).__module__.startswith(("httpx", "httpcore", "confluent_kafka")):
                raise
            raise StorageError(
                f"the schema registry at {self.url} cannot be reached: {error}. Check the URL and "
                "the settings of the registry"
            ) from error


def _advice(error: Any) -> str:
    if error.http_status_code in (401, 403):
        return "Check the credentials, such as the setting basic.auth.user.info"
    if error.http_status_code == 404:
        return "Check the URL: it may lack a path, such as /apis/ccompat/v7"
    return "Try again later"


def registry_library() -> Any:
    """The client of confluent-kafka, which is imported only when it is needed."""
    try:
        import confluent_kafka.schema_registry
    except ImportError as error:
        raise InvalidRequestError(
            "this needs confluent-kafka with its client of schema registries: "
            "pip install 'pylogtable[kafka]'"
        ) from error
    return confluent_kafka.schema_registry
