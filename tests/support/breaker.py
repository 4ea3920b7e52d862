"""A wire to the S3 server that counts the parts sent over it, and kills the server at the fifth."""

from __future__ import annotations

import re
import socket
import threading
from types import TracebackType
from typing import Self

from tests.support.s3_server import S3Server

# The push sends four parts at a time: when a fifth begins, one was answered, and others are on
# their way.
KILL_AT = 5
_PART = re.compile(rb"PUT /\S+[?&]partNumber=\d+\S* HTTP/1.1\r\n")
_HEAD = 4096  # of the former bytes kept, so that a head cut in two is seen


class Breaker:
    """See the module. armed: whether it still kills."""

    def __init__(self, store: S3Server) -> None:
        self.store = store
        self.armed = True
        self.parts = 0
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        """Return the endpoint."""
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._open:
            one.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.store.port))
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for way in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._carry, args=way, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, outwards: bool) -> None:
        before = b""
        try:
            while data := source.recv(1 << 16):
                if outwards:
                    self._look(before, data)
                    before = (before + data)[-_HEAD:]
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _look(self, before: bytes, data: bytes) -> None:
        new = len(_PART.findall(before + data)) - len(_PART.findall(before))
        with self._lock:
            self.parts += new
            if new and self.armed and self.parts >= KILL_AT:
                self.store.kill()
