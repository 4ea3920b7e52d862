"""The HTTP server: one socket, faces by path, and answers spoiled as the switches say."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.cloud import control, rest, wires
from tests.cloud.answers import Answer, Refused, problem
from tests.cloud.quota import Quota
from tests.cloud.rest import Request
from tests.cloud.switches import Armed
from tests.cloud.world import World

HANG_S = 900
DRIP_S = 5.0
HTML_1010 = b"<html><head><title>Access denied</title></head><body>error code: 1010</body></html>"
V1_GONE = {"error": "This API version was retired on 2026-11-15. Use /v2.", "status": 410}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, world: World, quit_now: Callable[[], None]) -> None:
        super().__init__((wires.LOOPBACK, port), Handler)
        self.world = world
        self.quota = Quota(world)
        self.quit_now = quit_now

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server names them

    def log_message(self, *_: Any) -> None:
        """The state log has it all."""

    def version_string(self) -> str:
        return "simulated"

    def _handle(self) -> None:
        request = self._request()
        if request.path.startswith("/_sim"):
            self._send(control.answer(self.server.world, request, self.server.quit_now))
            return
        world, call, began = self.server.world, rest.call_of(request), time.monotonic()
        answer = self._spoiled(request, call)
        status = answer.status if answer else 0
        agent = request.headers.get("user-agent", "")
        world.log.write(
            "request", method=request.method, path=request.path, call=call, status=status,
            agent=agent, key=whose(world, request.key),
            ms=round(1000 * (time.monotonic() - began), 1),
        )  # fmt: skip
        if answer:
            self._send(answer)

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        headers = {name.lower(): value for name, value in self.headers.items()}
        bearer = headers.get("authorization", "")
        query = dict(parse_qsl(parts.query))
        key = bearer.removeprefix("Bearer ") if bearer.startswith("Bearer ") else None
        return Request(self.command, unquote(parts.path), query, body, headers,
                       key or query.get("api_key"))  # fmt: skip

    # ---------------------------------------------------------------- answering
    def _spoiled(self, request: Request, call: str) -> Answer | None:
        """Return what goes out; None where it has gone out, or never will."""
        world = self.server.world
        down = world.switches.take("api_down")
        if down:
            world.down_until = world.clock.now() + down.number("seconds", 10)
        if world.clock.now() < world.down_until:
            return Answer(502, HTML_1010.replace(b"1010", b"502"), "text/html")
        found = world.switches.take_spoiled(call)
        if found is None:
            return self._answer(request)
        fault, mode, done = found
        answer = self._answer(request) if done else None
        return self._spoil(fault, mode, answer)

    def _answer(self, request: Request) -> Answer:
        world = self.server.world
        limited = self.server.quota.limited(request)
        if limited:
            return limited
        try:
            answer = self._face(request)
        except Refused as refused:
            answer = refused.answer
        except Exception as error:
            traceback.print_exc()
            world.log.write("bug", text=repr(error))
            answer = problem(500, f"a bug of the simulator: {error!r}")
        return self.server.quota.stamped(request, answer)

    def _face(self, request: Request) -> Answer:
        world = self.server.world
        if request.path.lstrip("/").startswith("graphql"):
            if world.settings.graphql == "off":
                return Answer(410, {"error": "GraphQL was retired", "status": 410})
            from tests.cloud.graph import answer as graph_answer  # 0.2 s, seldom needed

            return graph_answer(world, request)
        if request.path.startswith("/v1"):
            return Answer(410, V1_GONE)
        return rest.answer(world, request)

    def _spoil(self, fault: Armed, mode: str, answer: Answer | None) -> Answer | None:
        if mode.isdigit():
            return problem(int(mode), fault.options.get("detail"))
        if mode == "null":
            return Answer(500, {"data": None})
        if mode == "quiet":
            return Answer(500, {"message": "internal error"})
        if mode == "html":
            return Answer(403, HTML_1010, "text/html")
        if mode == "malformed":
            return Answer(200, b'{"pods": [{"id": "abc", ')
        if mode == "hang":
            self._hang(fault.number("seconds", HANG_S))
        elif mode == "drip":
            self._drip(answer or Answer(200, {"pods": []}))
        wires.reset(self.connection)
        self.close_connection = True
        return None

    def _hang(self, seconds: float) -> None:
        """Wait until the client has had enough."""
        ready, _, _ = select.select([self.connection], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):
                self.connection.recv(1, socket.MSG_PEEK)

    def _drip(self, answer: Answer) -> None:
        content = answer.content() or b"{}"
        with contextlib.suppress(OSError):
            head = f"HTTP/1.1 {answer.status} OK\r\nContent-Type: {answer.kind}\r\n"
            self.wfile.write((head + f"Content-Length: {len(content)}\r\n\r\n").encode())
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if select.select([self.connection], [], [], DRIP_S)[0]:
                    return

    def _send(self, answer: Answer) -> None:
        with contextlib.suppress(OSError):
            self.send_response_only(answer.status)
            self.send_header("Date", self.date_time_string(self.server.world.clock.now()))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.stream is not None:
                self._stream(answer)
                return
            content = answer.content()
            if answer.status != 204:
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _stream(self, answer: Answer) -> None:
        self.send_header("Content-Type", answer.kind)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for piece in answer.stream:
            self.wfile.write(piece)
            self.wfile.flush()
            if select.select([self.connection], [], [], 0)[0]:
                return


def whose(world: World, key: str | None) -> str:
    """Return whose key it is, never the key."""
    if key is None:
        return "none"
    if key == world.settings.key:
        return "account"
    return next((pod.id for pod in world.pods.values() if pod.key == key), "unknown")
