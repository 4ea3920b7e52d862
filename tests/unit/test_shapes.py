"""What `plan` sees of a job: the shape of a model the table lacks, and the data after the gate."""

from __future__ import annotations

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator import cli_plan, compose, shapes
from orchestrator.__main__ import run
from orchestrator.exits import Exit, Refused
from providers.fake import FakeProvider
from providers.fake_cloud import FakeCloud
from tests.support.clocks import VirtualClock

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": True, "max_position_embeddings": 8192,
}  # fmt: skip
JOB = """\
name: tone
model: {model}
method: qlora
data: {{train: data.jsonl, format: prompt-completion}}
training: {{packing: true}}
"""
CLEAN = {"prompt": "say it", "completion": "it was said"}
PERSONAL = {"prompt": "call", "completion": "my card is 4453 3314 7893 2885"}


class Server(ThreadingHTTPServer):
    """Knows acme/base and nothing else."""

    asked: list[str]


class Hub(BaseHTTPRequestHandler):
    """Answers with a config.json, or that there is none."""

    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path != "/acme/base/resolve/main/config.json":
            self.send_error(404)
            return
        body = json.dumps(CONFIG).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch, tmp_path):
    server = Server(("127.0.0.1", 0), Hub)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("GPUJOB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUJOB_SWEEP", "off")
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def plan(hub, tmp_path, capsys):
    def ask(*words: str, model: str = "acme/base", record=CLEAN, command: str = "plan"):
        rows = "".join(json.dumps({**record, "prompt": f"say {i}"}) + "\n" for i in range(30))
        (tmp_path / "data.jsonl").write_text(rows)
        (tmp_path / "job.yaml").write_text(JOB.format(model=model))
        code = run([command, "job.yaml", "--json", *words])
        return code, json.loads(capsys.readouterr().out)

    return ask


def test_a_model_of_the_hub_is_sized_by_its_config_fetched_once(plan, hub):
    code, first = plan()
    assert code == 0
    assert 2 < first["footprint"]["device_gib"] < 20
    assert plan()[1]["footprint"] == first["footprint"]
    assert hub.asked == ["/acme/base/resolve/main/config.json"]
    code, second = plan(model="meta-llama/Llama-3.1-8B")  # the table has it: nobody is asked
    assert second["footprint"]["device_gib"] > first["footprint"]["device_gib"]
    assert len(hub.asked) == 1
    assert run(["size", "--model", "acme/base", "--json"]) == 0


@pytest.mark.parametrize("command", ["plan", "submit", "probe"])
def test_a_model_nobody_knows_ends_plan_submit_and_probe_alike(plan, command):
    code, said = plan(model="acme/nothing", command=command)
    assert code == Exit.USAGE
    assert "unknown model 'acme/nothing'" in said["error"]["message"]
    assert "no such file there" in said["error"]["message"]
    assert "gpu.types and gpu.count" in said["error"]["remedy"]


def test_who_names_cards_and_their_number_decides_alone(plan):
    code, said = plan("--set", "gpu.types=[A100-80GB]", "--set", "gpu.count=1", model="acme/no")
    assert code == 0
    assert said["footprint"] is None
    assert {quote["gpu"] for quote in said["quotes"]} == {"A100-80GB"}
    assert any("memory not checked" in note for note in said["notes"])
    assert plan("--set", "gpu.types=[A100-80GB]", model="acme/no")[0] == Exit.USAGE


CLASHES = [
    (("training.sequence_len=200000",), "above the 131072 positions"),
    (("training.packing=true", "axolotl.attn_implementation=eager"), "eager attention"),
]


@pytest.mark.parametrize(("changes", "said"), CLASHES)
@pytest.mark.parametrize("command", ["plan", "submit"])
def test_settings_that_clash_are_refused_whatever_card_is_named(plan, command, changes, said):
    words = [w for c in (*changes, "gpu.types=[A100-80GB]", "gpu.count=1") for w in ("--set", c)]
    code, answer = plan(*words, model="meta-llama/Llama-3.1-8B", command=command)
    assert code == Exit.USAGE
    assert said in answer["error"]["message"]
    assert answer["error"]["remedy"] in {None, ""}


def test_a_job_that_stretches_the_model_may_be_longer(plan):
    longer = ("--set", "training.sequence_len=140000", "--set")
    raised = "axolotl.overrides_of_model_config={max_position_embeddings: 262144}"
    code, answer = plan(*longer, raised, model="meta-llama/Llama-3.1-8B")
    assert code in {0, Exit.NO_OFFER}
    assert answer["footprint"]["device_gib"] > 0


def test_nobody_is_asked_offline(monkeypatch, hub, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert shapes.fetch("acme/base", tmp_path) == "HF_HUB_OFFLINE is set"
    assert shapes.fetch("meta-llama/Llama-3.1-8B", tmp_path) == ""
    with pytest.raises(Refused, match="HF_HUB_OFFLINE"):
        cli_plan.workload_of(cli_plan.SizeWords("acme/base"), tmp_path)
    assert hub.asked == []


def test_plan_sends_the_data_through_the_gate_as_submit_does(plan):
    code, said = plan()
    assert code == 0
    assert said["data"]["read"] == 30
    code, said = plan(record={"prompt": "x", "completion": ["a", "b"]})
    assert code == Exit.DATA_GATE
    assert "structure_not_text" in said["error"]["message"]


def test_plan_keeps_personal_data_where_submit_would(plan, monkeypatch):
    """A list of prices is no place to send data to; a provider's machines are."""
    code, said = plan(record=PERSONAL)
    assert code == 0
    assert said["list_prices"]
    assert said["data"]["personal_data"] == {"CARD": 30}
    fake = FakeProvider(FakeCloud(VirtualClock(), random.Random(1)))
    monkeypatch.setattr(compose, "make_providers", lambda *_: {"fake": fake})
    code, said = plan(record=PERSONAL)
    assert code == Exit.DATA_GATE
    assert "30 finds of personal data would go to" in said["error"]["message"]
    assert plan("--pii-reviewed", record=PERSONAL)[0] == 0
    assert plan("--set", "data.mask=true", record=PERSONAL)[0] == 0
