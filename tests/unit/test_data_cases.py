"""Every case of the catalogue, and variants of each kind, through the command line."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.data.codes import CODES
from orchestrator.data_cli import data_app

CASES = Path(__file__).parent.parent / "cases" / "bad_inputs"
INDEX = list(csv.DictReader((CASES / "index.csv").read_text(encoding="utf-8").splitlines()))
OK = '{"messages":[{"role":"user","content":"What is 2+2?"},{"role":"assistant","content":"4."}]}'


def turns(*pairs, **extra):
    return json.dumps(
        {"messages": [{"role": r, "content": c} for r, c in pairs], **extra}, ensure_ascii=False
    )


def run(*args):
    result = CliRunner().invoke(data_app, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def findings(path, *options):
    result = run("check", path, "--json", *options)
    body = json.loads(result.stdout)
    for found in body["findings"]:
        assert {"file", "line", "code", "severity", "message", "remedy"} <= found.keys()
        assert found["severity"] == CODES[found["code"]][0] or options
    refused = any(f["severity"] == "error" for f in body["findings"])
    assert result.exit_code == (6 if refused else 0)
    return body["findings"]


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["file"])
def test_catalogue(case):
    options = ("--sequence-len", "128") if case["file"].startswith("15_") else ()
    found = findings(CASES / case["file"], *options)
    assert (case["code"], case["severity"]) in {(f["code"], f["severity"]) for f in found}


def test_clean_set_passes(tmp_path):
    path = tmp_path / "clean.jsonl"
    path.write_text(
        "".join(turns(("user", f"q{i}?"), ("assistant", f"a{i}.")) + "\n" for i in range(9))
    )
    assert findings(path) == []


# (content, code, line): variants that share a kind, not a spelling, with the catalogue.
VARIANTS = [
    (turns(("user", "a"), ("assistant", " \n\t")) + "\n" + OK, "empty_response", 1),
    ('{"instruction":"Say","output":""}\n{"instruction":"Say","output":"x"}', "empty_response", 1),
    ('{"prompt":"Say","completion":null}\n{"prompt":"Say","completion":"x"}', "empty_response", 1),
    (OK + "\n" + turns(("user", "a"), ("asistant", "b")), "unknown_role", 2),
    (
        '{"conversations":[{"from":"human","value":"a"},{"from":"gtp","value":"b"}]}',
        "unknown_role",
        1,
    ),
    ('{"messages":[{"role":"user","content":"a"},{"role":null,"content":"b"}]}', "missing_role", 1),
    ('{"messages":[{"content":"a"},{"role":"assistant","content":"b"}]}', "missing_role", 1),
    (turns(("user", "only a question")) + "\n" + OK, "no_assistant_turn", 1),
    ('{"messages":[]}\n' + OK, "no_assistant_turn", 1),
    ('{"conversations":null}\n' + OK, "null_messages", 1),
    (
        turns(("user", "a"), ("assistant", "b"), ("user", "c"), ("system", "d")),
        "trailing_user_turn",
        1,
    ),
    (turns(("user", "a"), ("assistant", "b"), ("assistant", "c")), "roles_not_alternating", 1),
    (turns(("user", "a"), ("system", "s"), ("assistant", "c")), "system_not_first", 1),
    ("{'prompt': 'a', 'completion': 'b'}\n" + '{"prompt":"a","completion":"b"}', "json_syntax", 1),
    ('{"prompt":"a","completion":None}\n' + OK, "json_syntax", 1),
    ('{"prompt":"a","completion":NaN}\n' + OK, "json_syntax", 1),
    (OK + ",\n" + OK, "json_syntax", 1),
    (OK + OK + "\n" + OK, "json_syntax", 1),
    ('{"prompt":"a\tb","completion":"c"}\n' + OK, "json_syntax", 1),
    ("not json at all\n" + OK, "json_syntax", 1),
    ('[{"prompt":"a","completion":"b",},{"prompt":"c","completion":"d"}]', "json_syntax", 1),
    ('[{"prompt":"a","completion":"b"} {"prompt":"c","completion":"d"}]', "json_syntax", 1),
    ('[{"prompt":"a","completion":"b"},\n{"prompt":"c","compl', "truncated_last_line", 2),
    (OK + "\n" + OK[:-5] + "\n\n", "truncated_last_line", 2),
    (OK + "\n" + OK[:40] + "\n" + OK, "json_syntax", 2),
    ('{"messages":[{"role":"user","role":"assistant","content":"b"}]}', "duplicate_key", 1),
    (
        '[{"prompt":"a","prompt":"b","completion":"c"},{"prompt":"a","completion":"c"}]',
        "duplicate_key",
        1,
    ),
    ('{"prompt":"a","completion":"b"}\n{"question":"a","answer":"b"}', "mixed_schema", 2),
    (
        '{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}\n' + OK,
        "mixed_schema",
        2,
    ),
    ('{"prompt":"a","chosen":"b","rejected":"c"}', "preference_data", 1),
    (
        '{"chosen":[{"role":"user","content":"a"}],"rejected":[{"role":"user","content":"a"}]}',
        "preference_data",
        1,
    ),
    ('{"prompt":"a","completion":"b","label":true}', "preference_data", 1),
    ('{"foo":"a","bar":"b"}', "unknown_schema", 1),
    ('"just text"\n' + OK, "not_an_object", 1),
    ('{"instruction":"Add","output":42}', "scalar_not_text", 1),
    ('{"instruction":"Add","output":true}', "scalar_not_text", 1),
    ('{"instruction":"Add","output":["a","b"]}', "structure_not_text", 1),
    ('{"instruction":{"a":1},"output":"b"}', "structure_not_text", 1),
    (
        '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null}]}\n' + OK,
        "null_content",
        1,
    ),
    (
        json.dumps(
            {
                "messages": json.dumps(
                    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
                )
            }
        ),
        "stringified_structure",
        1,
    ),
    (
        '{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]},{"role":"assistant","content":"b"}]}',
        "multimodal_unsupported",
        1,
    ),
    ('{"instruction":"see","output":"a cat","image":"cat.png"}', "multimodal_unsupported", 1),
    (
        '{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"}]}',
        "text_parts",
        1,
    ),
    (
        (
            '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"function":'
            '{"name":"f","arguments":"{bad"}}]},{"role":"tool","content":"x"},{"role":"assistant","content":"b"}]}'
        ),
        "tool_args_invalid",
        1,
    ),
    (
        '{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}]}',
        "tool_call_invalid",
        1,
    ),
    (
        (
            '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"function_call":'
            '{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"x"},{"role":"assistant","content":"b"}]}'
        ),
        "legacy_function_call",
        1,
    ),
    ('{"messages":[{"role":"Human","content":"a"},{"role":"AI","content":"b"}]}', "role_alias", 1),
    ('{"prompt":"  ","completion":"text"}\n{"prompt":"a","completion":"text"}', "empty_prompt", 1),
    (turns(("user", ""), ("assistant", "b")), "empty_prompt", 1),
    ('{"text":"   "}\n{"text":"a"}', "empty_text", 1),
    ('{"text":"bad \\ud83d half"}\n{"text":"a"}', "lone_surrogate", 1),
    ('{"text":"nul \\u0000 in it"}', "control_character", 1),
    ('{"text":"lost \ufffd letter"}', "replacement_character", 1),
    ('{"text":"TÃ¼rkÃ§e gÃ¼zel"}', "mojibake", 1),
    ("[\n" + OK + "\n]", "array_in_jsonl", 1),
    (
        ('{\n "prompt": "a",\n "completion": "b"\n}\n{\n "prompt": "c",\n "completion": "d"\n}\n'),
        "pretty_printed_json",
        1,
    ),
    ("", "empty_file", 0),
    ("\n \n\n", "empty_file", 0),
]


@pytest.mark.parametrize(
    ("content", "code", "line"), VARIANTS, ids=lambda v: v[:30] if isinstance(v, str) else str(v)
)
def test_variant(tmp_path, content, code, line):
    path = tmp_path / "data.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    found = [(f["code"], f["line"]) for f in findings(path)]
    assert (code, line) in found


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ("Merhaba güneş, bugün hava çok güzel değil mi?".encode("cp1254"), "encoding", "cp1254"),
        ("مرحبا بالعالم هذا نص عربي".encode("cp1256"), "encoding", "cp1256"),
        ("Ça va très bien, naïve café".encode("cp1252"), "encoding", "cp1252"),
        ("x".encode("utf-16"), "encoding", "utf-16"),
    ],
)
def test_encodings_are_named_with_the_byte(tmp_path, data, code, words):
    path = tmp_path / "data.jsonl"
    row = data if words == "utf-16" else OK.encode() + b'\n{"text":"' + data + b'"}\n'
    path.write_bytes(row)
    found = next(f for f in findings(path) if f["code"] == code)
    assert words in found["message"]
    assert "byte" in found["message"]


def test_told_encoding_is_read(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes('{"prompt":"güneş","completion":"değil"}\n'.encode("cp1254"))
    assert findings(path, "--encoding", "cp1254") == []


def test_cut_inside_a_character_is_a_cut_file(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(OK.encode() + b'\n{"text":"caf\xc3')
    assert [f["code"] for f in findings(path)] == ["truncated_last_line"]


def test_more_than_half_dropped_is_refused(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text((turns(("system", "s")) + "\n") * 2 + OK + "\n")
    codes = {f["code"] for f in findings(path)}
    assert {"no_assistant_turn", "too_many_dropped"} <= codes


def test_bad_lines_can_be_left_out(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(
        "".join(turns(("user", f"q{i}"), ("assistant", "a")) + "\n" for i in range(5))
        + '{"a":1,}\n'
        + OK
    )
    assert any(f["code"] == "json_syntax" for f in findings(path))
    assert all(f["severity"] != "error" for f in findings(path, "--skip-bad-lines"))


def test_columns_and_speakers_can_be_mapped(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"soru":"a","cevap":"b"}\n')
    assert findings(path, "--map", "question=soru", "--map", "answer=cevap") == []
    path.write_text(turns(("client", "a"), ("agent", "b")) + "\n")
    assert findings(path, "--role", "client=user", "--role", "agent=assistant") == []


def test_usage_errors_exit_2(tmp_path):
    assert run("check", tmp_path / "x.jsonl", "--map", "nonsense").exit_code == 2
    assert run("check", tmp_path / "x.jsonl", "--long", "cut").exit_code == 2


def test_screen_fits_and_hides_escape_codes(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"messages":[{"role":"\\u001b[31mevil","content":"a"}]}\n' * 3)
    result = run("check", path)
    assert result.exit_code == 6
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
