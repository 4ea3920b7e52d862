"""The `local` provider's verbs: what it refuses, what it passes on, what it gives out."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.clock import SystemClock
from providers.base import InstanceId, InstanceState, OfferKey, Tier
from providers.errors import InvalidRequest, NoCapacity, NotFound, Unavailable
from providers.local import LocalProvider
from providers.local_gpu import LocalGpu
from tests.support.local_machine import LocalMachine, wait_until

GPUS = [
    LocalGpu("GPU-aaaa", "H200", 141.0),
    LocalGpu("GPU-bbbb", "H200", 141.0),
    LocalGpu("GPU-cccc", "RTX4090", 24.0),
]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    machine = LocalMachine(tmp_path / "home", gpus=lambda _: [])
    yield machine
    machine.close()


# ---------------------------------------------------------------- refusals, before anything runs


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"label": "../up"}, "label"),
        ({"label": ".hidden"}, "label"),
        ({"label": "a/b"}, "label"),
        ({"label": "x" * 129}, "label"),
        ({"label": "new\nline"}, "label"),
        ({"deadline_at": 1000.0}, "deadline"),
        ({"deadline_at": float("nan")}, "deadline"),
        ({"public_key": "ssh-ed25519"}, "public key"),
        ({"public_key": "ssh-ed25519 AAAA"}, "public key"),
        ({"public_key": "ssh-ed25519 not_base64!"}, "public key"),
        ({"public_key": ""}, "public key"),
    ],
)
def test_odd_requests_are_refused_in_words(machine, change: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        machine.provider.launch(replace(machine.request("job-1"), **change))
    assert not machine.instances.exists()


@pytest.mark.parametrize(
    "line",
    [
        'command="touch /tmp/pwned" {key}',
        "{key}\n{key}",
        "{key} comment\r\nno-pty {key}",
        "restrict {key}",
    ],
)
def test_a_public_key_cannot_smuggle_options_or_lines(machine, line: str) -> None:
    key = line.format(key=machine.public)
    with pytest.raises(InvalidRequest, match="public key"):
        machine.provider.launch(replace(machine.request("job-1"), public_key=key))


def test_unknown_offers_are_refused(machine) -> None:
    request = machine.request("job-1")
    for offer in (
        replace(request.offer, key=OfferKey("8xH200")),
        replace(request.offer, provider="elsewhere"),
    ):
        with pytest.raises(InvalidRequest, match="no offer"):
            machine.provider.launch(replace(request, offer=offer))
    assert machine.provider.find("") == ()


def test_a_home_that_cannot_be_made_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    machine = LocalMachine(tmp_path / "file" / "home")
    with pytest.raises(InvalidRequest, match="Not a directory"):
        machine.provider.launch(machine.request("job-1"))


def test_a_guard_that_does_not_start_is_an_unknown_outcome(machine, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(Unavailable, match="guard"):
        machine.provider.launch(machine.request("job-1"))
    assert machine.state("job-1") is InstanceState.STOPPED
    machine.provider.terminate(InstanceId("job-1"))
    assert machine.state("job-1") is None


def test_windows_is_refused_in_words(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(InvalidRequest, match="WSL"):
        LocalProvider(tmp_path, SystemClock())


def test_a_label_is_used_once_even_after_its_end(machine) -> None:
    instance = machine.ready()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="used before"):
            machine.provider.launch(machine.request("job-1"))
        machine.provider.terminate(instance.id)
    assert machine.provider.describe(instance.id).state is InstanceState.GONE


def test_of_many_launches_of_one_label_one_wins(machine) -> None:
    outcomes: list[str] = []

    def launch() -> None:
        try:
            outcomes.append(machine.another().launch(machine.request("job-1")).id)
        except InvalidRequest as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=launch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["InvalidRequest"] * 5 + ["job-1"]
    wait_until(lambda: machine.state("job-1") is InstanceState.READY, 20)
    assert list(machine.instances.glob(".new*")) == []


# ---------------------------------------------------------------- what the instance gets


def environments(machine: LocalMachine, label: str) -> list[dict[str, str]]:
    found = []
    for pid in machine.living()[label]:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        found.append(dict(pair.split("=", 1) for pair in pairs if pair))
    return found


def test_the_launchers_environment_does_not_leak(tmp_path: Path) -> None:
    secrets = {
        "HF_TOKEN": "sentinel-1",
        "RUNPOD_API_KEY": "sentinel-2",
        "AWS_SECRET_ACCESS_KEY": "sentinel-3",
        "NVIDIA_API_KEY": "sentinel-4",
        "LD_PRELOAD": "sentinel-5",
        "https_proxy": "http://user:sentinel-6@proxy:3128",
        "PIP_INDEX_URL": "https://sentinel-7@index/simple",
    }
    passed = {"HF_HOME": "/cache/hf", "no_proxy": "localhost", "LC_TIME": "C"}
    launcher = {**os.environ, **secrets, **passed}
    machine = LocalMachine(tmp_path, environment=launcher, gpus=lambda _: [])
    instance = machine.ready(env={"ASKED": "yes", "GPUJOB_INSTANCE": "forged", "bad name": "x"})
    _, out, _ = machine.run(instance, "env; cat /proc/$PPID/environ")
    seen = environments(machine, "job-1")
    assert len(seen) == 2  # guard and server
    assert b"sentinel" not in out
    assert "sentinel" not in str(seen)
    for variables in seen:
        assert passed.items() <= variables.items()
        assert variables["ASKED"] == "yes"
    shown = out.split(b"\0")[0].decode()
    assert "GPUJOB_INSTANCE=job-1@" in shown
    assert f"GPUJOB_INSTANCE_DIR={machine.instances}/job-1" in shown
    assert "PYTHONPATH" not in shown
    machine.close()


def test_folders_are_private_and_nothing_secret_stays(machine) -> None:
    instance = machine.ready(env={"ASKED": "sentinel"})
    folder = machine.instances / "job-1"
    for path in (machine.instances, folder, *folder.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    machine.run(instance, "echo sentinel > kept; echo sentinel >&2")
    machine.provider.terminate(instance.id)
    left = [p for p in machine.instances.rglob("*") if p.is_file()]
    assert {p.name for p in left} == {"job-1.json", ".allocation"}
    assert "sentinel" not in "".join(p.read_text() for p in left)


def test_a_job_that_locks_its_folders_is_removed_all_the_same(machine) -> None:
    instance = machine.ready()
    machine.run(instance, "mkdir -p a/b && touch a/b/c && chmod 0 a/b && chmod 0 a")
    machine.provider.terminate(instance.id)
    assert [p.name for p in machine.instances.iterdir() if p.name[0] != "."] == []
    assert list(machine.instances.glob(".trash-*")) == []


def test_the_start_script_runs_on_the_instance(machine) -> None:
    machine.ready(start_script='echo "$GPUJOB_INSTANCE" > started; pwd; sleep 100')
    work = machine.instances / "job-1" / "work"
    wait_until((work / "started").exists, 5)
    wait_until(lambda: (work.parent / "start.log").read_text() == f"{work}\n", 5)
    assert len(machine.living()["job-1"]) == 4  # guard, server, the script's shell and its sleep


def test_a_launch_returns_at_once_and_boots_soon(machine) -> None:
    began = time.monotonic()
    launched = machine.provider.launch(machine.request("job-1"))
    returned_s = time.monotonic() - began
    assert launched.state is InstanceState.STARTING
    assert launched.host_key is not None
    wait_until(lambda: machine.state("job-1") is InstanceState.READY, 20)
    assert machine.provider.describe(launched.id).host_key == launched.host_key
    assert returned_s < 1.5


def test_the_processes_are_small(machine) -> None:
    instance = machine.ready()
    machine.run(instance, "head -c 50000000 /dev/zero")
    sizes = []
    for pid in machine.living()["job-1"]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        sizes += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")]
    guard_mib, server_mib = sorted(sizes)
    print(f"guard {guard_mib:.1f} MiB, server {server_mib:.1f} MiB")
    assert guard_mib < 20
    assert server_mib < 64


# ---------------------------------------------------------------- offers and GPUs


def test_a_machine_without_gpus_offers_its_cpu(machine) -> None:
    (offer,) = machine.provider.offers()
    assert (offer.gpu, offer.gpu_count, offer.vram_gib, offer.tier) == ("CPU", 0, 0.0, Tier.OWN)
    assert offer.price_usd_per_hour == 0
    assert not offer.price_is_notional
    assert offer.disk_gib is not None
    assert offer.host_ram_gib is not None


def test_a_notional_price_is_marked(tmp_path: Path) -> None:
    machine = LocalMachine(tmp_path, price_usd_per_hour=Decimal("0.25"))
    (offer, *_) = machine.provider.offers()
    assert (offer.price_usd_per_hour, offer.price_is_notional) == (Decimal("0.25"), True)
    assert machine.ready().price_usd_per_hour == Decimal("0.25")
    machine.close()


def test_gpus_are_given_out_once_and_come_back(tmp_path: Path) -> None:
    machine = LocalMachine(tmp_path, gpus=lambda _: GPUS)
    provider = machine.provider
    every = {o.key: o for o in provider.offers()}
    assert {o.key: (o.gpu_count, o.vram_gib) for o in every.values()} == {
        "1xH200": (1, 141.0),
        "2xH200": (2, 141.0),
        "1xRTX4090": (1, 24.0),
    }
    one, two = every[OfferKey("1xH200")], every[OfferKey("2xH200")]
    launch = [replace(machine.request(f"job-{n}"), offer=one) for n in range(3)]
    provider.launch(launch[0])
    assert {o.key for o in provider.offers()} == {"1xH200", "1xRTX4090"}
    with pytest.raises(NoCapacity):
        provider.launch(replace(machine.request("job-9"), offer=two))
    machine.another().launch(launch[1])
    with pytest.raises(NoCapacity):
        provider.launch(launch[2])
    assert environments(machine, "job-1")[0]["CUDA_VISIBLE_DEVICES"] == "GPU-bbbb"
    provider.terminate(InstanceId("job-0"))
    provider.launch(launch[2])
    assert environments(machine, "job-2")[0]["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    machine.close()


def test_all_gpus_in_use_is_no_offer_of_a_cpu(tmp_path: Path) -> None:
    machine = LocalMachine(tmp_path, gpus=lambda _: GPUS[:1])
    machine.provider.launch(machine.request("job-1"))
    assert machine.provider.offers() == []
    machine.close()


# ---------------------------------------------------------------- reads


def test_folders_that_are_none_of_ours_are_no_instances(machine) -> None:
    (machine.instances / "stray").mkdir(parents=True)
    (machine.instances / "torn").mkdir()
    (machine.instances / "torn" / "launch.json").write_text('{"label": ')
    (machine.instances / "file").write_text("")
    assert machine.provider.find("") == ()
    for label in ("stray", "torn", "file"):
        with pytest.raises(NotFound):
            machine.provider.describe(InstanceId(label))
        machine.provider.terminate(InstanceId(label))
    assert (machine.instances / "stray").exists()
    assert (machine.instances / "file").exists()


def test_equal_labels_of_two_homes_are_strangers(machine, tmp_path: Path) -> None:
    other = LocalMachine(tmp_path / "other", gpus=lambda _: [])
    mine, theirs = machine.ready(), other.ready()
    assert (mine.label, mine.port != theirs.port) == (theirs.label, True)
    other.provider.terminate(theirs.id)
    assert other.provider.find("") == ()
    assert machine.run(mine, "echo alive")[1] == b"alive\n"
    other.close()
