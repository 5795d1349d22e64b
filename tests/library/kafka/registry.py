"""A small server of the REST calls of Confluent's Schema Registry that clients make here, as its
documentation has them: it registers and hands out schemas, and checks nothing in them.

A real registry is used in tests/kafka.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


class RegistryServer:
    """`status` or `page` is answered to all requests, if it is set. `requests` are the paths of
    those so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status: int | None = None
        self.page: bytes | None = None
        self.requests: list[str] = []
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def register(
        self,
        subject: str,
        schema: object,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """The id of the schema. A text is registered as it is, anything else as JSON."""
        text = schema if isinstance(schema, str) and kind == "PROTOBUF" else json.dumps(schema)
        return int(
            self.put(subject, {"schema": text, "schemaType": kind, "references": references})
        )

    def guid(self, schema_id: int) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(self._schemas[schema_id - 1]))

    def put(self, subject: str, body: dict[str, Any]) -> int:
        found = {
            "schema": body["schema"],
            "schemaType": body.get("schemaType") or "AVRO",
            "references": body.get("references") or [],
        }
        if found not in self._schemas:
            self._schemas.append(found)
        schema_id = self._schemas.index(found) + 1
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append(path)
        if self.status is not None:
            return self.status, {"error_code": self.status, "message": "as the test wants it"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        try:
            return 200, self._answer(method, parts, body)
        except LookupError as error:
            return 404, {"error_code": 40403, "message": f"not found: {error}"}

    def _answer(self, method: str, parts: list[str], body: dict[str, Any]) -> Any:
        if parts[:2] == ["schemas", "ids"]:
            return self._found(int(parts[2]))
        if parts[:2] == ["schemas", "guids"]:
            ids = range(1, len(self._schemas) + 1)
            return self._found({str(self.guid(each)): each for each in ids}[parts[2]])
        if parts[0] != "subjects":
            raise LookupError(parts[0])
        subject = parts[1]
        if method == "POST" and parts[2:] == ["versions"]:
            return {"id": self.put(subject, body)}
        versions = self._subjects[subject]
        if method == "POST":
            schema_id = self.put(subject, body)
            return self._version(subject, versions.index(schema_id) + 1)
        return self._version(subject, len(versions) if parts[3] == "latest" else int(parts[3]))

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        schema_id = self._subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": schema_id, **self._found(schema_id)}

    def _found(self, schema_id: int) -> dict[str, Any]:
        if not 0 < schema_id <= len(self._schemas):
            raise LookupError(f"schema {schema_id}")
        return {**self._schemas[schema_id - 1], "guid": str(self.guid(schema_id))}


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: dict[str, Any]) -> None:
            status, found = registry.answer(self.command, urlsplit(self.path).path, body)
            text = json.dumps(found).encode() if registry.page is None else registry.page
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = RegistryServer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
