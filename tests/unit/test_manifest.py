"""The manifest is untrusted: what is taken, left and refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.artifacts.manifest import (
    MAX_ADAPTER_BYTES,
    ArtifactsMissing,
    ArtifactsRefused,
    choose,
)

SHA = "0" * 64
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")
BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def manifest(*paths: str, **sizes: int) -> dict[str, Any]:
    return {"files": [{"path": path, "bytes": 10, "sha256": SHA} for path in paths]}


def test_an_adapter_is_taken_by_its_names() -> None:
    choice = choose(
        manifest(*ADAPTER, *BESIDE, "README.md", "debug.log", "training_args.bin", "sub/a.txt"),
        adapter=True,
    )
    assert {file.path for file in choice.wanted} == {*ADAPTER, *BESIDE}
    assert choice.left == ("README.md", "debug.log", "training_args.bin", "sub/a.txt")
    assert choice.total_bytes == 60


@pytest.mark.parametrize(
    "weights",
    [
        ("model.safetensors",),
        (
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ),
    ],
)
def test_a_whole_model_is_taken_by_its_names(weights: tuple[str, ...]) -> None:
    choice = choose(manifest(*weights, "config.json", "model-x.safetensors"), adapter=False)
    assert {file.path for file in choice.wanted} == {*weights, "config.json"}
    assert choice.left == ("model-x.safetensors",)


@pytest.mark.parametrize(
    "path",
    [
        "../adapter_model.safetensors",
        "/etc/passwd",
        "a/../../b",
        "./adapter_config.json",
        "a//b",
        "a/",
        "",
        "..",
        "C:evil",
        "a\\..\\b",
        "a\nb",
        "a\x00b",
        "a\x1b[31m",
        "a\u202eb",
        "a\u2028b",
        "\ud800",
        "name.",
        " name",
        "sub /x",
        "x" * 301,
        "pytorch_model.bin",
        "adapter_model.bin",
        "sub/optimizer.pt",
        "X.PKL",
        "weights.ckpt",
    ],
)
def test_a_bad_name_refuses_all(path: str) -> None:
    with pytest.raises(ArtifactsRefused):
        choose(manifest(*ADAPTER, path), adapter=True)


@pytest.mark.parametrize(
    "pair",
    [
        ("adapter_config.json", "Adapter_Config.json"),
        ("notes\u00e9", "notese\u0301"),
        ("stra\u00dfe", "STRASSE"),
        ("tokenizer.json", "tokenizer.json"),
    ],
)
def test_names_that_collide_refuse_all(pair: tuple[str, str]) -> None:
    with pytest.raises(ArtifactsRefused, match="one name"):
        choose(manifest(*{*ADAPTER} - {*pair}, *pair), adapter=True)


@pytest.mark.parametrize(
    "change",
    [
        {"bytes": 2**60},
        {"bytes": MAX_ADAPTER_BYTES + 1},
        {"bytes": -1},
        {"bytes": 1.0},
        {"bytes": True},
        {"bytes": None},
        {"sha256": "x"},
        {"sha256": SHA.replace("0", "A")},
        {"sha256": SHA + "\n"},
        {"sha256": None},
        {"path": 5},
    ],
)
def test_bad_figures_refuse_all(change: dict[str, Any]) -> None:
    document = manifest(*ADAPTER)
    document["files"][0] |= change
    with pytest.raises(ArtifactsRefused):
        choose(document, adapter=True)


def test_a_huge_tokenizer_is_refused() -> None:
    document = manifest(*ADAPTER, "tokenizer.json")
    document["files"][2]["bytes"] = 10**9
    with pytest.raises(ArtifactsRefused, match=r"tokenizer\.json"):
        choose(document, adapter=True)


@pytest.mark.parametrize("document", [None, [], {}, {"files": None}, {"files": [5]}, "x"])
def test_a_shapeless_manifest_is_refused(document: Any) -> None:
    with pytest.raises(ArtifactsRefused):
        choose(document, adapter=True)


def test_too_many_files_are_refused() -> None:
    with pytest.raises(ArtifactsRefused, match="2,002 files"):
        choose(manifest(*ADAPTER, *(f"f{number}" for number in range(2000))), adapter=True)


@pytest.mark.parametrize(
    ("names", "adapter", "missing"),
    [
        (ADAPTER[:1], True, "adapter_config.json"),
        (ADAPTER[1:], True, "adapter_model.safetensors"),
        (("config.json",), False, "model.safetensors"),
        (("model.safetensors",), False, "config.json"),
        ((), True, "adapter_config.json, no adapter_model.safetensors"),
    ],
)
def test_an_incomplete_result_is_said_so(
    names: tuple[str, ...], adapter: bool, missing: str
) -> None:
    with pytest.raises(ArtifactsMissing, match=missing):
        choose(manifest(*names), adapter=adapter)


def test_an_empty_file_is_not_whole() -> None:
    document = manifest(*ADAPTER)
    document["files"][0]["bytes"] = 0
    with pytest.raises(ArtifactsMissing, match="empty"):
        choose(document, adapter=True)


@settings(deadline=None)
@given(path=st.text(max_size=40))
def test_whatever_is_taken_stays_in_its_folder(path: str) -> None:
    try:
        choice = choose(manifest(*ADAPTER, path), adapter=True)
    except ArtifactsRefused:
        return
    for file in choice.wanted:
        assert "/" not in file.path
        assert file.path.isascii()
