"""The RunPod client: one typed error for every kind of bad answer, and never a second request."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from providers.errors import (
    AuthFailed,
    InvalidRequest,
    NoCapacity,
    NotFound,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Unavailable,
)
from providers.runpod_api import Api
from providers.runpod_errors import error_of
from tests.support.clocks import VirtualClock
from tests.support.tiny_http import Answer, Asked, TinyServer, tiny_server

KEY = "rpa_0123456789abcdefSENTINEL"
SOLD_OUT = (
    "There are no longer any instances available with the requested specifications. "
    "Please refresh and try again."
)


@pytest.fixture
def server() -> Iterator[TinyServer]:
    with tiny_server(lambda _: Answer(200, {})) as tiny:
        yield tiny


def api(server: TinyServer, **given: float) -> Api:
    return Api(KEY, server.url + "/", VirtualClock(), **given)


def problem(status: int, detail: str, title: str = "Problem") -> dict[str, object]:
    return {"title": title, "status": status, "detail": detail}


# ---------------------------------------------------------------- statuses


@pytest.mark.parametrize(
    ("verb", "status", "detail", "kind"),
    [
        ("launch", 400, SOLD_OUT, NoCapacity),
        ("launch", 400, "no gpus available in US-KS-2", NoCapacity),
        ("launch", 400, "There are no longer any instances with enough disk space.", NoCapacity),
        ("launch", 400, "could not be placed", NoCapacity),
        ("launch", 400, "Your balance is too low to deploy", QuotaExceeded),
        ("launch", 400, "mounts: persistent and network are mutually exclusive", InvalidRequest),
        ("launch", 401, "missing bearer token", AuthFailed),
        ("launch", 402, "insufficient balance", QuotaExceeded),
        ("launch", 403, "access denied", AuthFailed),
        ("launch", 403, "your account cannot access this pool", NoCapacity),
        ("launch", 404, "template not found", InvalidRequest),
        ("launch", 409, "conflict", Unavailable),
        ("launch", 410, "retired", InvalidRequest),
        ("launch", 422, "Request validation failed.", InvalidRequest),
        ("launch", 500, "internal", Unavailable),
        ("describe", 403, "your account cannot access this pool", AuthFailed),
        ("describe", 404, "pod not found", NotFound),
        ("describe", 400, SOLD_OUT, InvalidRequest),
        ("terminate", 404, "pod not found", NotFound),
        ("terminate", 409, "cluster member", InvalidRequest),
        ("terminate", 408, "timeout", Unavailable),
        ("terminate", 503, "busy", Unavailable),
        ("find", 301, "moved", Unavailable),
        ("find", 410, "retired", InvalidRequest),
    ],
)
def test_a_problem_means_one_class(
    verb: str, status: int, detail: str, kind: type[ProviderError]
) -> None:
    error = error_of(verb, "/pods", status, problem(status, detail), headers={}, now=0.0)
    assert type(error) is kind
    assert verb in str(error)
    assert str(status) in str(error)
    assert detail[:40] in str(error)


@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 422, 500, 502])
@pytest.mark.parametrize("verb", ["launch", "describe", "find", "terminate"])
@pytest.mark.parametrize("document", [None, [], "gone", {}, {"ok": True}])
def test_an_answer_of_somebody_else_says_nothing_of_machines(
    verb: str, status: int, document: object
) -> None:
    """A proxy's page (404, "error code: 1010") is neither "not found" nor "refused"."""
    assert type(error_of(verb, "", status, document, headers={}, now=0.0)) is Unavailable


