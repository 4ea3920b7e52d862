"""One parsed value to one record Axolotl trains on: {"messages", "tools"?} or {"text"}."""

import json
from typing import Any, NamedTuple

from . import recognise, turns
from .codes import CODES
from .options import Options
from .recognise import MEDIA_KEYS
from .turns import Faults, Message

#: Shapes a run can be given instead of messages, for prompts that are no conversation.
SHAPES = ("alpaca", "prompt_completion")
#: Between instruction and input while both are one turn; a noncharacter, so no text holds it.
PARTS = "\n\ufdd0\n"
_encode = json.JSONEncoder(ensure_ascii=False).encode


class Record(NamedTuple):
    """A normalised record; `messages` is None for plain text."""

    kind: str
    messages: list[Message] | None
    text: str
    tools: str
    group: str
    empty_prompt: bool

    def as_json(self, shape: str = "") -> str:
        """Return the record as JSON without a line end; `shape` is one of SHAPES or ""."""
        if self.messages is None:
            return _encode({"text": self.text})
        if shape and len(self.messages) > 1:
            prompt, answer = (m["content"] for m in self.messages[-2:])
            if shape == "prompt_completion":
                return _encode({"prompt": prompt, "completion": answer})
            told, _, more = prompt.partition(PARTS)
            return _encode({"instruction": told, "input": more, "output": answer})
        row: dict[str, Any] = {"messages": self.messages}
        if self.tools:
            row["tools"] = self.tools
        return _encode(row)

    def answer(self) -> str:
        """Return the last answer of the record, or its text."""
        return self.text if self.messages is None else str(self.messages[-1]["content"])


def normalise(value: Any, options: Options, faults: Faults) -> tuple[str, Record | None]:
    """Return (kind, record); the record is None where a fault drops or refuses it.

    Faults are appended as (code, message).
    """
    if type(value) is not dict:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = {"messages": value}
        else:
            faults.append(("not_an_object", f"the record is {turns._kind(value)}"))  # noqa: SLF001
            return "unknown", None
    row: dict[str, Any] = _mapped(value, options) if options.columns else value
    kind, first, second = recognise.form_of(row)
    if options.format == "text" and kind != "text":
        name = next((key for key in recognise.TEXT_KEYS if key in row), "")
        kind, first, second = ("text", name, "") if name else (kind, first, second)
    if kind == "unknown":
        row, kind, first, second = _by_folded_keys(row)
    if kind == "chat":
        return _chat(row, first, options, faults)
    if kind == "unknown":
        names = ", ".join(sorted(map(str, row))[:8])
        faults.append(("unknown_schema", f"no known columns in it: {names or '(none)'}"))
        return kind, None
    if kind == "preference":
        return _preference(row, options, faults)
    if MEDIA_KEYS & row.keys() and _media(row, faults):
        return kind, None
    if kind == "text":
        return _text(row, first, options, faults)
    return kind, _pair(row, (kind, first, second), options, faults)


def refused(faults: Faults) -> bool:
    """Return whether any of the faults keeps the record out."""
    return any(CODES[code][0] in ("error", "drop") for code, _ in faults)


def _mapped(row: dict[str, Any], options: Options) -> dict[str, Any]:
    theirs = {old: ours for ours, old in options.columns}
    taken = set(theirs.values()) - theirs.keys()
    return {theirs.get(k, k): v for k, v in row.items() if k in theirs or k not in taken}


def _by_folded_keys(row: dict[str, Any]) -> tuple[dict[str, Any], str, str, str]:
    """Try again with keys in lower case and without blanks: "Instruction", " output"."""
    folded = {str(k).strip().lower(): v for k, v in row.items()}
    if len(folded) != len(row):
        return row, "unknown", "", ""
    return (folded, *recognise.form_of(folded))


def _media(row: dict[str, Any], faults: Faults) -> bool:
    filled = [key for key in MEDIA_KEYS & row.keys() if row[key] not in (None, "", [])]
    if filled:
        faults.append(("multimodal_unsupported", f"the record has {', '.join(sorted(filled))}"))
    return bool(filled)


def _group(row: dict[str, Any], options: Options) -> str:
    value = row.get(options.group) if options.group else None
    return "" if value is None else str(value)


