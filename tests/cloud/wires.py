"""TCP between the host and a pod's own network: proxies that can be delayed, cut and frozen."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable

LOOPBACK = "127.0.0.1"
PIECE_BYTES = 1 << 16


def reserved_port() -> socket.socket:
    """Return a bound socket that does not listen: its port is ours, and refuses connections."""
    return bound(0)


def bound(port: int) -> socket.socket:
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind((LOOPBACK, port))
    return place


def to_host(port: int) -> socket.socket:
    """Return a connection to a port of this machine; raises OSError."""
    return socket.create_connection((LOOPBACK, port))


class Proxy:
    """Hands connections of a bound socket to `connect`; refuses until `open`."""

    def __init__(self, place: socket.socket, connect: Callable[[], socket.socket]) -> None:
        self.port: int = place.getsockname()[1]
        self._place = place
        self._connect = connect
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._flow = threading.Event()
        self._flow.set()
        self._closed = self._refusing = False

    def open(self) -> None:
        with contextlib.suppress(OSError):  # closed meanwhile
            self._place.listen(64)
            threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection by a reset."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                reset(end)

    def freeze(self, *, on: bool) -> None:
        if on:
            self._flow.clear()
        else:
            self._flow.set()

    def refuse(self, *, on: bool) -> None:
        """Reset every connection, new ones too, while `on`."""
        self._refusing = on
        if on:
            self.cut()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._place.shutdown(socket.SHUT_RDWR)
        self._place.close()
        self.cut()
        self._flow.set()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._place.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        try:
            if self._refusing:
                raise ConnectionRefusedError
            far = self._connect()
        except OSError:
            reset(near)
            return
        with self._lock:
            self._pairs.append((near, far))
        with contextlib.suppress(OSError, ValueError):
            self._pump(near, far)
        with self._lock:
            if (near, far) in self._pairs:
                self._pairs.remove((near, far))
        for end in (near, far):
            end.close()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        open_ends = [near, far]
        while open_ends:
            for end in select.select(open_ends, [], [])[0]:
                self._flow.wait()
                piece = end.recv(PIECE_BYTES)
                if piece:
                    other[end].sendall(piece)
                else:
                    open_ends.remove(end)
                    other[end].shutdown(socket.SHUT_WR)


def reset(end: socket.socket) -> None:
    """Close with a reset instead of a farewell."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()
