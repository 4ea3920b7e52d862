"""What prepare writes is taken by the real Axolotl, for every format the gate reads.

Needs the locked environment (GPUJOB_AXOLOTL_ENV). One `axolotl preprocess` over all sets: about
a minute on a quiet machine. The model is a config and a tokenizer made on the spot: no weights.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from jobs.data import output, prepare
from jobs.data.options import Options
from tests.e2e.data_formats import FORMATS

ENVIRONMENT = os.environ.get("GPUJOB_TEST_AXOLOTL_ENV", "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.axolotl,
    pytest.mark.timeout(900),
]
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
    "ACCELERATE_USE_CPU": "1",
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def model(folder: Path) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([make() for make in FORMATS.values()], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps({**tokens, **kind}))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 500,
        "max_position_embeddings": 2048,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 3,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_every_format_is_accepted(tmp_path):
    datasets, tests, rows = [], [], 0
    for name, make in FORMATS.items():
        source = tmp_path / name
        source.write_text(make(), encoding="utf-8")
        out = tmp_path / f"out-{source.stem}"
        made = prepare.prepare([source], out, Options(validation=0.1, near=False))
        assert not made.report.refused, made.report.findings
        rows += made.manifest["counts"]["train"]
        keys = output.axolotl_datasets(out, made.manifest)
        datasets += keys["datasets"]
        tests += keys.get("test_datasets", [])
    body = {
        "base_model": str(model(tmp_path / "model")),
        "datasets": datasets,
        "test_datasets": tests,
        "val_set_size": 0,
        "dataset_prepared_path": str(tmp_path / "prepared"),
        "output_dir": str(tmp_path / "o"),
        "sequence_len": 1024,
        "chat_template": "tokenizer_default",
        "learning_rate": 0.001,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "max_steps": 1,
        "optimizer": "adamw_torch",
        "bf16": False,
        "fp16": False,
        "tf32": False,
        "special_tokens": {"pad_token": "<pad>"},
    }
    (tmp_path / "config.yml").write_text(yaml.safe_dump(body))
    done = subprocess.run(
        [Path(ENVIRONMENT) / "bin" / "axolotl", "preprocess", tmp_path / "config.yml"],
        env={**os.environ, **OFFLINE, "HF_HOME": str(tmp_path / "hf")},
        capture_output=True,
        text=True,
        timeout=800,
    )
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-3000:]
    assert "Success! Preprocessed data path" in log
    saved = {int(n) for n in re.findall(r"Saving the dataset \(\d+/\d+ shards\):.*?(\d+)/\d+", log)}
    assert rows in saved, (rows, saved)
