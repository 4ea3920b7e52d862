"""`fake` keeps the contract: quick, laggy, and slow to boot."""

from __future__ import annotations

import pytest

from providers.fake import FakeSettings
from tests.contract.fake_harness import FakeHarness
from tests.contract.provider_contract import ProviderContract

CLOUDS = {
    "quick": FakeSettings(),
    "laggy": FakeSettings(list_lag_s=6, describe_lag_s=2, boot_delay_s=90, billing_step_s=60),
    "unique": FakeSettings(unique_labels=True),
}


class TestFake(ProviderContract):
    @pytest.fixture(params=CLOUDS)
    def harness(self, request: pytest.FixtureRequest) -> FakeHarness:
        return FakeHarness(CLOUDS[request.param])
