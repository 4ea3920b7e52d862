"""Sets of every format the gate reads, for the tests that hand prepared data to others."""

import csv
import io
import json
from collections.abc import Mapping, Sequence

WORDS = [
    "river",
    "stone",
    "bread",
    "cloud",
    "letter",
    "garden",
    "winter",
    "candle",
    "harbour",
    "market",
    "bridge",
    "forest",
    "valley",
    "silver",
]


def sentence(seed: int, length: int = 14) -> str:
    """Return a sentence unlike those of other seeds."""
    return " ".join(
        f"{WORDS[(seed * 7 + i * (seed % 5 + 1)) % len(WORDS)]}{seed + i * i}"
        for i in range(length)
    )


def pairs(n: int = 40) -> list[tuple[str, str]]:
    """Return n prompts and answers."""
    return [(f"What about {sentence(i, 6)}?", f"It is {sentence(1000 + i)}.") for i in range(n)]


def chat(n: int = 40) -> str:
    """Return messages, with system turns, tool calls of mixed argument types and null contents."""
    rows = []
    for i, (prompt, answer) in enumerate(pairs(n)):
        turns: list[dict[str, object]] = [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": answer},
        ]
        if i % 4 == 1:
            turns.insert(0, {"role": "system", "content": "Answer briefly."})
        row: dict[str, object] = {"messages": turns}
        if i % 4 == 2:
            arguments: object = {"n": i, "when": "now"} if i % 8 == 2 else json.dumps({"n": str(i)})
            call = {
                "id": "c1",
                "type": "function",
                "function": {"name": "look_up", "arguments": arguments},
            }
            turns[1:1] = [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": f"found {i}"},
            ]
            row["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": "look_up",
                        "description": "Looks up.",
                        "parameters": {
                            "type": "object",
                            "properties": {"n": {"type": "integer" if i % 8 == 2 else "string"}},
                        },
                    },
                }
            ]
        if i % 4 == 3:
            turns[1] = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
        rows.append(row)
    return lines(rows)


def sharegpt(n: int = 40) -> str:
    """Return conversations with from and value."""
    return lines(
        [
            {"conversations": [{"from": "human", "value": p}, {"from": "gpt", "value": a}]}
            for p, a in pairs(n)
        ]
    )


def alpaca(n: int = 40) -> str:
    """Return instruction, input, output; one output is a number."""
    rows: list[dict[str, object]] = [
        {"instruction": p, "input": "" if i % 2 else f"given {i}", "output": a}
        for i, (p, a) in enumerate(pairs(n))
    ]
    rows[3]["output"] = 42
    return lines(rows)


def prompt_completion(n: int = 40) -> str:
    """Return prompts and completions."""
    return lines([{"prompt": p, "completion": a} for p, a in pairs(n)])


def question_answer(n: int = 40) -> str:
    """Return a CSV table of questions and answers."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["question", "answer"])
    writer.writerows(pairs(n))
    return out.getvalue()


def text(n: int = 40) -> str:
    """Return plain texts."""
    return lines([{"text": f"{p} {a}"} for p, a in pairs(n)])


def empty_prompts(n: int = 40) -> str:
    """Return completions whose prompts are all empty: plain text in truth."""
    return lines([{"prompt": "", "completion": a} for _, a in pairs(n)])


def lines(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


FORMATS = {
    "chat.jsonl": chat,
    "sharegpt.jsonl": sharegpt,
    "alpaca.jsonl": alpaca,
    "prompt_completion.jsonl": prompt_completion,
    "question_answer.csv": question_answer,
    "text.jsonl": text,
    "empty_prompts.jsonl": empty_prompts,
}
