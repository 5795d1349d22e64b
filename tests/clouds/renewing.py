"""Credentials that end when a test says so: a proxy refuses those that were given before."""

from __future__ import annotations

import datetime
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.clouds.servers import ACCOUNT, ACCOUNT_KEY, BUCKET, KEY, REGION, SECRET, Server
from tests.proxy import Proxy, Refusal
from tests.storage.guarded import token_of


class Issuer(ABC):
    """Gives credentials of a server, which are valid until `expire`."""

    #: What the cloud answers when credentials have expired.
    refusal: ClassVar[Refusal]

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self.server = server
        self.lock = threading.Lock()
        self.valid: set[str] = set()
        self.asked = 0
        self.refused = 0
        #: Credentials end before each of these requests. They are counted from 0.
        self.ends: Iterator[int] = iter(())
        self._next_end: int | None = None
        self._requests = 0
        self.puts: list[str] = []
        proxy.guard = self._guard

    def end_before(self, requests: Iterator[int]) -> None:
        """Count requests from now on, and let credentials end before these."""
        with self.lock:
            self.ends, self._requests = requests, 0
            self._next_end = next(requests, None)
            self.asked = self.refused = 0
            self.puts.clear()

    def _guard(self, method: str, path: str, headers: Message) -> Refusal | None:
        asked = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        with self.lock:
            if self._requests == self._next_end:
                self.valid.clear()
                self._next_end = next(self.ends, None)
            self._requests += 1
            if token_of(headers, query) not in self.valid:
                self.refused += 1
                return self.refusal
            if method == "PUT" or (method == "POST" and "name" in query):
                self.puts.append(query.get("name") or asked.path)
            return None

    @property
    def requests(self) -> int:
        return self._requests

    def __call__(self) -> Mapping[str, Any]:
        with self.lock:
            self.asked += 1
            given = self.issue()
            self.valid.add(self.shown(given))
            return given

    @abstractmethod
    def issue(self) -> Mapping[str, Any]:
        """New credentials."""

    def shown(self, given: Mapping[str, Any]) -> str:
        """What requests with these credentials show."""
        return str(given["token"])

    @abstractmethod
    def options(self, url: str) -> dict[str, Any]:
        """Storage options without credentials."""

    @abstractmethod
    def refused_by_the_server(self) -> Mapping[str, Any]:
        """Credentials that the server itself refuses."""


class Sts(Issuer):
    """Sessions of MinIO's STS. The shortest lasts for 15 minutes."""

    refusal = Refusal(400, "ExpiredToken")

    def issue(self) -> Mapping[str, Any]:
        import boto3

        sts = boto3.client(
            "sts",
            endpoint_url=self.server.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )
        reply = sts.assume_role(
            RoleArn="arn:aws:iam::123456789012:role/any", RoleSessionName="tests"
        )
        given: Mapping[str, Any] = reply["Credentials"]
        return given

    def shown(self, given: Mapping[str, Any]) -> str:
        return str(given["SessionToken"])

    def options(self, url: str) -> dict[str, Any]:
        return {"endpoint_url": url, "client_kwargs": {"region_name": REGION}}

    def refused_by_the_server(self) -> Mapping[str, Any]:
        given = self.issue()
        return {**given, "SessionToken": given["SessionToken"][:-1]}


class Sas(Issuer):
    """Shared access signatures of a container."""

    refusal = Refusal(403, "AuthenticationFailed")

    def issue(self) -> Mapping[str, Any]:
        return {"sas_token": self._signed(datetime.timedelta(hours=1, seconds=self.asked))}

    def _signed(self, lives: datetime.timedelta) -> str:
        from azure.storage.blob import generate_container_sas

        return generate_container_sas(
            ACCOUNT,
            BUCKET,
            ACCOUNT_KEY,
            permission="racwdl",
            expiry=datetime.datetime.now(datetime.timezone.utc) + lives,
        )

    def shown(self, given: Mapping[str, Any]) -> str:
        return parse_qs(given["sas_token"])["sig"][0]

    def options(self, url: str) -> dict[str, Any]:
        return {"connection_string": f"BlobEndpoint={url}/{ACCOUNT}"}

    def refused_by_the_server(self) -> Mapping[str, Any]:
        return {"sas_token": self._signed(datetime.timedelta(minutes=-1))}


class Bearer(Issuer):
    """Tokens that fake-gcs-server does not look at."""

    refusal = Refusal(401, "authError")

    def issue(self) -> Mapping[str, Any]:
        return {"token": f"token-{self.asked}"}

    def options(self, url: str) -> dict[str, Any]:
        return {"endpoint_url": url}

    def refused_by_the_server(self) -> Mapping[str, Any]:
        raise NotImplementedError


ISSUERS: Mapping[str, type[Issuer]] = {
    "minio": Sts,
    "azurite": Sas,
    "fake-gcs-server": Bearer,
}
