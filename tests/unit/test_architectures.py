import csv
import json

import pytest

from jobs.architectures import TABLE, ArchitectureError, bundled, find, from_config, from_folder

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def rows():
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_each_shape_gives_its_published_parameter_count(row):
    computed = find(row["name"]).params / 1e9
    assert computed == pytest.approx(float(row["params_b"]), rel=0.005)


def test_the_table_holds_94_models_each_under_its_name_and_hub_id():
    assert len(rows()) == 94
    for row in rows():
        assert find(row["name"]).name == row["name"]
        assert find(row["hf_id"]).hidden == int(row["hidden"])
    assert len({id(arch) for arch in bundled().values()}) == 94


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-2-7b-hf", "llama-2-7b", "LLAMA-2-7B", "someone/Llama-2-7b-hf"]
)
def test_find_ignores_case_owner_and_suffix(name):
    assert find(name).name == "Llama-2-7B"


def test_an_unknown_model_names_its_neighbours_and_the_remedy():
    with pytest.raises(ArchitectureError, match=r"Llama-3\.1-8B.*config\.json"):
        find("meta-llama/Llama-3.1-8")


def test_a_config_gives_the_shape_of_the_table():
    arch = from_config(LLAMA, name="mine")
    table = find("Llama-3-8B")
    assert arch.params == table.params
    assert (arch.kv_width, arch.head_dim, arch.max_positions) == (1024, 128, 8192)


def test_active_parameters_of_a_mixture_leave_the_sleeping_experts_out():
    arch = find("Qwen3-30B-A3B")
    active = arch.active_linear + arch.embedding_params + arch.head_params
    assert arch.params == pytest.approx(30.5e9, rel=0.01)
    assert active == pytest.approx(3.3e9, rel=0.05)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "state-space"),
        ({"model_type": "lama"}, "nearest described: llama"),
        ({"model_type": "deepseek_v3"}, "latent attention"),
        ({"vision_config": {}}, "vision or audio tower"),
        ({"hidden_size": "big"}, "hidden_size = 'big'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"num_attention_heads": True}, "num_attention_heads = True"),
    ],
)
def test_a_config_that_cannot_be_sized_says_why(change, words):
    with pytest.raises(ArchitectureError, match=words):
        from_config({**LLAMA, **change}, name="mine")


def test_a_folder_is_read_and_a_broken_one_explained(tmp_path):
    with pytest.raises(ArchitectureError, match=r"config\.json"):
        from_folder(tmp_path)
    file = tmp_path / "config.json"
    file.write_text("{")
    with pytest.raises(ArchitectureError, match="not JSON"):
        from_folder(tmp_path)
    file.write_text("[]")
    with pytest.raises(ArchitectureError, match="JSON object"):
        from_folder(tmp_path)
    file.write_text(json.dumps(LLAMA))
    assert from_folder(tmp_path).layers == 32
    assert from_folder(file).layers == 32