@pytest.mark.parametrize(
    ("verb", "headers", "wait_s"),
    [
        ("find", {"retry-after": "7"}, 7.0),
        ("find", {"retry-after": "Thu, 01 Jan 1970 00:00:50 GMT"}, 40.0),
        ("find", {"retry-after": "soon"}, 15.0),
        ("find", {}, 15.0),
        ("find", {"ratelimit": '"minute";r=0;t=12, "hour";r=2800;t=1812'}, 12.0),
        ("find", {"ratelimit": '"minute";r=0;t=12, "hour";r=0;t=1812'}, 300.0),
        ("find", {"retry-after": "45000"}, 300.0),
        ("terminate", {"retry-after": "45000"}, 60.0),
    ],
)
def test_a_429_names_its_wait_and_never_holds_a_teardown_for_long(
    verb: str, headers: dict[str, str], wait_s: float
) -> None:
    for document in (problem(429, "rate limit exceeded"), None):
        error = error_of(verb, "/pods", 429, document, headers=headers, now=10.0)
        assert isinstance(error, RateLimited)
        assert error.retry_after_s == wait_s


# ---------------------------------------------------------------- the wire


def test_a_request_carries_our_name_and_the_key_in_a_header_alone(server: TinyServer) -> None:
    api(server).read("find", "/pods", {"cursor": "a b&c"})
    (asked,) = server.asked
    assert asked.path == "/v2/pods"
    assert asked.query == {"cursor": "a b&c"}
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["user-agent"].startswith("gpujob")
    assert asked.headers["accept-encoding"] == "identity"


def test_numbers_are_exact(server: TinyServer) -> None:
    server.answer = lambda _: Answer(200, b'{"cost": 0.1, "rate": 1e-2, "n": 3}')
    got = api(server).read("find", "/pods")
    assert got == {"cost": Decimal("0.1"), "rate": Decimal("0.01"), "n": 3}
    assert isinstance(got["cost"], Decimal)


def test_a_204_has_no_body_to_read(server: TinyServer) -> None:
    server.answer = lambda _: Answer(204)
    api(server).delete("terminate", "/pods/abc")
    assert server.paths() == [("DELETE", "/v2/pods/abc")]


@pytest.mark.parametrize("status", [200, 202, 204])
def test_an_accepted_end_may_say_anything(server: TinyServer, status: int) -> None:
    server.answer = lambda _: Answer(status, None if status == 204 else {"id": "abc"})
    api(server).delete("terminate", "/pods/abc")


@pytest.mark.parametrize("body", [b"<html>", b"{", b"[1]", b'"x"', b"null", b"", b"\xff\xfe"])
def test_a_success_that_is_no_object_is_no_success(server: TinyServer, body: bytes) -> None:
    server.answer = lambda _: Answer(201, body)
    with pytest.raises(Unavailable):
        api(server).create("launch", "/pods", {})
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_no_request_is_repeated(server: TinyServer, status: int) -> None:
    server.answer = lambda _: Answer(status, problem(status, "x"))
    for call in (
        lambda it: it.create("launch", "/pods", {}),
        lambda it: it.read("find", "/pods"),
        lambda it: it.delete("terminate", "/pods/a"),
    ):
        server.asked.clear()
        with pytest.raises((Unavailable, RateLimited)):
            call(api(server))
        assert len(server.asked) == 1


def test_a_redirect_is_not_followed_with_the_key(server: TinyServer) -> None:
    server.answer = lambda _: Answer(307, None, {"Location": f"{server.url}/elsewhere"})
    with pytest.raises(Unavailable):
        api(server).read("find", "/pods")
    assert len(server.asked) == 1


def _hang(handler: Any) -> None:
    time.sleep(5)


def _drip_headers(handler: Any) -> None:
    for _ in range(200):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: y\r\n"[:1])
        handler.wfile.flush()
        time.sleep(0.05)


def _drip_body(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(200):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def _reset(handler: Any) -> None:
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()


def _cut(handler: Any) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")


@pytest.mark.parametrize("raw", [_hang, _drip_headers, _drip_body, _reset, _cut])
def test_one_total_deadline_holds_whatever_the_server_does(
    server: TinyServer, raw: Callable[[Any], None]
) -> None:
    server.answer = lambda _: Answer(raw=raw)
    began = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        api(server, total_s=0.5).create("launch", "/pods", {})
    assert time.monotonic() - began < 9  # a drip lasts 10 s, and each silence might 15
    assert caught.value.outcome_unknown
    assert len(server.asked) == 1


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unavailable, match="find /pods"):
        Api(KEY, url, VirtualClock()).read("find", "/pods")


