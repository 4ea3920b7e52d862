"""A conversation in any spelling to role/content messages, with every fault on the way named."""

import json
from typing import Any

from .options import Options
from .pii.text import INVISIBLE

Faults = list[tuple[str, str]]
Message = dict[str, Any]

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
#: Speakers as other formats call them; mapped, and said so. A typo is never guessed.
ALIASES = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "chatbot": "assistant",
    "developer": "system",
    "function": "tool",
    "function_response": "tool",
    "observation": "tool",
    "ipython": "tool",
    "tool_response": "tool",
    "environment": "tool",
}
_SHAREGPT_SILENT = frozenset({"human", "gpt"})  # the format's own names: no finding
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_KEPT_KEYS = ("reasoning_content", "thinking", "name", "tool_call_id")


def messages(
    turns: list[Any], options: Options, faults: Faults, *, sharegpt: bool
) -> list[Message]:
    """Return the turns as messages; faults are appended as (code, message)."""
    out: list[Message] = []
    mapped = dict(options.roles) if options.roles else {}
    plain = not mapped and not sharegpt
    for number, turn in enumerate(turns, 1):
        if plain and type(turn) is dict and len(turn) == 2:
            role, content = turn.get("role"), turn.get("content")
            if type(content) is str and role in ROLES:  # the common case, kept short
                if len(content) < 16 and blank(content):
                    _empty(role, number, faults)
                out.append({"role": role, "content": content})
                continue
        message = _turn(turn, number, mapped, faults, sharegpt=sharegpt)
        if message:
            out.append(message)
    return out


def _turn(
    turn: Any, number: int, mapped: dict[str, str], faults: Faults, *, sharegpt: bool
) -> Message | None:
    if not isinstance(turn, dict):
        faults.append(("missing_role", f"turn {number} is {_kind(turn)}, not an object"))
        return None
    spoken = turn.get("role", turn.get("from", turn.get("speaker")))
    role = _role(spoken, number, mapped, faults, sharegpt=sharegpt)
    if role is None:
        return None
    content = turn.get("content", turn.get("value", turn.get("text")))
    if (
        content is None
        and not ({"content", "value", "text"} & turn.keys())
        and "tool_calls" not in turn
        and "function_call" not in turn
    ):
        faults.append(("missing_role", f"turn {number} has no content"))
        return None
    message: Message = {"role": role, "content": ""}
    calls = _calls(turn, number, faults)
    if calls:
        message["tool_calls"] = calls
    text = _content(content, number, faults, called=bool(calls))
    if text is None:
        return None
    message["content"] = text
    if not calls and blank(text):
        _empty(role, number, faults)
    for key in _KEPT_KEYS:
        value = turn.get(key)
        if isinstance(value, str) and value:
            message[key] = value
    return message


def _role(
    spoken: Any, number: int, mapped: dict[str, str], faults: Faults, *, sharegpt: bool
) -> str | None:
    if not isinstance(spoken, str):
        faults.append(("missing_role", f"turn {number} has no role"))
        return None
    role = mapped.get(spoken) or ROLES.get(spoken)
    if role:
        return role
    name = spoken.strip().casefold()
    role = ROLES.get(name) or ALIASES.get(name)
    if role is None:
        known = "" if len(spoken) < 40 else "..."
        faults.append(("unknown_role", f"turn {number}: role {spoken[:40]!r}{known} is not known"))
        return None
    if not (sharegpt and spoken in _SHAREGPT_SILENT):
        faults.append(("role_alias", f"role {spoken[:40]!r} is written as {role!r}"))
    return role


def _content(content: Any, number: int, faults: Faults, *, called: bool) -> str | None:
    """Return the text of a turn; None after an error."""
    if isinstance(content, str):
        return content
    if content is None:
        if called:
            faults.append(
                ("null_content_with_tool_calls", f"turn {number}: null content beside tool_calls")
            )
            return ""
        faults.append(("null_content", f"turn {number}: content is null"))
        return None
    if isinstance(content, list):
        return _parts(content, number, faults)
    if isinstance(content, dict) and content.get("type") in _TEXT_PARTS:
        return _parts([content], number, faults)
    return text_of(content, f"turn {number}: content", faults)


def _parts(parts: list[Any], number: int, faults: Faults) -> str | None:
    texts: list[str] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif (
            isinstance(part, dict)
            and isinstance(part.get("text"), str)
            and kind in (None, *_TEXT_PARTS)
        ):
            texts.append(part["text"])
        elif isinstance(part, dict) and (
            isinstance(kind, str)
            or any(k.startswith(("image", "video", "audio", "input_")) for k in part)
        ):
            faults.append(
                ("multimodal_unsupported", f"turn {number} holds a part of type {str(kind)[:30]!r}")
            )
            return None
        else:
            faults.append(
                ("structure_not_text", f"turn {number}: {_kind(part)} in the list of parts")
            )
            return None
    faults.append(("text_parts", f"turn {number} is a list of text parts"))
    return "".join(texts)


