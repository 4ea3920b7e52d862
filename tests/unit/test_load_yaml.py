"""The YAML reader: values, lines, and every trap of YAML 1.1."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.load_yaml import Document, dotted, parse, plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("False", False),
        ("yes", "yes"), ("No", "No"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("1", 1), ("-7", -7), ("+3", 3), ("1_000", 1000), ("0x10", 16), ("0o17", 15),
        ("010", "010"), ("0777", "0777"), ("1:30", "1:30"), ("1:30:00", "1:30:00"),
        ("1e-4", 1e-4), ("1E5", 1e5), ("+12e03", 12000.0), (".5", 0.5), ("5.", 5.0), ("1.", 1.0),
        (".inf", float("inf")), ("-.inf", float("-inf")), ("1e", "1e"), ("e5", "e5"), (".", "."),
        ("2024-01-01", "2024-01-01"), ("1.2.3", "1.2.3"), ("0b11", "0b11"), ("=", "="),
        ("9" * 41, "9" * 41), ("hello", "hello"),
    ],
)  # fmt: skip
def test_plain_words(text: str, value: Any) -> None:
    found = plain(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number() -> None:
    assert plain(".nan") != plain(".nan")


def test_quotes_keep_text() -> None:
    assert parse("a: '1'\nb: \"yes\"\nc: |\n  2\n", "f").value == {"a": "1", "b": "yes", "c": "2\n"}


def test_signs_beyond_the_first_plane() -> None:
    document = parse('{"a": "\\ud83d\\ude00", "b\\ud83d\\ude00": "\\ud83d"}', "f")
    assert document.value == {"a": "\U0001f600", "b\U0001f600": ""}
    assert [finding.message for finding in document.findings] == [
        "half of a surrogate pair is no text"
    ]


def test_explicit_tags() -> None:
    assert parse("a: !!str 5\nb: !!int '5'\nc: !!float 1\n", "f").value == {
        "a": "5", "b": 5, "c": 1,
    }  # fmt: skip


def test_lines_of_keys_and_items() -> None:
    document = parse("a: 1\nb:\n  c: 2\n  d:\n    - x\n    - {e: 3}\n", "f")
    assert document.lines == {
        ("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "d"): 4,
        ("b", "d", 0): 5, ("b", "d", 1): 6, ("b", "d", 1, "e"): 6,
    }  # fmt: skip
    assert document.line(("b", "nothing")) == 2
    assert document.line(("nothing",)) is None


def test_merge_keys_own_ones_win_and_lines_are_theirs() -> None:
    document = parse(
        "a: &A {p: 1, q: 2}\nb:\n  <<: *A\n  q: 3\nc:\n  <<: [*A, {r: 4, p: 9}]\n", "f"
    )
    assert document.value["b"] == {"p": 1, "q": 3}
    assert document.value["c"] == {"p": 1, "q": 2, "r": 4}
    assert document.lines["b", "q"] == 4
    assert document.findings == []


def test_lines_of_a_merged_mapping_go_with_it() -> None:
    document = parse("a: &A {n: {x: 1}}\nb:\n  <<: *A\n  n: 3\n", "f")
    assert document.value["b"] == {"n": 3}
    assert ("b", "n", "x") not in document.lines


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2", 2, "given twice, first in line 1"),
        ("a: {b: 1,\n b: 2}", 2, "given twice"),
        ("a: [1,2", 1, "expected ',' or ']'"),
        ("a:\n\t- b", 2, "a tab is used to indent"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ("a: 1\n---\nb: 2", 2, "a second document begins"),
        ("a: &x [*x]", 1, "an alias contains itself"),
        ("a: *u", 1, "undefined alias"),
        ("x: !!python/object:os.system 1", 1, "the tag !!python/object:os.system"),
        ("x: !foo {a: 1}", 1, "the tag !foo"),
        ("x: !!set {a, b}", 1, "the tag !!set"),
        ("x: !!binary aGk=", 1, "the tag !!binary"),
        ("a\n\nb\x00", 3, "U+0000"),
        ("? [a]\n: 1", 1, "a key must be a plain word"),
        ("<<: 1", 1, "<< takes a mapping"),
        ("a: @b", 1, "cannot start any token"),
        ("a: 'x\n\n", 3, "unexpected end of stream"),
    ],
)
def test_what_is_wrong_and_where(text: str, line: int, words: str) -> None:
    document = parse(text, "f")
    (finding,) = document.findings
    assert finding.line == line
    assert words in finding.message
    assert finding.file == "f"


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse("1: a\ntrue: b\nnull: c\n", "f").value == {"1": "a", "true": "b", "null": "c"}


def test_dotted() -> None:
    assert dotted(("gpu", "types", 0)) == "gpu.types[0]"
    assert dotted(()) == ""


def test_line_of_an_empty_document() -> None:
    assert Document("f").line(("a",)) is None
