"""RunPod's REST v2 over HTTP: one call, one total deadline, one typed error. Knows no machines.

Nothing is asked twice here. A request that was cut may have taken effect: `Unavailable`. The key
travels in a header alone, and is masked in every text that comes back.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from providers.clock import Clock
from providers.errors import RateLimited, Unavailable
from providers.runpod_errors import error_of, windows

if TYPE_CHECKING:
    import httpx

Document = dict[str, Any]

CONNECT_S = 8.0
SILENCE_S = 15.0  # between two bytes
STREAM_SILENCE_S = 1.5  # a stream of what has been said already: then it waits for news, we do not
TOTAL_S = 25.0  # of one call, whatever the server does; no verb may block longer than 30 s
LARGEST_BYTES = 32 << 20  # of an answer: 10,000 machines are some 15 MB
MOST_PAGES = 100
# Requests of a window that reads leave to others: to terminate calls, another gpujob, a person.
KEPT_REQUESTS = 6
USER_AGENT = "gpujob"  # a library's own name is refused by what stands before the service


class Api:
    """One account's way to the service. Safe for threads.

    base_url: without `/v2`. total_s: the longest that one call may take.
    """

    def __init__(self, key: str, base_url: str, clock: Clock, *, total_s: float = TOTAL_S) -> None:
        self.base_url = base_url.rstrip("/")
        self._key = key
        self._clock = clock
        self._total_s = total_s
        self._made: httpx.Client | None = None
        self._making = threading.Lock()
        self._reads_after = 0.0  # monotonic: a window is nearly spent until then

    def read(self, verb: str, path: str, params: Mapping[str, str] | None = None) -> Document:
        """Return the object that a GET answers. 1 call. Raises ProviderError."""
        self._hold_back(verb)
        answer = self._call(verb, "GET", path, params=params)
        if not isinstance(answer, dict):
            raise Unavailable(f"{verb} {path}: the answer is no JSON object")
        return answer

    def pages(self, verb: str, path: str, name: str) -> list[Document]:
        """Return all objects of a list, following its pages; whole and well-formed, or an error.

        n calls. An answer that lacks the list is Unavailable: "no machines" must have been said.
        """
        found: list[Document] = []
        params: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            answer = self.read(verb, path, params)
            items = answer.get(name)
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise Unavailable(f"{verb} {path}: the answer has no list {name!r}")
            found += items
            page = answer.get("pagination")
            if page is None or (isinstance(page, dict) and page.get("hasNextPage") is False):
                return found
            cursor = page.get("nextCursor") if isinstance(page, dict) else None
            if not isinstance(cursor, str) or cursor in {"", params.get("cursor")}:
                if isinstance(page, dict) and "hasNextPage" not in page and cursor is None:
                    return found
                raise Unavailable(f"{verb} {path}: a page without the way to the next")
            params = {"cursor": cursor}
        raise Unavailable(f"{verb} {path}: more than {MOST_PAGES} pages")

    def create(self, verb: str, path: str, body: Mapping[str, Any]) -> Document:
        """Return the object that a POST made. 1 call, never repeated, not held back."""
        answer = self._call(verb, "POST", path, body=body)
        if not isinstance(answer, dict):
            raise Unavailable(f"{verb} {path}: the answer is no JSON object")
        return answer

    def delete(self, verb: str, path: str) -> None:
        """Ask for the end of an object; the answer's body is not looked at. 1 call."""
        self._call(verb, "DELETE", path)

    def events(self, verb: str, path: str, params: Mapping[str, str]) -> Iterator[Document]:
        """Yield the JSON of each server-sent event until the stream ends or falls silent. 1 call.

        A stream that is cut after it began ends; only a refusal raises. The caller stops at will.
        """
        self._hold_back(verb)
        import httpx

        silence = httpx.Timeout(STREAM_SILENCE_S, connect=CONNECT_S)
        with self._asked(verb, "GET", path, params=params, timeout=silence) as response:
            if response.status_code != 200:
                self._judge(verb, path, response, _read(response))
            try:
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        event = _parsed(line[5:].encode())
                        if isinstance(event, dict):
                            yield event
            except httpx.HTTPError:
                return

    # ---------------------------------------------------------------- helpers

    def _hold_back(self, verb: str) -> None:
        """Refuse a read while the window is nearly spent; terminate and launch never wait."""
        wait_s = self._reads_after - self._clock.monotonic()
        if wait_s > 0:
            raise RateLimited(f"{verb}: the rate limit is nearly spent", retry_after_s=wait_s)

    def _call(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> object:
        with self._asked(verb, method, path, params=params, body=body) as response:
            data = _read(response)
        self._heed(response.headers)
        return self._judge(verb, path, response, data)

    def _judge(self, verb: str, path: str, response: httpx.Response, data: bytes) -> object:
        """Return a success's document, None where it has no body; raise what else it means."""
        status = response.status_code
        document = _parsed(data)
        if 200 <= status < 300:
            if data and document is None and status != 204:
                raise Unavailable(f"{verb} {path}: HTTP {status}, an answer that is no JSON")
            return document
        error = error_of(
            verb, path, status, document, headers=response.headers, now=self._clock.now()
        )
        error.args = tuple(self._masked(str(part)) for part in error.args)
        raise error

    @contextmanager
    def _asked(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        body: Mapping[str, Any] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> Iterator[httpx.Response]:
        import httpx

        url = f"{self.base_url}/v2{path}"
        content = None if body is None else json.dumps(body, default=_number).encode()
        with _Deadline(self._total_s) as deadline:
            try:
                with self._client().stream(
                    method,
                    url,
                    params=dict(params or {}),
                    content=content,
                    headers={"Content-Type": "application/json"} if content is not None else None,
                    timeout=timeout or httpx.USE_CLIENT_DEFAULT,
                    extensions={"trace": deadline.trace},
                ) as response:
                    yield response
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
                why = f"no answer in {self._total_s:g} s" if deadline.passed else _why(error)
                raise Unavailable(self._masked(f"{verb} {path}: {why}")) from None

    def _client(self) -> httpx.Client:
        with self._making:
            if self._made is None:
                import httpx

                self._made = httpx.Client(
                    headers={
                        "Authorization": f"Bearer {self._key}",
                        "User-Agent": USER_AGENT,
                        "Accept": "application/json, text/event-stream",
                        "Accept-Encoding": "identity",
                    },
                    timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
                    # Each call on a connection of its own: a kept one that died is a lost reply.
                    limits=httpx.Limits(max_keepalive_connections=0),
                    follow_redirects=False,
                    # Reading the machine's certificates takes 0.1 s; a test cloud has no TLS.
                    verify=not self.base_url.startswith("http://"),
                )
            return self._made

    def _heed(self, headers: Mapping[str, str]) -> None:
        for left, seconds in windows(headers):
            if left <= KEPT_REQUESTS:
                until = self._clock.monotonic() + min(seconds, 60.0)
                self._reads_after = max(self._reads_after, until)

    def _masked(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


class _Deadline:
    """Cuts a call's sockets when its time is over, however busily the other side drips."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._sockets: list[Any] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Take the HTTP library's reports; remember every socket that it opens."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = info.get("return_value")
            with self._lock:
                if stream is not None:
                    self._sockets.append(stream.get_extra_info("socket"))
                late = self.passed
            if late:
                self._cut()

    def _cut(self) -> None:
        import socket

        with self._lock:
            self.passed = True
            for sock in self._sockets:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except (OSError, AttributeError):
                    continue


def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > LARGEST_BYTES:
            raise Unavailable(f"an answer of more than {LARGEST_BYTES >> 20} MB")
    return b"".join(parts)


def _parsed(data: bytes) -> object:
    """Return the JSON of an answer, its numbers exact; None where it is none."""
    if not data.strip():
        return None
    try:
        document: object = json.loads(data, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    return document


def _number(value: object) -> object:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"no request may hold a {type(value).__name__}")


def _why(error: Exception) -> str:
    words = str(error) or "no answer"
    return f"{type(error).__name__}, {words}"
