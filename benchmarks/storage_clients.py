"""`python -m benchmarks.storage_clients`: our store, the file systems of fsspec, and obstore.

Each is a process of its own on versitygw, Azurite and fake-gcs-server (`make test-clouds` brings
them): its start, its requests for each verb, its latency, its processor time. It is not a part of
`make bench`, since it compares clients and not us. obstore: pip install obstore.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.clouds.servers import ACCOUNT, ACCOUNT_KEY, BUCKET, KEY, KINDS, REGION, SECRET, running
from tests.proxy import proxy_before

SMALL = os.urandom(600)
LARGE = os.urandom(64 * 2**20)
_SERVERS = ("versitygw", "azurite", "fake-gcs-server")
_CLIENTS = ("ours", "fsspec", "obstore")


class Client(NamedTuple):
    """What is measured: put-if-absent, get, listing, and a large object."""

    create: Callable[[str, bytes], object]
    read: Callable[[str], bytes | None]
    list: Callable[[], object]
    write_large: Callable[[], object]
    read_large: Callable[[], object]


def _ours(scheme: str, folder: str, options: dict[str, Any], endpoint: str) -> Client:
    from pylogtable.storage.open import open_store

    store = open_store(f"{scheme}://{BUCKET}/{folder}", options)

    def write_large() -> None:
        with store.open_output("large") as sink:
            sink.write(LARGE)

    return Client(
        store.create,
        store.read,
        lambda: list(store.list("p/")),
        write_large,
        lambda: store.open_input("large", len(LARGE)).read(),
    )


def _fsspec(scheme: str, folder: str, options: dict[str, Any], endpoint: str) -> Client:
    import fsspec

    fs = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True, **options)
    root = f"{BUCKET}/{folder}"

    def write_large() -> None:
        with fs.open(f"{root}/large", "wb", block_size=8 * 2**20) as sink:
            sink.write(LARGE)

    return Client(
        lambda key, data: fs.pipe_file(f"{root}/{key}", data, mode="create"),
        lambda key: bytes(fs.cat_file(f"{root}/{key}")),
        lambda: fs.find(f"{root}/p", detail=True),
        write_large,
        lambda: fs.cat_file(f"{root}/large"),
    )


def _obstore(scheme: str, folder: str, options: dict[str, Any], endpoint: str) -> Client:
    import obstore
    from obstore.store import AzureStore, GCSStore, S3Store

    how = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
    where = {"prefix": folder, **how}
    store: Any
    if scheme == "s3":
        keys = {"access_key_id": KEY, "secret_access_key": SECRET, "region": REGION}
        store = S3Store(BUCKET, endpoint=endpoint, **keys, **where)
    elif scheme == "abfs":
        keys = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
        store = AzureStore(BUCKET, endpoint=f"{endpoint}/{ACCOUNT}", **keys, **where)
    else:
        account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": ""}
        key = json.dumps({**account, "private_key": "", "private_key_id": ""})
        store = GCSStore(BUCKET, service_account_key=key, **where)

    def write_large() -> None:
        with obstore.open_writer(store, "large", buffer_size=8 * 2**20) as sink:
            sink.write(LARGE)

    return Client(
        lambda key, data: obstore.put(store, key, data, mode="create"),
        lambda key: bytes(obstore.get(store, key).bytes()),
        lambda: obstore.list(store, "p/").collect(),
        write_large,
        lambda: bytes(obstore.get_range(store, "large", start=0, end=len(LARGE))),
    )


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(which: str, kind: str, endpoint: str, options: dict[str, Any]) -> dict[str, float]:
    """In a process of its own: the figures of one client on one server."""
    began, before = time.perf_counter(), _processor_s()
    make = {"ours": _ours, "fsspec": _fsspec, "obstore": _obstore}[which]
    client = make(KINDS[kind].scheme, f"{which}-{os.getpid()}", options, endpoint)
    client.create("p/first", SMALL)
    figures = {
        "start_ms": 1e3 * (time.perf_counter() - began),
        "start_cpu_ms": 1e3 * (_processor_s() - before),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }

    def timed(name: str, step: Callable[[int], object], times: int) -> None:
        began, before = time.perf_counter(), _processor_s()
        for number in range(times):
            step(number)
        figures[f"{name}_ms"] = 1e3 * (time.perf_counter() - began) / times
        figures[f"{name}_cpu_ms"] = 1e3 * (_processor_s() - before) / times

    timed("put", lambda number: client.create(f"p/{number:06}", SMALL), 200)
    timed("get", lambda number: client.read(f"p/{number:06}"), 200)
    timed("list", lambda _: client.list(), 10)
    timed("write_64_mib", lambda _: client.write_large(), 2)
    timed("read_64_mib", lambda _: client.read_large(), 2)
    return figures


def count(which: str, kind: str, endpoint: str, options: dict[str, Any]) -> dict[str, float]:
    """How often each verb has to be sent; the caller counts, between the lines that it writes."""
    make = {"ours": _ours, "fsspec": _fsspec, "obstore": _obstore}[which]
    client = make(KINDS[kind].scheme, f"count-{which}-{os.getpid()}", options, endpoint)
    client.create("p/first", SMALL)
    steps: dict[str, Callable[[], object]] = {
        "put": lambda: client.create("p/second", SMALL),
        "get": lambda: client.read("p/second"),
        "list": client.list,
    }
    for name, step in steps.items():
        print(json.dumps(name), flush=True)
        sys.stdin.readline()
        step()
    return {}


def _child(task: str, *arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.storage_clients", task, json.dumps(arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def _requests(which: str, kind: str, server: Any) -> dict[str, float]:
    with proxy_before(server.port) as proxy:
        child = _child("count", which, kind, proxy.url, server.options(proxy.url))
        found: dict[str, float] = {}
        name = ""
        for line in child.stdout:
            if name:
                found[f"{name}_requests"] = proxy.traffic.requests
            proxy.traffic.reset()
            name = json.loads(line) or ""
            child.stdin.write("\n")
            child.stdin.flush()
        child.wait()
    return found


def main() -> None:
    for kind in _SERVERS:
        program = KINDS[kind].found()
        if program is None:
            print(f"{kind}: not here; {KINDS[kind].way}")
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            running(program, Path(folder), KINDS[kind]) as server,
        ):
            for which in _CLIENTS:
                child = _child("measure", which, kind, server.url, server.options(server.url))
                out, err = child.communicate()
                if child.returncode:
                    print(f"{kind} {which}: {err.strip().splitlines()[-1]}")
                    continue
                figures = {**json.loads(out), **_requests(which, kind, server)}
                shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
                print(f"{kind} {which}: {shown}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        task = {"measure": measure, "count": count}[sys.argv[1]]
        print(json.dumps(task(*json.loads(sys.argv[2]))))
    else:
        main()
