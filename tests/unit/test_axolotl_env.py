"""The orchestrator's side of Axolotl's environment: answers, locks, the trainer's variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator import axolotl_env
from orchestrator.agent import builder
from orchestrator.axolotl_env import EnvBuilding, EnvReady, network_of, trainer_env, understand
from orchestrator.remote import Completed, ShellError
from orchestrator.site import SiteRefused
from orchestrator.states import Reason


def test_answers():
    ready = {"state": "ready", "axolotl": "/a", "python": "/p", "source": "image", "versions": {}}
    assert understand(ready) == EnvReady("/a", "/p", "image", {})
    assert understand({"state": "building", "step": "torch", "done": 1, "of": 2, "bytes": 3}) == (
        EnvBuilding("torch", 1, 2, 3, 0.0)
    )
    with pytest.raises(SiteRefused) as refused:
        understand({"state": "failed", "cause": "no_disk", "message": "1.0 GB free"})
    assert refused.value.reason is Reason.DISK_FULL
    assert "1.0 GB free. free some disk" in str(refused.value)
    with pytest.raises(SiteRefused):
        understand({"state": "missing"})  # the locks were uploaded, and it still misses them


def test_every_cause_has_a_remedy():
    source = "".join(
        (Path(builder.__file__).parent / name).read_text()
        for name in ("builder.py", "environment.py")
    )
    causes = set(re.findall(r'BuildFailed\("(\w+)"', source))
    causes |= set(re.findall(r'"cause": "(\w+)"', source)) | {name for name, _ in builder.CAUSES}
    assert causes <= set(axolotl_env.REMEDIES)
    assert {"no_disk", "no_venv", "bad_given", "no_network", "timeout"} <= causes


@pytest.mark.parametrize(
    ("tail", "cause"),
    [
        (["ERROR: Could not install: [Errno 28] No space left on device"], "no_disk"),
        (
            ["WARNING: Retrying ... NewConnectionError", "ERROR: No matching distribution"],
            "no_network",
        ),
        (["ERROR: No matching distribution found for triton==3.7.1"], "no_wheel"),
        (["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."], "bad_hash"),
        (["ERROR: something else"], "install_failed"),
        ([], "install_failed"),
    ],
)
def test_an_installers_last_lines(tail, cause):
    assert builder.explain(tail).cause == cause


def test_a_password_in_an_index_address_is_not_repeated():
    failure = builder.explain(["ERROR: Could not fetch https://me:secret@index.example/simple"])
    assert "secret" not in str(failure)
    assert "index.example" in str(failure)


REQUIREMENTS = Path(__file__).parents[2] / "requirements"


class Shell:
    """Answers once."""

    def __init__(self, answer):
        self.answer = answer

    def put_bytes(self, *_, **__):
        pass

    def python(self, *_, **__):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def ensure(answer):
    return axolotl_env.AxolotlEnv(Shell(answer), "/job", "/envs", "label").ensure()  # type: ignore[arg-type]


def test_a_lost_connection_may_be_tried_again_and_rubbish_may_not():
    with pytest.raises(ShellError):  # the site drops the connection and makes it a SiteError
        ensure(ShellError("gone"))
    with pytest.raises(SiteRefused, match="no python3"):
        ensure(Completed(127, b"", b"sh: no python3"))


def test_locks_name_no_index_and_hash_everything():
    ours = {path.name: path.read_bytes() for path in REQUIREMENTS.glob("*.txt")}
    assert set(ours) == {"base.txt", "dev.txt"}
    for name, data in {**axolotl_env.lock_files(), **ours}.items():
        text = data.decode()
        assert "://" not in text
        assert not re.search(r"^\s*-", text.replace("    --hash", ""), re.MULTILINE), name
        for requirement in re.split(r"\n(?=\S)", text.strip()):
            assert re.match(r"[\w.-]+==\S+", requirement), requirement
            assert "--hash=sha256:" in requirement, requirement


def test_locks_agree_with_each_other():
    """torch.txt may be installed before axolotl.txt, which must not move what is there already."""
    pins: dict[tuple[str, str], str] = {}
    for name, data in axolotl_env.lock_files().items():
        found = re.findall(r"^([\w.-]+)==(\S+)(?: ; (.*?))?(?: \\)?$", data.decode(), re.MULTILINE)
        for package, version, marker in found:
            earlier = pins.setdefault((package, marker), version)
            assert earlier.split("+")[0] == version, (name, package)
    names = {package for package, _ in pins}
    assert {"torch", "axolotl", "triton", "transformers", "peft", "uv"} <= names
    assert pins["axolotl", ""] == axolotl_env.AXOLOTL_VERSION


def test_the_key_changes_with_the_locks(monkeypatch):
    axolotl_env.locks_sha256.cache_clear()
    before = axolotl_env.locks_sha256()
    files = {**axolotl_env.lock_files(), "uv.txt": b"uv==0"}
    monkeypatch.setattr(axolotl_env, "lock_files", lambda: files)
    axolotl_env.locks_sha256.cache_clear()
    assert axolotl_env.locks_sha256() != before
    axolotl_env.locks_sha256.cache_clear()


def test_what_of_the_users_environment_reaches_pip():
    environ = {
        "PIP_INDEX_URL": "x", "UV_NATIVE_TLS": "1", "https_proxy": "p", "SSL_CERT_FILE": "c",
        "HF_TOKEN": "secret", "RUNPOD_API_KEY": "secret", "PATH": "/bin", "PIPE": "no",
    }  # fmt: skip
    found = network_of(environ)
    assert set(found) == {"PIP_INDEX_URL", "UV_NATIVE_TLS", "https_proxy", "SSL_CERT_FILE"}


def test_the_trainers_variables():
    cpu = trainer_env(gpu=False, offline=True, scratch="/job")
    assert cpu["AXOLOTL_DO_NOT_TRACK"] == cpu["ACCELERATE_USE_CPU"] == cpu["HF_HUB_OFFLINE"] == "1"
    assert cpu["PYTHONUNBUFFERED"] == "1"
    assert cpu["HF_DATASETS_CACHE"].startswith("/job/")
    assert "HF_HOME" not in cpu
    gpu = trainer_env(gpu=True, offline=False, scratch="/job", hf_home="/hf")
    assert gpu["HF_HOME"] == "/hf"
    assert not {"ACCELERATE_USE_CPU", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE"} & set(gpu)
