"""The HTTP server that answers scrapes, in threads. Whoever can connect must not be able to take
more than a few threads from the work of the process, or to keep them."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

_logger = logging.getLogger(__name__)

#: A connection that says nothing, or does not take its answer, is closed after this time.
SILENT_SECONDS = 30.0
#: With more connections than this, the oldest one is closed. A Prometheus has one.
MOST_CONNECTIONS = 32


class ScrapeServer(ThreadingTCPServer):
    """Listens from the beginning, and answers until it is closed. Raises an OSError or an
    OverflowError if the address cannot be had."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, handler: type[BaseRequestHandler]) -> None:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        #: The connections that are open, the oldest one first.
        self._open: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), handler)
        self._thread = threading.Thread(
            target=self.serve_forever, name="pylogtable metrics", daemon=True
        )
        self._thread.start()

    @property
    def server_port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # the client has gone
            _logger.exception("a scrape was not answered")

    def close(self) -> None:
        """Stop to listen, and hang up."""
        self.shutdown()
        self.server_close()
        self._thread.join()
        with self._lock:
            for request in self._open:
                _hang_up(request)


def _hang_up(request: Any) -> None:
    """End a connection. Its thread notices, and closes it."""
    with suppress(OSError):  # it has ended by itself
        request.shutdown(socket.SHUT_RDWR)
