"""Servers of object stores, each in its own process. `make test-clouds` brings them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

# gcsfs asks Google itself for the kind of each bucket otherwise, and there is no emulator of that.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

BUCKET = "bucket"
KEY, SECRET = "AKIASERVERTEST", "sErVeRsEcReTsErVeR"
REGION = "us-east-1"
#: The account and the key of every Azurite, which its manual names.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

_PATIENCE_S = 60.0


class Server(ABC):
    """A server that can be killed and started again on the same port."""

    #: The variable of the environment that names the program.
    variable: ClassVar[str]
    #: Where the program is below `PYLOGTABLE_SERVERS`, the folder into which make builds it.
    program: ClassVar[str]
    #: The command that gets it.
    way: ClassVar[str]
    scheme: ClassVar[str]
    #: What was acknowledged before a SIGKILL is there after it. The others are emulators, which
    #: write to a disk later or never.
    keeps_objects: ClassVar[bool]
    #: A part of an upload may be sent again. fake-gcs-server appends whatever it gets, where Google
    #: ignores bytes that it has.
    knows_parts: ClassVar[bool] = True

    @classmethod
    def found(cls) -> str | None:
        """The program, as the environment has it."""
        built = Path(os.environ.get("PYLOGTABLE_SERVERS") or "nowhere", cls.program)
        return os.environ.get(cls.variable) or (str(built) if built.exists() else None)

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._log = folder / "server.log"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it on `self.port`."""

    @abstractmethod
    def options(self, url: str) -> dict[str, Any]:
        """The storage options for the server, or for a proxy before it."""

    @abstractmethod
    def environment(self, url: str) -> dict[str, str]:
        """The same as variables, for other processes."""

    def secrets(self) -> dict[str, str]:
        """The variables of the server itself."""
        return {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), env={**os.environ, **self.secrets()}, stdout=log, stderr=log
            )
        give_up = time.monotonic() + _PATIENCE_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise RuntimeError(f"no server: {self._log.read_text()}")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def make_bucket(self, name: str = BUCKET) -> None:
        """`BUCKET` is made when it was started for the first time."""
        import fsspec

        fs = fsspec.filesystem(self.scheme, skip_instance_cache=True, **self.options(self.url))
        fs.mkdir(name)

    def kill(self) -> None:
        """SIGKILL: requests that it was working on get no reply."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _S3Server(Server):
    scheme = "s3"
    keeps_objects = True

    def options(self, url: str) -> dict[str, Any]:
        return options(url)

    def environment(self, url: str) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": url,
            "AWS_DEFAULT_REGION": REGION,
        }


class Versitygw(_S3Server):
    """S3 over a directory."""

    variable = "PYLOGTABLE_S3_SERVER"
    program = "versitygw"
    way = "go install github.com/versity/versitygw/cmd/versitygw@latest"

    def command(self) -> list[str]:
        start = [self._program, "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive"]
        return [*start, "posix", *self._place_of_attributes(), str(self._objects())]

    def _place_of_attributes(self) -> list[str]:
        """In the files, where the disk can: they appear with them. Files beside them are written
        first. If the server dies then, it says of an object that is not there that it exists."""
        try:
            os.setxattr(self._objects(), "user.tried", b"1")
        except (AttributeError, OSError):
            sidecar = self._folder / "attributes"
            sidecar.mkdir(exist_ok=True)
            return ["--sidecar", str(sidecar)]
        return []

    def secrets(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET}

    def make_bucket(self, name: str = BUCKET) -> None:
        (self._objects() / name).mkdir()

    def _objects(self) -> Path:
        objects = self._folder / "objects"
        objects.mkdir(exist_ok=True)
        return objects


class Minio(_S3Server):
    variable = "PYLOGTABLE_MINIO_SERVER"
    program = "minio"
    way = "go install github.com/minio/minio@latest"

    def command(self) -> list[str]:
        start = [self._program, "server", "--quiet", "--address", f"127.0.0.1:{self.port}"]
        console = ["--console-address", f"127.0.0.1:{_free_port()}"]
        return [*start, *console, str(self._folder / "objects")]

    def secrets(self) -> dict[str, str]:
        return {
            "MINIO_ROOT_USER": KEY,
            "MINIO_ROOT_PASSWORD": SECRET,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }


class Azurite(Server):
    """Azure's own emulator of its blobs."""

    variable = "PYLOGTABLE_AZURE_SERVER"
    program = "azurite/node_modules/.bin/azurite-blob"
    way = "npm install azurite"
    scheme = "abfs"
    keeps_objects = False

    def command(self) -> list[str]:
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        # It knows versions of the API later than the clients do.
        how = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        return [self._program, *where, *how]

    def options(self, url: str) -> dict[str, Any]:
        return {"connection_string": self._connection(url)}

    def environment(self, url: str) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self._connection(url)}

    def _connection(self, url: str) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
            f"BlobEndpoint={url}/{ACCOUNT};"
        )


class FakeGcs(Server):
    variable = "PYLOGTABLE_GOOGLE_SERVER"
    program = "fake-gcs-server"
    way = "go install github.com/fsouza/fake-gcs-server@latest"
    scheme = "gs"
    keeps_objects = False
    knows_parts = False

    def command(self) -> list[str]:
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        how = ["-backend", "memory", "-log-level", "error"]
        # It serves requests for this host only, and a proxy before it has another port.
        return [self._program, *where, *how, "-public-host", "127.0.0.1"]

    def options(self, url: str) -> dict[str, Any]:
        return {"endpoint_url": url, "token": "anon", "project": "test"}

    def environment(self, url: str) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": url, "NO_GCE_CHECK": "true"}


KINDS: Mapping[str, type[Server]] = {
    "versitygw": Versitygw,
    "minio": Minio,
    "azurite": Azurite,
    "fake-gcs-server": FakeGcs,
}


#: Those whose servers may be killed.
LASTING = [name for name, kind in KINDS.items() if kind.keeps_objects]


def options(url: str) -> dict[str, Any]:
    """The storage options for the servers of S3."""
    return {
        "key": KEY,
        "secret": SECRET,
        "endpoint_url": url,
        "client_kwargs": {"region_name": REGION},
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def running(program: str, folder: Path, kind: type[Server] = Versitygw) -> Iterator[Server]:
    """The server with an empty bucket."""
    server = kind(program, folder)
    server.start()
    try:
        server.make_bucket()
        yield server
    finally:
        server.kill()
