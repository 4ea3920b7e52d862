"""The registry: every name makes a provider that answers to it, and imports nothing before."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.settings import Settings
from providers.registry import KEYS, PROVIDERS, create
from tests.support.clocks import VirtualClock
from tests.support.tiny_http import Answer, tiny_server


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_name_makes_a_provider_that_answers_to_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path, local_price_usd_per_hour=Decimal("0.5"), _env_file=None)
    with tiny_server(lambda _: Answer(200, {"gpus": []})) as server:
        monkeypatch.setenv("RUNPOD_API_KEY", "rpa_key")
        monkeypatch.setenv("RUNPOD_API_BASE_URL", server.url)
        provider = create(name, settings, VirtualClock())
        assert provider.name == name
        assert {o.provider for o in provider.offers()} <= {name}


@pytest.mark.parametrize("name", KEYS)
def test_a_provider_without_its_key_is_not_made_and_the_key_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=KEYS[name]):
        create(name, Settings(home=tmp_path, _env_file=None), VirtualClock())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("RUNPOD_API_BASE_URL", "ftp://SECRET"),
        ("RUNPOD_API_BASE_URL", "https://x y"),
        ("GPUJOB_RUNPOD_LIST_LAG_S", "-1"),
        ("GPUJOB_RUNPOD_BOOT_TIMEOUT_S", "long"),
    ],
)
def test_a_bad_setting_of_an_adapter_is_named(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_key")
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=name) as refused:
        create("runpod", Settings(home=tmp_path, _env_file=None), VirtualClock())
    assert text not in str(refused.value)


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no provider 'aws'; there are: local, ssh, fake, runpod"):
        create("aws", Settings(home=tmp_path, _env_file=None), VirtualClock())


def test_the_registry_imports_no_adapter() -> None:
    program = "import sys, providers.registry; print(' '.join(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "providers.registry" in loaded
    assert {
        "providers.local",
        "providers.fake",
        "providers.runpod",
        "httpx",
        "asyncssh",
        "cryptography",
    } & set(loaded) == set()