@pytest.mark.parametrize("status", [401, 422, 500])
def test_the_key_is_in_no_error(server: TinyServer, status: int) -> None:
    server.answer = lambda asked: Answer(
        status, problem(status, f"bad key {KEY}: {asked.headers['authorization']}")
    )
    with pytest.raises(ProviderError) as caught:
        api(server).read("find", "/pods")
    assert KEY not in str(caught.value)
    assert "***" in str(caught.value)


# ---------------------------------------------------------------- pages


def _pages(asked: Asked) -> Answer:
    at = int(asked.query.get("cursor", "0"))
    body: dict[str, object] = {"pods": [{"id": f"p{at}"}]}
    more = at < 2
    body["pagination"] = {"hasNextPage": more, "nextCursor": str(at + 1) if more else None}
    return Answer(200, body)


def test_pages_are_followed_to_the_last(server: TinyServer) -> None:
    server.answer = _pages
    assert [pod["id"] for pod in api(server).pages("find", "/pods", "pods")] == ["p0", "p1", "p2"]


def test_a_list_without_pages_is_whole(server: TinyServer) -> None:
    server.answer = lambda _: Answer(200, {"pods": []})
    assert api(server).pages("find", "/pods", "pods") == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"pods": None},
        {"pods": {}},
        {"pods": [None]},
        {"pods": ["a"]},
        {"pods": [], "pagination": {"hasNextPage": True}},
        {"pods": [], "pagination": {"hasNextPage": True, "nextCursor": ""}},
        {"pods": [], "pagination": {"hasNextPage": True, "nextCursor": "same"}},
        {"pods": [], "pagination": 7},
    ],
)
def test_no_machines_must_have_been_said(server: TinyServer, body: object) -> None:
    """A broken or endless list is an error, never an empty account."""
    server.answer = lambda _: Answer(200, body)
    with pytest.raises(Unavailable):
        api(server).pages("find", "/pods", "pods")


# ---------------------------------------------------------------- the rate limit


def test_reads_stop_before_the_window_is_spent_and_ends_do_not(server: TinyServer) -> None:
    clock = VirtualClock()
    server.answer = lambda _: Answer(200, {}, {"RateLimit": '"minute";r=3;t=20, "hour";r=99;t=9'})
    client = Api(KEY, server.url, clock)
    client.read("find", "/pods")
    with pytest.raises(RateLimited) as caught:
        client.read("find", "/pods")
    assert caught.value.retry_after_s == pytest.approx(20.0)
    client.delete("terminate", "/pods/a")
    client.create("launch", "/pods", {})
    clock.sleep(20.0)
    client.read("find", "/pods")
    assert [method for method, _ in server.paths()] == ["GET", "DELETE", "POST", "GET"]


# ---------------------------------------------------------------- streams


def _stream(*lines: str) -> Callable[[Any], None]:
    def write(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for line in lines:
            handler.wfile.write(f"id: 1\ndata: {line}\n\n".encode())
        handler.wfile.flush()
        time.sleep(20)

    return write


def test_a_stream_yields_what_came_and_ends_with_its_deadline(server: TinyServer) -> None:
    server.answer = lambda _: Answer(raw=_stream('{"line": "a"}', "no json", '{"line": "b"}'))
    began = time.monotonic()
    lines = [event["line"] for event in api(server, total_s=0.5).events("logs", "/x", {})]
    assert lines == ["a", "b"]
    assert time.monotonic() - began < 15


def test_a_refused_stream_is_an_error(server: TinyServer) -> None:
    server.answer = lambda _: Answer(404, problem(404, "pod not found"))
    with pytest.raises(NotFound):
        list(api(server).events("logs", "/x", {}))
