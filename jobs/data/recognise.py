"""What kind of record this is, by its keys alone; the gate counts the kinds of all."""

from typing import Any

TURN_KEYS = ("messages", "conversations", "conversation", "dialog", "dialogue", "turns", "chat")
#: (prompt key, answer key) -> kind; the first pair whose keys are both present wins.
PAIRS = (
    ("instruction", "output", "alpaca"),
    ("instruction", "response", "alpaca"),
    ("instruction", "completion", "alpaca"),
    ("prompt", "completion", "prompt_completion"),
    ("prompt", "response", "prompt_completion"),
    ("prompt", "answer", "prompt_completion"),
    ("prompt", "output", "prompt_completion"),
    ("question", "answer", "question_answer"),
    ("question", "response", "question_answer"),
    ("query", "response", "question_answer"),
    ("query", "answer", "question_answer"),
    ("problem", "solution", "question_answer"),
    ("input", "output", "prompt_completion"),
    ("input", "response", "prompt_completion"),
    ("user", "assistant", "prompt_completion"),
    ("human", "assistant", "prompt_completion"),
    ("source", "target", "prompt_completion"),
)
TEXT_KEYS = ("text", "content", "document")
PREFERENCE_KEYS = frozenset({"chosen", "rejected", "chosen_response", "rejected_response"})
MEDIA_KEYS = frozenset(
    ["image", "images", "video", "videos", "audio", "audios", "image_path", "image_url"]
)
KINDS = ("chat", "sharegpt", "alpaca", "prompt_completion", "question_answer", "text", "preference")
#: What a kind is called in messages to people.
TITLES = {
    "chat": "chat messages",
    "sharegpt": "ShareGPT conversations",
    "alpaca": "alpaca",
    "prompt_completion": "prompt/completion",
    "question_answer": "question/answer",
    "text": "plain text",
    "preference": "preference pairs",
    "unknown": "unknown",
}

_Form = tuple[str, str, str]  # kind, prompt or turns key, answer key
_cache: dict[tuple[str, ...], _Form] = {}


def form_of(record: dict[str, Any]) -> _Form:
    """Return (kind, key of the prompt or turns, key of the answer) for a record's keys.

    Chat and ShareGPT share their outer keys; `kind_of_turns` tells them apart.
    """
    keys = tuple(record)
    form = _cache.get(keys)
    if form is None:
        form = _form(frozenset(keys))
        if len(_cache) < 4096:  # a set with ever new keys must not grow it without bound
            _cache[keys] = form
    return form


def _form(keys: frozenset[str]) -> _Form:
    if len(keys & PREFERENCE_KEYS) == 2 or ({"prompt", "completion", "label"} <= keys):
        return "preference", "prompt", "chosen"
    for name in TURN_KEYS:
        if name in keys:
            return "chat", name, ""
    for prompt, answer, kind in PAIRS:
        if prompt in keys and answer in keys:
            return kind, prompt, answer
    for name in TEXT_KEYS:
        if name in keys:
            return "text", name, ""
    return "unknown", "", ""


def kind_of_turns(turns: list[Any]) -> str:
    """Return sharegpt where turns have from/value, else chat."""
    first = turns[0] if turns else None
    return (
        "sharegpt"
        if isinstance(first, dict) and "from" in first and "role" not in first
        else "chat"
    )
