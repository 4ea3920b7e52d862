"""Finds replaced by typed placeholders, the same value by the same one within a record."""

import json
import re
from collections import Counter
from typing import Any

from jobs.data.records import Record

from .scan import PLACEHOLDER, Settings, scan
from .text import key, plain

_ROUNDS = 6  # taking one find out can uncover another; a scan of the result must be empty


class Masker:
    """Numbers the values of one record: `<PHONE_1>` is the same phone in all its turns."""

    def __init__(self, settings: Settings, *, replace: bool) -> None:
        """Start a record; with replace=False nothing is changed and finds are only counted."""
        self.settings = settings
        self.replace = replace
        self.found: list[tuple[str, str]] = []
        self.tags: dict[tuple[str, str], str] = {}
        self.used: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """Return the text with finds masked; remembers type and rule of each."""
        spans = scan(text, self.settings)
        if not spans:
            return text
        self.found += [(s.type, s.rule) for s in spans]
        if not self.replace:
            return text
        if not self.tags:
            self._reserve(text)
        for _ in range(_ROUNDS):
            out: list[str] = []
            at = 0
            for span in spans:
                out += [text[at : span.start], self._tag(span.type, text[span.start : span.end])]
                at = span.end
            text = "".join(out) + text[at:]
            spans = scan(text, self.settings)
            if not spans:
                break
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value with finds in its strings, keys and numbers masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(v) for v in value]
        if isinstance(value, dict):
            return {k: self._under(k, v) for k, v in value.items()}
        return value

    def _under(self, name: str, value: Any) -> Any:
        """Mask a member; its key is the cue for a bare number or text ("phone": 5321112233)."""
        if (isinstance(value, int) and not isinstance(value, bool) and abs(value) > 99_999) or (
            isinstance(value, str) and len(value) < 64
        ):
            lead = re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]+", " ", str(name)) + ": "
            before = len(self.found)
            masked = self.text(lead + str(value))
            if len(self.found) > before and masked.startswith(lead):
                return masked[len(lead) :]
            if len(self.found) > before and not self.replace:
                return value
        return self.value(value)

    def _reserve(self, text: str) -> None:
        """Count placeholders that stand in the text already, so that none is used twice."""
        for tag in PLACEHOLDER.findall(text):
            kind, _, number = tag[1:-1].rpartition("_")
            self.used[kind] = max(self.used[kind], int(number))

    def _tag(self, kind: str, value: str) -> str:
        bare = re.sub(r"[^\w@.+]|_", "", key(plain(value).text))
        if kind in ("PHONE", "CARD", "ID"):
            bare = re.sub(r"[^0-9a-z]", "", bare)
            bare = bare[-9:] if kind == "PHONE" else bare  # with and without country code
        tag = self.tags.get((kind, bare))
        if tag is None:
            self.used[kind] += 1
            tag = self.tags[kind, bare] = f"<{kind}_{self.used[kind]}>"
        return tag


def record(
    row: Record, settings: Settings, *, replace: bool
) -> tuple[list[tuple[str, str]], Record]:
    """Return ([(type, rule)], record): every string of it scanned, and masked where asked."""
    masker = Masker(settings, replace=replace)
    if row.messages is None:
        text = masker.text(row.text)
        return masker.found, row._replace(text=text) if replace and masker.found else row
    messages = []
    for message in row.messages:
        content = masker.text(message["content"])
        if len(message) == 2:
            messages.append(
                {"role": message["role"], "content": content} if masker.found else message
            )
            continue
        new = {**message, "content": content}
        for name in ("reasoning_content", "thinking", "name"):
            if name in new:
                new[name] = masker.text(new[name])
        if "tool_calls" in new:
            new["tool_calls"] = [_call(call, masker) for call in new["tool_calls"]]
        messages.append(new)
    tools = row.tools
    if tools:
        masked = masker.value(json.loads(tools))
        tools = (
            json.dumps(masked, ensure_ascii=False, separators=(",", ":")) if masker.found else tools
        )
    if not replace or not masker.found:
        return masker.found, row
    text = masker.text(row.text) if row.text else ""
    return masker.found, row._replace(messages=messages, tools=tools, text=text)


def _call(call: dict[str, Any], masker: Masker) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return {**call, "function": {**function, "arguments": masker.text(function["arguments"])}}
    before = len(masker.found)
    masked = masker.value(arguments)
    if len(masker.found) == before:
        return call
    text = json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
    return {**call, "function": {**function, "arguments": text}}
