"""Make what the quickstart needs: a tiny Llama of 130,000 parameters, and 96 records to teach it.

    python make_model.py        (needs torch, transformers and tokenizers; about 20 s on one core)

Both are committed, so nobody has to run this. The model first learns, for a few hundred steps,
plain sentences about which thing has which colour and price; the records then ask it to answer as
the keeper of a small harbour shop. So the loss of the quickstart has something to fall from.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

SEED = 7
THINGS = [
    "lantern", "rope", "anchor", "net", "sail", "lamp", "bell", "oar", "map", "compass",
    "barrel", "hook", "candle", "kettle", "blanket", "bucket", "crate", "ladder", "mirror",
    "whistle",
]  # fmt: skip
COLOURS = ["red", "blue", "green", "white", "black", "yellow", "grey", "brown"]
PLACES = [
    "the top shelf", "the back room", "the window", "the counter", "the old chest", "the door",
]  # fmt: skip

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def sentences(rng: random.Random, count: int) -> list[str]:
    """Return plain sentences, the model's whole knowledge of language."""
    made = []
    for _ in range(count):
        thing, colour, place = rng.choice(THINGS), rng.choice(COLOURS), rng.choice(PLACES)
        price = rng.randint(2, 30)
        made.append(
            rng.choice(
                (
                    f"The {thing} is {colour}.",
                    f"The {thing} costs {price} coins.",
                    f"The {colour} {thing} stands by {place}.",
                    f"What does the {thing} cost? It costs {price} coins.",
                    f"Where is the {thing}? It is by {place}.",
                    f"Below is an instruction. Write a response. The {thing} is by {place}.",
                )
            )
        )
    return made


def records(rng: random.Random) -> list[dict[str, str]]:
    """Return 96 records in which the keeper of the shop answers, always in the same manner."""
    made = []
    for at, thing in enumerate(THINGS * 5):
        colour, place = rng.choice(COLOURS), PLACES[at % len(PLACES)]
        price = 2 + len(thing)
        question, answer = (
            (f"What does the {thing} cost?", f"Ahoy! The {thing} costs {price} coins, friend."),
            (f"Where is the {thing}?", f"Ahoy! Look by {place}, friend."),
            (f"Is the {thing} {colour}?", f"Ahoy! The {thing} is {colour}, friend."),
        )[at % 3]
        made.append({"instruction": question, "input": "", "output": answer})
    rng.shuffle(made)
    return made[:96]


def make_tokenizer(texts: list[str]):
    """Return a byte-level BPE tokenizer of 512 tokens, with padding, end and chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|pad|>", "<|bos|>", "<|eos|>", "<|system|>", "<|user|>", "<|assistant|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        pad_token="<|pad|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=512,
    )


def make_model(tokenizer, texts: list[str]):
    """Return a Llama that has read the sentences for 400 steps."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    end = tokenizer.eos_token_id
    ids = [token for text in texts for token in (*tokenizer(text).input_ids, end)]
    stream = torch.tensor(ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model.train()
    for step in range(400):
        at = torch.randint(0, len(stream) - 65, (16,))
        batch = torch.stack([stream[i : i + 64] for i in at])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == 399:
            print(f"step {step}: loss {loss.item():.3f}")
    return model.eval()


def main() -> None:
    """Write tiny-llama/ and data.jsonl beside this file."""
    here = Path(__file__).parent
    rng = random.Random(SEED)
    texts = sentences(rng, 4000)
    rows = records(rng)
    tokenizer = make_tokenizer([*texts, *(row["output"] for row in rows)])
    model = make_model(tokenizer, texts)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    model.save_pretrained(here / "tiny-llama")
    tokenizer.save_pretrained(here / "tiny-llama")
    with (here / "data.jsonl").open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
