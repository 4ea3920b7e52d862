"""Exact lengths: the model's own tokenizer over the text its chat template makes of a record."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import templates
from .lengths import TURN_TOKENS, Length, estimate_record
from .options import Options
from .records import Record

EXACT = "the model's tokenizer and chat template"
CONTENT = "the model's tokenizer, template estimated at 8 tokens a turn"
ESTIMATE = "estimate"
PROOF_TEXTS = 500
_MAX_WORDS = 300_000  # about 40 MB
_UNIT = re.compile(r" ?\S+|\s+?(?= ?\S)|\s+")


@lru_cache(maxsize=2)
def load(folder: str) -> Any:
    """Return the tokenizer of a folder with tokenizer.json, None where it cannot be loaded."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 - the Rust side raises bare Exception for a broken file
        return None


@lru_cache(maxsize=2)
def _template(name: str, folder: str) -> templates.Template | None:
    if not templates.available():
        return None
    try:
        return templates.chosen(name, folder)
    except templates.TemplateError:
        return None


def count(records: list[Record], options: Options) -> tuple[list[Length], str]:
    """Return the lengths of records and how they were counted.

    The rendered text is cut at the answers and its pieces are counted: at such a cut templates
    have a special token or a line break, so the sum is that of the whole (the tests compare).
    """
    tokenizer = load(options.tokenizer)
    if tokenizer is None:
        return [estimate_record(r) for r in records], ESTIMATE
    template = None if options.shape else _template(options.chat_template, options.tokenizer)
    pieces: list[str] = []
    marks: list[list[tuple[bool, int]]] = []  # for each record: (is an answer, index of the piece)
    for record in records:
        cut = _rendered(record, template) if template else _bare(record)
        mark = []
        for answer, text in cut:
            mark.append((answer, len(pieces)))
            pieces.append(text)
        marks.append(mark)
    sizes = _counter(options.tokenizer).sizes(pieces)
    extra = 0 if template else TURN_TOKENS
    return [_length(mark, sizes, extra) for mark in marks], EXACT if template else CONTENT


class _Counter:
    """Token counts of texts, the words counted once each where the tokenizer allows it.

    Most tokenizers never join what a blank parts, so the count of a text is the sum over its
    words, and words repeat. Whether that holds is tried on every text until PROOF_TEXTS agreed and
    on one in a hundred after; the first difference ends it, and texts are counted whole.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        self.by_word = True
        self.known: dict[str, int] = {}
        self.agreed = 0
        self.seen = 0

    def sizes(self, texts: list[str]) -> list[int]:
        """Return the tokens of each text, special tokens added by nobody."""
        if not self.by_word:
            return self._whole(texts)
        if len(self.known) > _MAX_WORDS:
            self.known.clear()
        split = [_UNIT.findall(text) for text in texts]
        new = list({word for words in split for word in words}.difference(self.known))
        self.known.update(zip(new, self._whole(new), strict=True))
        known = self.known.__getitem__
        sizes = [sum(map(known, words)) for words in split]
        tried = []
        for i in range(len(texts)):
            self.seen += 1
            if self.seen <= PROOF_TEXTS or self.seen % 100 == 0:
                tried.append(i)
        whole = self._whole([texts[i] for i in tried])
        if [sizes[i] for i in tried] == whole:
            return sizes
        self.by_word = False
        return self._whole(texts)

    def _whole(self, texts: list[str]) -> list[int]:
        return [len(e) for e in self.batch(texts, add_special_tokens=False)]


@lru_cache(maxsize=2)
def _counter(folder: str) -> _Counter:
    return _Counter(load(folder))


def _length(mark: list[tuple[bool, int]], sizes: list[int], extra: int) -> Length:
    total = prompt = answers = 0
    first = True
    for answer, piece in mark:
        if answer:
            prompt, first = (total, False) if first else (prompt, False)
            answers += sizes[piece] + 1  # the end-of-turn token is trained too
        total += sizes[piece] + extra
    return total, (total if first else prompt), answers


def _bare(record: Record) -> list[tuple[bool, str]]:
    if record.messages is None:
        return [(True, record.text)]
    out = [(False, record.tools)] if record.tools else []
    for m in record.messages:
        calls = "".join(c["function"]["arguments"] for c in m.get("tool_calls", ()))
        out.append((m["role"] == "assistant", m["content"] + calls))
    return out


def _rendered(record: Record, template: templates.Template) -> list[tuple[bool, str]]:
    """Return the rendered text in pieces, answers marked; without the template where it refuses."""
    if record.messages is None:
        return [(True, record.text)]
    try:
        text = template.render(record.messages, record.tools)
    except templates.TemplateError:
        return _bare(record)
    out: list[tuple[bool, str]] = []
    at = 0
    for message in record.messages:
        content = message["content"].strip()
        if not content:
            continue
        start = text.find(content, at)
        if start < 0:
            continue
        if message["role"] == "assistant":
            out += [(False, text[at:start]), (True, content)]
            at = start + len(content)
        else:
            # Step over the prompt without cutting, so that its words are not found inside it again.
            out.append((False, text[at : start + len(content)]))
            at = start + len(content)
    out.append((False, text[at:]))
    return out
