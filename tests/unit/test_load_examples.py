"""The examples that are shipped load and derive, as they lie there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobs.axolotl import Layout, axolotl_config, uploads
from jobs.axolotl_rules import check_config
from jobs.load import load_job
from jobs.spec import Method

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/job.yaml"))
QUICKSTART = EXAMPLES / "quickstart"


def test_one_for_each_method_and_the_quickstart() -> None:
    assert [folder.name for folder in FOLDERS] == [
        "full", "lora", "own-config", "qlora", "quickstart", "rented",
    ]  # fmt: skip
    for method in Method:
        assert load_job(EXAMPLES / method / "job.yaml").spec.method is method


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_loads_and_derives(folder: Path) -> None:
    job = load_job(folder / "job.yaml")
    for stack in ("cpu", "cuda"):
        config = axolotl_config(job.spec, layout=Layout("/i"), stack=stack)
        assert check_config(config) == []
    for upload in uploads(job.spec, Layout("/i")):
        assert upload.local.exists()
        assert folder in upload.local.parents


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.jsonl")), ids=lambda path: path.name)
def test_data_is_one_record_a_line(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({tuple(row) for row in rows}) == 1  # one shape


def test_the_quickstart_is_small_enough_to_be_committed() -> None:
    files = [path for path in QUICKSTART.rglob("*") if path.is_file() and "out" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_the_quickstart_has_enough_to_learn() -> None:
    spec = load_job(QUICKSTART / "job.yaml").spec
    assert len((QUICKSTART / "data.jsonl").read_text("utf-8").splitlines()) >= 64
    assert spec.gpu.providers == ("local",)
    assert spec.training.max_steps is not None
    assert 20 <= spec.training.max_steps <= 30


def test_the_quickstarts_model_is_tiny() -> None:
    config = json.loads((QUICKSTART / "tiny-llama" / "config.json").read_text("utf-8"))
    assert config["model_type"] == "llama"
    assert (QUICKSTART / "tiny-llama" / "model.safetensors").stat().st_size < 600_000


def test_examples_name_nothing_of_one_machine() -> None:
    for path in EXAMPLES.rglob("*.y*ml"):
        assert not re.search(r"(^|[\s:])/", path.read_text(encoding="utf-8"), re.MULTILINE), path
