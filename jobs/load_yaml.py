"""YAML text -> plain values, with the line of every key, and without YAML 1.1's traps.

`1e-4` is a number, `no` stays a word (a true-or-false field still reads it as false), `1:30` is not
90 and `010` is not 8: they stay text, so that the field that wanted a number says what is wrong.
Duplicate keys, tags, endless aliases and a second document are findings, never silence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from jobs.findings import Finding

KeyPath = tuple[str | int, ...]

MAX_BYTES = 1 << 20  # a job file is a page; a data set given by mistake is not read into YAML
MAX_NODES = 20_000  # aliases may multiply: ten lines of them can stand for a billion values
SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")
LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9_]*)(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAX_DIGITS = 40  # longer "numbers" are text: nothing here is that large
_TAG = "tag:yaml.org,2002:"


@dataclass
class Document:
    """A YAML file as plain values. `lines` maps the path of every key and item to its line."""

    file: str
    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def line(self, path: KeyPath) -> int | None:
        """Return the line of the path, or of the nearest thing around it that has one."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def parse(text: str, file: str) -> Document:
    """Return the document; whatever is wrong stands in its findings, and nothing is raised."""
    document = Document(file)
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                document.value = _Builder(document, loader).build(node, (), ())
        finally:
            loader.dispose()
    except RecursionError:
        _add(document, None, "", "the file is nested too deeply", "A job file has three levels")
    except yaml.MarkedYAMLError as error:
        _add(document, *_broken(error))
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        char = f"character U+{error.character:04X}" if isinstance(error.character, int) else "byte"
        _add(document, line, "", f"{char} is not allowed in YAML", "Remove it")
    except yaml.YAMLError as error:
        _add(document, None, "", f"not valid YAML: {error}", "")
    return document


def plain(text: str) -> Any:
    """Return the value of an unquoted word by YAML 1.2's core rules; what is unclear stays text."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if len(text) <= _MAX_DIGITS:
        if _WHOLE.fullmatch(text):
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        if _REAL.fullmatch(text):
            return float(text)
        if _SPECIAL.fullmatch(text):
            return float(text.replace(".", "").lower())
    return text


def dotted(path: KeyPath) -> str:
    """Return the path as a person writes it: `gpu.types[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _add(document: Document, line: int | None, name: str, message: str, remedy: str) -> None:
    document.findings.append(Finding(document.file, line, name, message, remedy))


def _broken(error: yaml.MarkedYAMLError) -> tuple[int | None, str, str, str]:
    """Return line, field, message and remedy of a syntax error."""
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "not valid YAML"
    where = f", column {mark.column + 1}" if mark else ""
    remedy = ""
    if "'\\t'" in problem:
        problem, remedy = "a tab is used to indent", "YAML takes only spaces"
    elif "expected a single document" in (error.context or ""):
        problem, remedy = "a second document begins", "Remove the --- line; one file is one job"
    elif "mapping values are not allowed" in problem:
        remedy = "Look for a colon inside an unquoted text, or for wrong indentation"
    elif "undefined alias" in problem:
        remedy = "Define it above with &, or quote the text if the * is meant as such"
    elif error.context:
        remedy = f"It happened {error.context}"
        if error.context_mark and error.context_mark.line != (mark.line if mark else -1):
            remedy += f" that begins in line {error.context_mark.line + 1}"
    return (mark.line + 1 if mark else None), "", f"broken YAML{where}: {problem}", remedy


class _Builder:
    """Turns nodes into values; keeps the count of visits and the chain of open nodes."""

    def __init__(self, document: Document, loader: yaml.SafeLoader) -> None:
        self.document = document
        self.loader = loader
        self.visits = 0

    def build(self, node: yaml.Node, path: KeyPath, above: tuple[int, ...]) -> Any:
        """Return the value of a node; findings go to the document."""
        self.visits += 1
        if self.visits > MAX_NODES:
            if self.visits == MAX_NODES + 1:
                self._find(node, path, f"more than {MAX_NODES} values", "A job file is a page long")
            return None
        if id(node) in above:
            self._find(node, path, "an alias contains itself", "Write the value out")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        above = (*above, id(node))
        if isinstance(node, yaml.SequenceNode):
            if node.tag != f"{_TAG}seq":
                self._unknown_tag(node, path)
            items = []
            for index, item in enumerate(node.value):
                self.document.lines[*path, index] = item.start_mark.line + 1
                items.append(self.build(item, (*path, index), above))
            return items
        if isinstance(node, yaml.MappingNode):
            if node.tag != f"{_TAG}map":
                self._unknown_tag(node, path)
            return self._mapping(node, path, above)
        raise AssertionError(node)  # PyYAML knows three kinds of node

    def _mapping(
        self, node: yaml.MappingNode, path: KeyPath, above: tuple[int, ...]
    ) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged = {**self._merge(value_node, path, above), **merged}
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key in own:
                first = self.document.lines[here]
                self._find(
                    key_node, here, f"given twice, first in line {first}", "Remove one of the two"
                )
                continue
            self._forget(here)  # lines that a merge put there
            self.document.lines[here] = key_node.start_mark.line + 1
            own[key] = self.build(value_node, here, above)
        return {**merged, **own}

    def _forget(self, path: KeyPath) -> None:
        if path in self.document.lines:
            depth = len(path)
            for known in [k for k in self.document.lines if k[:depth] == path]:
                del self.document.lines[known]

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if isinstance(node, yaml.ScalarNode):
            return self._text(node, path)
        self._find(node, path, "a key must be a plain word", "Write it without brackets")
        return None

    def _merge(self, node: yaml.Node, path: KeyPath, above: tuple[int, ...]) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for source in reversed(sources):
            value = self.build(source, path, above)
            if isinstance(value, dict):
                result.update(value)
            else:
                self._find(source, path, "<< takes a mapping, or a list of them", "")
        return result

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text = self._text(node, path)
        quoted = node.style is not None
        implicit = self.loader.resolve(  # type: ignore[no-untyped-call]
            yaml.ScalarNode, text, (not quoted, quoted)
        )
        if node.tag in (implicit, "!"):
            return text if quoted or node.tag == "!" else plain(text)
        if node.tag == f"{_TAG}str":
            return text
        if node.tag in {f"{_TAG}{name}" for name in ("int", "float", "bool", "null")}:
            return plain(text)
        self._unknown_tag(node, path)
        return None

    def _text(self, node: yaml.ScalarNode, path: KeyPath) -> str:
        r"""Return the node's text; JSON's `\ud83d\ude00` is one sign, half of it is none."""
        text = str(node.value)
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._find(node, path, "half of a surrogate pair is no text", "Write the sign itself")
            return ""

    def _unknown_tag(self, node: yaml.Node, path: KeyPath) -> None:
        tag = str(node.tag).replace(_TAG, "!!")
        self._find(node, path, f"the tag {tag} is not used in job files", "Remove it")

    def _find(self, node: yaml.Node, path: KeyPath, message: str, remedy: str) -> None:
        _add(self.document, node.start_mark.line + 1, dotted(path), message, remedy)