def _chat(
    row: dict[str, Any], name: str, options: Options, faults: Faults
) -> tuple[str, Record | None]:
    said = row[name]
    if type(said) is not list:
        if isinstance(said, str) and said.strip()[:1] in ("[", "{"):
            said = _parsed(said, name, faults)
        if isinstance(said, dict):
            said = [said]
    if not isinstance(said, list):
        what = "null" if said is None else turns._kind(said)  # noqa: SLF001
        faults.append(
            (
                "null_messages" if said is None else "structure_not_text",
                f"{name} is {what}, not a list",
            )
        )
        return "chat", None
    if not said:
        faults.append(("no_assistant_turn", f"{name} is empty"))
        return "chat", None
    if isinstance(said[0], list):
        said = [
            {"role": r, "content": c}
            for pair in said
            if isinstance(pair, list)
            for r, c in zip(("user", "assistant"), pair, strict=False)
        ]
    if options.columns:
        said = [_mapped(turn, options) if isinstance(turn, dict) else turn for turn in said]
    kind = recognise.kind_of_turns(said)
    if len(row) > 1 and MEDIA_KEYS & row.keys() and _media(row, faults):
        return kind, None
    before = len(faults)
    out = turns.messages(said, options, faults, sharegpt=kind == "sharegpt")
    if len(row) == 1 and not faults and not options.group:  # the common case, kept short
        out = turns.order(out, options, faults)
        if not faults or not refused(faults):
            return kind, Record(kind, out, "", "", "", empty_prompt=False)
        return kind, None
    system = row.get("system") if len(row) > 1 else None
    if isinstance(system, str) and system.strip() and (not out or out[0]["role"] != "system"):
        out.insert(0, {"role": "system", "content": system})
    if len(faults) > before and any(CODES[c][0] == "error" for c, _ in faults[before:]):
        return kind, None
    out = turns.order(out, options, faults)
    tools = _tools(row["tools"], faults) if len(row) > 1 and row.get("tools") else ""
    if not tools and len(row) > 1 and row.get("functions"):
        tools = _tools(row["functions"], faults)
    if faults and refused(faults):
        return kind, None
    empty = any(code == "empty_prompt" for code, _ in faults)
    return kind, Record(kind, out, "", tools, _group(row, options), empty)


def _parsed(text: str, name: str, faults: Faults) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    faults.append(("stringified_structure", f"{name} is a text that holds JSON"))
    return value


def _tools(tools: Any, faults: Faults) -> str:
    """Return the tools as JSON text: Arrow would merge the schemas of different rows."""
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError):
            faults.append(("tools_invalid", "tools is a text that is not JSON"))
            return ""
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        faults.append(("tools_invalid", "tools is not a list of objects"))
        return ""
    return json.dumps(tools, ensure_ascii=False, separators=(",", ":")) if tools else ""


def _preference(row: dict[str, Any], options: Options, faults: Faults) -> tuple[str, Record | None]:
    chosen = row.get("chosen", row.get("chosen_response"))
    if options.to != "chosen" or chosen is None:
        faults.append(
            ("preference_data", "the record compares answers (" + ", ".join(sorted(row)[:6]) + ")")
        )
        return "preference", None
    if isinstance(chosen, list):
        prompt = row.get("prompt")
        said = (prompt if isinstance(prompt, list) else []) + chosen
        return "chat", _chat({"messages": said}, "messages", options, faults)[1]
    kept = {"prompt": row.get("prompt", row.get("question", "")), "completion": chosen}
    return "prompt_completion", _pair(
        kept, ("prompt_completion", "prompt", "completion"), options, faults
    )


def _text(
    row: dict[str, Any], name: str, options: Options, faults: Faults
) -> tuple[str, Record | None]:
    text = turns.text_of(row[name], name, faults)
    if text is not None and turns.blank(text):
        faults.append(("empty_text", f"{name} is empty"))
        text = None
    if text is None:
        return "text", None
    return "text", Record("text", None, text, "", _group(row, options), empty_prompt=False)


def _pair(
    row: dict[str, Any], form: tuple[str, str, str], options: Options, faults: Faults
) -> Record | None:
    kind, first, second = form
    prompt, answer = row[first], row[second]
    if (
        isinstance(prompt, list)
        and isinstance(answer, list)
        and prompt
        and isinstance(prompt[0], dict)
    ):
        return _chat({"messages": prompt + answer}, "messages", options, faults)[1]
    if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], str):
        answer = answer[0]
    told = "" if prompt is None else turns.text_of(prompt, first, faults)
    said = "" if answer is None else turns.text_of(answer, second, faults)
    if told is None or said is None:
        return None
    if kind == "alpaca":
        extra = row.get("input", row.get("context"))
        more = "" if extra is None else turns.text_of(extra, "input", faults)
        both = PARTS if options.shape == "alpaca" else "\n\n"
        told = (
            f"{told}{both}{more}" if more and more.strip() and told.strip() else told or more or ""
        )
    out: list[Message] = []
    system = row.get("system", row.get("system_prompt"))
    if isinstance(system, str) and system.strip():
        out.append({"role": "system", "content": system})
    history = row.get("history")
    if isinstance(history, list):
        for pair in history:
            if isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair):
                out += [
                    {"role": "user", "content": pair[0]},
                    {"role": "assistant", "content": pair[1]},
                ]
    if turns.blank(said):
        faults.append(("empty_response", f"{second} is empty"))
    if turns.blank(told):
        faults.append(("empty_prompt", f"{first} is empty"))
    if faults and refused(faults):
        return None
    out += [{"role": "user", "content": told}, {"role": "assistant", "content": said}]
    empty = turns.blank(told)
    return Record(kind, out, said if empty else "", "", _group(row, options), empty)
