"""hf:// addresses against a small stand-in of the hub: fetched, checked, refused in words."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.data.options import Options
from orchestrator import data_hub
from orchestrator.__main__ import run
from orchestrator.data_run import run_check

ROW = json.dumps(
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "good day"}]}
)
BODY = f"{ROW}\n".encode()
FOLDER = Path(__file__).parents[2] / "examples" / "quickstart" / "tiny-llama"
ADDRESS = "hf://datasets/acme/talks/data/train.jsonl"


class Server(ThreadingHTTPServer):
    """The stand-in; `asked` is what came."""

    asked: list[tuple[str, str | None]]


class Hub(BaseHTTPRequestHandler):
    """Serves one file; private/* wants a token, short/* ends early."""

    server: Server

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        repo = self.path.split("/")[2]
        if self.path.startswith("/acme/base/resolve/main/"):
            self.model_file(self.path.rsplit("/", 1)[1])
        elif repo == "private" and not self.headers.get("Authorization"):
            self.send_error(401)
        elif not self.path.endswith("/data/train.jsonl"):
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY) + (9 if repo == "short" else 0)))
            self.end_headers()
            self.wfile.write(BODY)

    def model_file(self, name):
        names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
        known = {name: (FOLDER / name).read_bytes() for name in names}
        self.send_response(200)
        self.send_header("Content-Length", str(len(known[name])))
        self.end_headers()
        self.wfile.write(known[name])

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = Server(("127.0.0.1", 0), Hub)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("GPUJOB_HOME", str(tmp_path / "home"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_comes_whole_and_a_named_revision_once(hub, tmp_path):
    address = ADDRESS.replace("talks/", "talks@v1.0/")
    first = data_hub.bring(address, tmp_path / "cache")
    assert first.read_bytes() == BODY
    assert data_hub.bring(address, tmp_path / "cache") == first
    assert hub.asked == [("/datasets/acme/talks/resolve/v1.0/data/train.jsonl", None)]


def test_the_command_reads_it(hub, capsys):
    refused = run_check([Path(ADDRESS)], Options(), [], as_json=True, processes=1)
    assert not refused
    assert json.loads(capsys.readouterr().out)["records"] == 1


def test_lengths_are_counted_with_the_tokenizer_of_the_hub(hub, tmp_path, capsys):
    (tmp_path / "data.jsonl").write_bytes(BODY)
    words = ["data", "stats", str(tmp_path / "data.jsonl"), "--json", "--tokenizer"]
    assert run([*words, "acme/base"]) == 0
    lengths = json.loads(capsys.readouterr().out)["lengths"]
    assert "tokenizer" in lengths["how"]
    assert run([*words, str(FOLDER)]) == 0
    local = json.loads(capsys.readouterr().out)["lengths"]
    assert local["percentiles"] == lengths["percentiles"]
    asked = len(hub.asked)
    assert run([*words, "acme/base"]) == 0
    assert len(hub.asked) == asked  # kept
    capsys.readouterr()
    for wrong, said in (("acme/none", "no such file"), (str(tmp_path), "no tokenizer.json")):
        assert run([*words, wrong]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://datasets/private/talks/data/train.jsonl", "set HF_TOKEN"),
        ("hf://datasets/acme/talks/nothing.jsonl", "no such file"),
        ("hf://datasets/short/talks/data/train.jsonl", "bytes came"),
        ("hf://datasets/acme/talks/../x", "write it as"),
    ],
)
def test_refusals_in_words(hub, capsys, address, words):
    assert run_check([Path(address)], Options(), [], as_json=True, processes=1)
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [f["code"] for f in found] == ["missing_file"]
    assert words in found[0]["message"]


def test_the_token_goes_along(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x1" * 15)
    data_hub.bring("hf://datasets/private/talks/data/train.jsonl", tmp_path)
    assert hub.asked[0][1] == "Bearer hf_" + "x1" * 15


def test_a_hub_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(data_hub.HubError, match="cannot be reached"):
        data_hub.bring(ADDRESS, tmp_path)
