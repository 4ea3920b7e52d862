"""A scripted HTTP server in this process: it answers what a test says, and remembers the asking."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int = 200
    body: Any = None  # JSON where it is no bytes
    headers: dict[str, str] = field(default_factory=dict)
    raw: Callable[[BaseHTTPRequestHandler], None] | None = None  # writes the whole answer itself


@dataclass
class TinyServer:
    """answer: what is said to each request; replaced at will."""

    url: str
    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)

    def paths(self) -> list[tuple[str, str]]:
        return [(asked.method, asked.path) for asked in self.asked]


@contextmanager
def tiny_server(answer: Callable[[Asked], Answer]) -> Iterator[TinyServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            text = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(text) if text else None
            asked = Asked(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
            server.asked.append(asked)
            said = server.answer(asked)
            if said.raw is not None:
                self.close_connection = True
                said.raw(self)
                return
            data = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
            data = b"" if said.body is None else data
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            if said.status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:  # a client that hung up
            pass

    http = Quiet(("127.0.0.1", 0), Handler)
    server = TinyServer(f"http://127.0.0.1:{http.server_port}", answer)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
