"""The quickstart's job under the real Axolotl, over a real OpenSSH server, and home again.

Needs the locked environment. Some 40 s on a quiet core, nearly all imports.
"""

import json
import subprocess
import time
from pathlib import Path

import pytest

from jobs.axolotl import Layout, axolotl_config, to_yaml, trainer_argv, uploads
from jobs.load import load_job
from orchestrator.artifacts.collect import Result
from orchestrator.axolotl_env import AxolotlEnv, trainer_env
from orchestrator.bootstrap import Bootstrap, Composed, Machine, Payload, Upload
from orchestrator.clock import SystemClock
from orchestrator.metrics import LogMetricsReader, MetricsReader
from orchestrator.site import SiteError
from orchestrator.ssh_site import SshSite
from orchestrator.states import Reason
from tests.support.sshd import Sshd

JOB = Path(__file__).parents[2] / "examples" / "quickstart" / "job.yaml"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.axolotl,
    pytest.mark.prove,
    pytest.mark.system("openssh-server"),
    pytest.mark.timeout(900),
]

LOADS = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[1]), sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])
print("loaded", len(tokenizer), sum(p.numel() for n, p in model.named_parameters() if "lora" in n))
"""


def test_a_real_adapter_comes_home_and_loads(tmp_path: Path, axolotl_python: Path) -> None:
    given = str(axolotl_python.parents[1])
    spec = load_job(JOB).spec
    clock = SystemClock()

    def compose(machine: Machine) -> Composed:
        layout = Layout(machine.folder)
        config = axolotl_config(spec, layout=layout, stack="cpu") | {"max_steps": 10}
        argv = trainer_argv(machine.axolotl.axolotl, layout.config)
        env = trainer_env(gpu=False, offline=True, scratch=machine.folder)
        return Composed(to_yaml(config).encode(), tuple(argv), env)

    parts = tuple(
        Upload(upload.local, upload.remote.removeprefix("/far/"))
        for upload in uploads(spec, Layout("/far"))
    )
    load = Payload("3f2a00", 1, "gpujob-real", "gpujob-real", clock.now() + 800, compose, parts)
    with Sshd(tmp_path / "sshd") as server:
        boot = Bootstrap(
            load,
            str(tmp_path / "far" / load.label),
            lambda shell, at: AxolotlEnv(shell, at, str(tmp_path), load.label, given=given),
            clock,
        )
        site = SshSite(server.shell, boot, Result(load.job, adapter=True, base_model="tiny-llama"))
        while site.prepare_next() is not None:
            pass
        site.start_trainer()
        offsets = {"train.log": 0, "metrics.jsonl": 0}
        ended, cut = None, False
        while ended is None:
            time.sleep(0.5)
            try:
                status = site.status()
                ended = status.exit
                for name, offset in offsets.items():
                    offsets[name] = site.pull(name, tmp_path / name, offset)
            except SiteError:
                assert cut, "only our cut may hurt"
            if not cut and offsets["train.log"] > 1000:
                cut = bool(server.cut())
        for name, offset in offsets.items():
            site.pull(name, tmp_path / name, offset)
        got = site.collect(tmp_path / "out")
        site.close()
    assert cut
    assert (ended.verdict, ended.reason) == ("succeeded", Reason.SUCCEEDED), ended
    assert (ended.last_step, ended.max_steps, ended.trainer_starts) == (10, 10, 1)
    exact, text = MetricsReader(), LogMetricsReader()
    exact.read(tmp_path / "metrics.jsonl")
    text.read(tmp_path / "train.log")
    assert exact.latest.step == text.latest.step == 10
    assert exact.latest.loss == pytest.approx(text.latest.loss, rel=1e-3)
    assert exact.latest.tokens_per_s is not None
    assert [step for step, _ in exact.curve.points] == list(range(1, 11))
    for path in got.folder.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path
    config = json.loads((got.folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-llama"
    said = subprocess.run(
        [axolotl_python, "-c", LOADS, JOB.parent / "tiny-llama", got.folder],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)},
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("loaded ")
