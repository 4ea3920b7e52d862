"""The official `runpod` SDK 1.12 against the simulator reacts as it was measured to react.

These reactions are why gpujob never believes the SDK: `terminate_pod` returns None for success and
for four kinds of failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import ROOT, Cloud

pytestmark = pytest.mark.e2e
GPU = "NVIDIA L4"


class Sdk:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, call: str, *args: Any, **kwargs: Any) -> Any:
        """Return what the SDK returns; a list of class names where it raises."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"call": call, "args": args, "kwargs": kwargs}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return found["error"] if "error" in found else found["result"]


@pytest.fixture(scope="module")
def started(shared_cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sdk]:
    home = tmp_path_factory.mktemp("sdk-home")
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "NO_PROXY": "127.0.0.1"}
    env["RUNPOD_API_BASE_URL"] = shared_cloud.url
    script = str(Path(ROOT) / "tests" / "support" / "sdk_process.py")
    process = subprocess.Popen(
        [sys.executable, script, shared_cloud.key],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    while process.stdout.readline().strip() != "ready":
        assert process.poll() is None
    yield Sdk(process)
    process.kill()
    process.communicate()


@pytest.fixture
def sdk(sim: Cloud, started: Sdk) -> Sdk:
    sim.set(graphql="on", pods="none")
    started("api_key", sim.key)
    started("timeout", 30.0)
    return started


def test_the_whole_life_of_a_pod(sim: Cloud, sdk: Sdk) -> None:
    made = sdk(
        "create_pod", "gpujob-sdk", "axolotlai/axolotl-cloud:0.16.1", GPU, ports="22/tcp",
        cloud_type="SECURE", volume_in_gb=20, env={"A": "1"}, container_disk_in_gb=30,
    )  # fmt: skip
    assert set(made) == {"id", "imageName", "env", "machineId", "machine"}
    assert made["env"] == ["A=1"]
    one = sdk("get_pod", made["id"])
    assert (one["desiredStatus"], one["costPerHr"]) == ("RUNNING", 0.49)
    assert [pod["id"] for pod in sdk("get_pods")] == [made["id"]]
    assert sdk("stop_pod", made["id"]) == {"id": made["id"], "desiredStatus": "EXITED"}
    assert sdk("resume_pod", made["id"], 1)["id"] == made["id"]
    assert sdk("terminate_pod", made["id"]) is None
    assert sdk("get_pod", made["id"]) is None
    assert sdk("get_pods") == []
    assert sim.pod(made["id"])["end_cause"] == "api"


def test_a_deadline_that_runpod_takes_and_forgets(sim: Cloud, sdk: Sdk) -> None:
    made = sdk(
        "query",
        'mutation { podFindAndDeployOnDemand(input: {name: "late", imageName: "i", '
        f'gpuTypeId: "{GPU}", gpuCount: 1, terminateAfter: "2020-01-01T00:00:00Z"}}) {{ id }} }}',
    )
    sim.jump(1)
    pod_id = made["data"]["podFindAndDeployOnDemand"]["id"]
    assert sim.pod(pod_id)["living"]
    answered = sdk("query", f'query {{ pod(input: {{podId: "{pod_id}"}}) {{ terminateAfter }} }}')
    assert "QueryError" in answered


def test_the_balance_falls_with_the_bill(sim: Cloud, sdk: Sdk) -> None:
    query = "query { myself { clientBalance currentSpendPerHr spendLimit } }"
    before = sdk("query", query)["data"]["myself"]
    sdk("create_pod", "gpujob-money", "i", GPU)
    sim.jump(3600)
    after = sdk("query", query)["data"]["myself"]
    assert before["clientBalance"] - after["clientBalance"] == pytest.approx(0.4913, abs=0.005)
    assert after["currentSpendPerHr"] == pytest.approx(0.4913, abs=0.001)


def test_a_bad_key_and_prices_without_one(sdk: Sdk) -> None:
    sdk("api_key", "rpa_wrong")
    assert "AuthenticationError" in sdk("get_pods")
    assert "AuthenticationError" in sdk("terminate_pod", "abc")
    assert len(sdk("get_gpus")) > 20, "prices prove nothing about a key"


def test_an_unknown_gpu_is_refused_before_anything_is_made(sim: Cloud, sdk: Sdk) -> None:
    assert "ValueError" in sdk("create_pod", "gpujob-what", "i", "NVIDIA Nothing")
    assert sim.pods() == []


def test_a_quote_in_a_name_breaks_the_query(sim: Cloud, sdk: Sdk) -> None:
    assert "QueryError" in sdk("create_pod", 'a"b', "i", GPU)
    assert "QueryError" in sdk("create_pod", "ok", "i", GPU, env={"J": '{"a":1}'})
    assert sim.pods() == []


# fault -> what get_pods does, what terminate_pod does (None: returns, as if all were well).
REACTIONS = [
    ("graphql_401", "AuthenticationError", "AuthenticationError"),
    ("graphql_html", "JSONDecodeError", "JSONDecodeError"),
    ("graphql_403", "KeyError", None),
    ("graphql_429", "KeyError", None),
    ("graphql_502", "KeyError", None),
    ("graphql_quiet", "KeyError", None),
    ("graphql_null", "TypeError", None),
    ("graphql_malformed", "JSONDecodeError", "JSONDecodeError"),
    ("graphql_reset", "ConnectionError", "ConnectionError"),
    ("graphql_hang", "ReadTimeout", "ReadTimeout"),
]


@pytest.mark.parametrize(("fault", "read", "end"), REACTIONS)
def test_reactions_to_a_failing_server(
    sim: Cloud, sdk: Sdk, fault: str, read: str, end: str | None
) -> None:
    made = sdk("create_pod", "gpujob-fault", "i", GPU)
    sdk("timeout", 0.5 if fault.endswith("hang") else 30.0)
    sim.fault(fault)
    assert read in sdk("get_pods")
    sim.fault(fault)
    answered = sdk("terminate_pod", made["id"])
    assert answered is None if end is None else end in answered
    assert sim.pod(made["id"])["living"], "nothing was done, whatever the SDK says"


def test_terminate_that_lies_and_one_that_finds_nothing(sim: Cloud, sdk: Sdk) -> None:
    made = sdk("create_pod", "gpujob-lie", "i", GPU)
    sim.fault("delete_lie")
    assert sdk("terminate_pod", made["id"]) is None
    assert sim.pod(made["id"])["living"]
    assert sdk("terminate_pod", made["id"]) is None
    assert "QueryError" in sdk("terminate_pod", made["id"])


def test_no_capacity_is_a_query_error_in_runpods_words(sim: Cloud, sdk: Sdk) -> None:
    sim.fault("create_no_capacity", times=2)
    assert "QueryError" in sdk("create_pod", "gpujob-full", "i", "NVIDIA A40")
    sim.calm()


def test_graphql_that_was_retired(sim: Cloud, sdk: Sdk) -> None:
    sim.set(graphql="off")
    assert "KeyError" in sdk("get_pods")
    sim.set(graphql="on")
