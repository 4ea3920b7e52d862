"""A result tells of its base model and its making, and of no machine."""

import json
from decimal import Decimal
from typing import Any

import pytest
import yaml

from orchestrator.artifacts.card import CardFacts, DataFile, render
from orchestrator.artifacts.manifest import ArtifactsMissing
from orchestrator.artifacts.scrub import scrub

FOLDER = "/srv/x/gpujob-ab"


def scrubbed(name: str, document: Any) -> Any:
    data = scrub(name, json.dumps(document).encode(), base_model="acme/base", folder=FOLDER)
    assert b"gpujob-ab" not in data
    return json.loads(data)


def test_the_adapter_names_its_base_as_the_person_did() -> None:
    before = {"base_model_name_or_path": f"{FOLDER}/model", "r": 8, "lora_dropout": 1e-6}
    assert scrubbed("adapter_config.json", before) == before | {
        "base_model_name_or_path": "acme/base"
    }
    assert scrubbed("adapter_config.json", {"r": 8})["base_model_name_or_path"] == "acme/base"


def test_paths_go_and_tokens_stay() -> None:
    before = {
        "_name_or_path": "/home/a/cache/model",
        "vocab_file": "/workspace/hub/tokenizer.model",
        "added": [{"content": "/"}, {"content": "//s"}, {"path": f"{FOLDER}/data/a.jsonl"}],
        "chat_template": f"{{# from {FOLDER}/model #}}\n/ok",
        "is_local": True,
        "local_files_only": True,
        "model_max_length": 1000000000000000019884624838656,
    }
    assert scrubbed("tokenizer_config.json", before) == {
        "_name_or_path": "acme/base",
        "vocab_file": "tokenizer.model",
        "added": [{"content": "/"}, {"content": "//s"}, {"path": "a.jsonl"}],
        "chat_template": "{# from ./model #}\n/ok",
        "model_max_length": 1000000000000000019884624838656,
    }


def test_what_needs_no_change_keeps_its_bytes() -> None:
    data = b'{ "architectures" : ["LlamaForCausalLM"] }'
    assert scrub("config.json", data, base_model="b", folder=FOLDER) == data
    assert scrub("tokenizer.json", b"any bytes", base_model="b", folder=FOLDER) == b"any bytes"


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"a": ' * 100_000])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ArtifactsMissing, match=r"adapter_config\.json"):
        scrub("adapter_config.json", data, base_model="b", folder=FOLDER)


FACTS = CardFacts(
    name="support-tone",
    base_model="meta-llama/Llama-3.1-8B",
    method="qlora",
    data=[DataFile("train|x.jsonl", 4812, "ab" * 32), DataFile("val.jsonl", None, "cd" * 32)],
    settings={"learning_rate": 2e-4, "packing": True, "lora_targets": ("q_proj", "v_proj")},
    results={"steps": "902 of 902", "loss": 1.2104857},
    versions={"axolotl": "0.21.0"},
    gpu="1 x RTX 4090",
    cost_usd=Decimal("2.4149"),
)


def front_matter(text: str) -> dict[str, Any]:
    assert text.startswith("---\n")
    matter = yaml.safe_load(text.split("---\n")[1])
    assert isinstance(matter, dict)
    return matter


def test_a_card_tells_what_there_is() -> None:
    text = render(FACTS)
    assert front_matter(text) == {
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["axolotl", "gpujob", "lora", "qlora"],
        "base_model": "meta-llama/Llama-3.1-8B",
        "base_model_relation": "adapter",
    }
    for words in (
        "# support-tone\n",
        "$2.41",
        r"| train\|x.jsonl | 4,812 | `abab",
        "| packing | yes |",
        r"| lora\_targets | q\_proj, v\_proj |",
        "| loss | 1.21049 |",
        "| axolotl | 0.21.0 |",
        'from_pretrained("meta-llama/Llama-3.1-8B")',
    ):
        assert words in text, words


def test_a_whole_model_of_a_folder() -> None:
    text = render(CardFacts(name="full", base_model="tiny", method="full"))
    matter = front_matter(text)
    assert "base_model" not in matter, "the hub takes ids only"
    assert matter["library_name"] == "transformers"
    assert "## Data" not in text
    assert "$" not in text


def test_hostile_names_stay_text() -> None:
    evil = "x\n---\n# y <script> [a](b) | `c`\x1b[31m\u202e"
    text = render(CardFacts(name=evil, base_model=evil, method="lora", settings={evil: evil}))
    assert front_matter(text)["library_name"] == "peft"
    assert text.count("\n---\n") == 1
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_notional_cost_says_so() -> None:
    text = render(
        CardFacts(
            name="n", base_model="b", method="lora", cost_usd=Decimal(0), cost_is_notional=True
        )
    )
    assert "$0.00 at a notional price" in text
