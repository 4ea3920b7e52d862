"""A model's chat template: there or not, what it refuses, what it makes of a record.

Rendering needs jinja2 (extra `data`); it runs sandboxed, for a template is code from a stranger.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .turns import Message

#: Templates that need no file. Other names known to Axolotl are taken on trust.
BUILT_IN = {
    "chatml": (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
        "}}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
}
_USER: Message = {"role": "user", "content": "Hello there"}
_ANSWER: Message = {"role": "assistant", "content": "Good day to you"}
_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"city": "Izmir"}'},
        }
    ],
}
_TOOL = (
    '[{"type":"function","function":{"name":"look_up","description":"d",'
    '"parameters":{"type":"object","properties":{}}}}]'
)
#: One record of each kind that data can hold: (name, messages, tools).
PROBES: tuple[tuple[str, tuple[Message, ...], str], ...] = (
    ("user and assistant", (_USER, _ANSWER), ""),
    ("system first", ({"role": "system", "content": "Be brief"}, _USER, _ANSWER), ""),
    ("several turns", (_USER, _ANSWER, _USER, _ANSWER), ""),
    ("one speaker twice", (_USER, _USER, _ANSWER), ""),
    (
        "tool calls",
        (
            _USER,
            _CALL,
            {"role": "tool", "content": "21 C", "tool_call_id": "c1", "name": "look_up"},
            _ANSWER,
        ),
        _TOOL,
    ),
)


class TemplateError(Exception):
    """A template that cannot be read or refuses a record."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template's text and the special tokens it names."""

    text: str
    tokens: tuple[tuple[str, str], ...] = ()
    source: str = ""

    def render(self, messages: Sequence[Message], tools: str = "") -> str:
        """Return the text a record becomes. Raises TemplateError where the template refuses it."""
        given = [_with_objects(m) for m in messages]
        names = dict(self.tokens)
        try:
            return str(
                _compiled(self.text).render(
                    messages=given,
                    tools=json.loads(tools) if tools else None,
                    add_generation_prompt=False,
                    **names,
                )
            )
        except TemplateError:
            raise
        except Exception as error:  # a template may fail in any way it likes
            raise TemplateError(f"{type(error).__name__}: {str(error)[:160]}") from error

    def verify(self) -> dict[str, str]:
        """Return, for each probe, "" or why the template refuses it (or loses its text)."""
        out = {}
        for name, messages, tools in PROBES:
            try:
                text = self.render(messages, tools)
                lost = [
                    m["content"]
                    for m in messages
                    if m["role"] != "tool" and m["content"] not in text
                ]
                out[name] = f"the text {lost[0]!r} is lost" if lost else ""
            except TemplateError as error:
                out[name] = str(error)
        return out


def _with_objects(message: Message) -> Message:
    """Arguments as objects: Axolotl parses the text before it renders."""
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        with contextlib.suppress(ValueError):
            function["arguments"] = json.loads(function["arguments"])
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


def available() -> bool:
    """Return whether templates can be rendered here (jinja2 is installed)."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        return False
    return True


@lru_cache(maxsize=8)
def _compiled(text: str) -> Any:
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda _: "01 Jan 2026"  # the length matters, not the day
    environment.filters["tojson"] = lambda v, **kw: json.dumps(v, ensure_ascii=False, **kw)
    try:
        return environment.from_string(text)
    except JinjaError as error:
        raise TemplateError(f"the template cannot be read: {error}") from error


def load(folder: Path) -> Template | None:
    """Return the template of a tokenizer's folder, None where it has none.

    Looks into chat_template.jinja, chat_template.json and tokenizer_config.json. Raises
    TemplateError for files that cannot be read.
    """
    config: dict[str, Any] = {}
    try:
        path = folder / "tokenizer_config.json"
        if path.exists():
            config = json.loads(path.read_text(encoding="utf-8"))
        text: Any = config.get("chat_template")
        for name in ("chat_template.jinja", "chat_template.json"):
            path = folder / name
            if path.exists():
                text = path.read_text(encoding="utf-8")
                text = json.loads(text).get("chat_template") if name.endswith(".json") else text
                break
    except (OSError, ValueError, AttributeError) as error:
        raise TemplateError(f"{path}: {error}") from error
    if isinstance(text, list):  # several, by name
        named = {t.get("name"): t.get("template") for t in text if isinstance(t, dict)}
        text = named.get("default") or next(iter(named.values()), None)
    if not isinstance(text, str) or not text.strip():
        return None
    return Template(text, special_tokens(config), str(folder))


def special_tokens(config: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the special tokens a tokenizer_config.json names."""
    out = []
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            out.append((name, token))
    return tuple(out)


def chosen(name: str, folder: str) -> Template | None:
    """Return the template to use: a built-in name, a file, or the tokenizer's own; None for none.

    Raises TemplateError for a file that cannot be read.
    """
    if name in BUILT_IN:
        return Template(BUILT_IN[name], source=name)
    if name and name != "tokenizer_default" and Path(name).is_file():
        try:
            return Template(Path(name).read_text(encoding="utf-8"), source=name)
        except (OSError, UnicodeError) as error:
            raise TemplateError(f"{name}: {error}") from error
    return load(Path(folder)) if folder else None