def text_of(value: Any, where: str, faults: Faults) -> str | None:
    """Return a scalar as text, noting it; None, with an error, for null, lists and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        faults.append(("scalar_not_text", f"{where} is {json.dumps(value)}, not a text"))
        return json.dumps(value)
    if isinstance(value, int | float):
        faults.append(("scalar_not_text", f"{where} is the number {str(value)[:40]}, not a text"))
        return str(value)
    if value is None:
        faults.append(("null_content", f"{where} is null"))
        return None
    faults.append(("structure_not_text", f"{where} is {_kind(value)}"))
    return None


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "a truth value",
        type(None): "null",
    }
    return names.get(type(value), "a number")


def blank(text: str) -> bool:
    """Return whether a text shows nothing: empty, blanks, marks of no width."""
    return not text or text.isspace() or not INVISIBLE.sub("", text).strip()


def _empty(role: str, number: int, faults: Faults) -> None:
    if role == "assistant":
        faults.append(("empty_response", f"turn {number}: the answer is empty"))
    elif role == "user":
        faults.append(("empty_prompt", f"turn {number}: the prompt is empty"))


def _calls(turn: dict[str, Any], number: int, faults: Faults) -> list[dict[str, Any]]:
    calls = turn.get("tool_calls")
    legacy = turn.get("function_call")
    if isinstance(legacy, dict) and not calls:
        faults.append(("legacy_function_call", f"turn {number} uses function_call"))
        calls = [{"type": "function", "function": legacy}]
    if isinstance(calls, str) and calls.strip():
        try:
            calls = json.loads(calls)
            faults.append(("stringified_structure", f"turn {number}: tool_calls is a text"))
        except ValueError:
            pass
    if not calls:
        return []
    if not isinstance(calls, list):
        faults.append(("tool_call_invalid", f"turn {number}: tool_calls is {_kind(calls)}"))
        return []
    return [c for call in calls if (c := _call(call, number, faults)) is not None]


def _call(call: Any, number: int, faults: Faults) -> dict[str, Any] | None:
    function = call.get("function", call) if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        faults.append(("tool_call_invalid", f"turn {number}: a tool call without function.name"))
        return None
    arguments = function.get("arguments", function.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            faults.append(
                ("tool_args_invalid", f"turn {number}: arguments of {name[:40]!r} are not JSON")
            )
        arguments = arguments or "{}"
    else:
        if arguments is not None:
            faults.append(
                (
                    "tool_args_mixed_types",
                    f"turn {number}: arguments of {name[:40]!r} are {_kind(arguments)}",
                )
            )
        arguments = json.dumps(
            {} if arguments is None else arguments, ensure_ascii=False, separators=(",", ":")
        )
    out: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if isinstance(call.get("id"), str):
        out["id"] = call["id"]
    return out


def order(turns: list[Message], options: Options, faults: Faults) -> list[Message]:
    """Return the turns with the order checked: trailing turns cut, neighbours joined with --fix."""
    end = len(turns)
    while end and turns[end - 1]["role"] != "assistant":
        end -= 1
    if end == 0:
        roles = ", ".join(sorted({t["role"] for t in turns})) or "no turns"
        faults.append(("no_assistant_turn", f"no answer in it ({roles} only)"))
        return []
    if end < len(turns):
        faults.append(("trailing_user_turn", f"{len(turns) - end} turn(s) after the last answer"))
        turns = turns[:end]
    before = ""
    called = uneven = False
    for i, turn in enumerate(turns):
        role = turn["role"]
        if role == "system":
            if i:
                faults.append(("system_not_first", f"turn {i + 1} is a system turn"))
            continue
        if role == "tool":
            if not called and before != "tool":
                faults.append(("tool_without_call", f"turn {i + 1}: no tool call stands before it"))
        elif role == before and not called:
            uneven = True
            faults.append(("roles_not_alternating", f"turns {i} and {i + 1} are both by {role!r}"))
        elif not before and role == "assistant":
            faults.append(("roles_not_alternating", "the conversation begins with an answer"))
        called = "tool_calls" in turn
        before = role
    if options.fix and turns and (uneven or any(f[0] == "system_not_first" for f in faults)):
        return _joined(turns)
    return turns


def _joined(turns: list[Message]) -> list[Message]:
    systems = [t["content"] for t in turns if t["role"] == "system"]
    out: list[Message] = [{"role": "system", "content": "\n\n".join(systems)}] if systems else []
    for turn in turns:
        if turn["role"] == "system":
            continue
        last = out[-1] if out else None
        if (
            last
            and last["role"] == turn["role"] in ("user", "assistant")
            and "tool_calls" not in last
        ):
            last["content"] = f"{last['content']}\n\n{turn['content']}".strip()
            last.update({k: v for k, v in turn.items() if k not in ("role", "content")})
        else:
            out.append(dict(turn))
    return out
