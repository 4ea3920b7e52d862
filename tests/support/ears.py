"""Somebody who hears alarms: a real HTTP server that remembers what was posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Ears:
    """answers: statuses for the next posts, then 204."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.heard: list[dict[str, Any]] = []
        self.posts: list[tuple[int, dict[str, str], bytes]] = []
        self.url = ""

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Return the status for a post."""
        status = self.answers.pop(0) if self.answers else 204
        self.posts.append((status, headers, body))
        if status == 204:
            self.heard.append(json.loads(body))
        return status


@contextmanager
def listening() -> Iterator[Ears]:
    """Yield ears that listen on loopback."""
    ears = Ears()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = ears.take({k.lower(): v for k, v in self.headers.items()}, body)
            self.send_response(status)
            if status in {301, 302}:
                self.send_header("Location", ears.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        ears.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield ears
        server.shutdown()
        thread.join()
