"""The registry: every name makes a provider that answers to it, and imports nothing before."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.settings import Settings
from providers.registry import PROVIDERS, create
from tests.support.clocks import VirtualClock


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_name_makes_a_provider_that_answers_to_it(name: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, local_price_usd_per_hour=Decimal("0.5"), _env_file=None)
    provider = create(name, settings, VirtualClock())
    assert provider.name == name
    assert {o.provider for o in provider.offers()} <= {name}


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no provider 'aws'; there are: local, fake"):
        create("aws", Settings(home=tmp_path, _env_file=None), VirtualClock())


def test_the_registry_imports_no_adapter() -> None:
    program = "import sys, providers.registry; print(' '.join(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "providers.registry" in loaded
    assert {"providers.local", "providers.fake", "asyncssh", "cryptography"} & set(loaded) == set()
