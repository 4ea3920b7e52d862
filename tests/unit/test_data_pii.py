"""Personal data: the bars on both labelled files, check digits against an oracle, masking."""

import json
import random
from pathlib import Path

import pytest
import stdnum.br.cpf
import stdnum.de.idnr
import stdnum.gb.nhs
import stdnum.iban
import stdnum.luhn
import stdnum.nl.bsn
import stdnum.pl.pesel
import stdnum.tr.tckimlik
import stdnum.us.ssn

from benches.pii_score import score
from jobs.data.pii import checksums, mask, policy
from jobs.data.pii.scan import Settings, scan, terms_pattern
from jobs.data.records import Record

CASES = Path(__file__).parent.parent / "cases" / "pii"
SETTINGS = Settings()


def labelled(name):
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


ALL = [
    "labelled.jsonl",
    "blind.jsonl",
    "fresh1.jsonl",
    "fresh2.jsonl",
    "fresh3.jsonl",
    "fresh4.jsonl",
]


@pytest.mark.parametrize("name", ALL)
def test_bars(name):
    result, notes = score(labelled(name), SETTINGS)
    assert result["structured"]["precision"] >= 0.95, notes
    assert result["structured"]["recall"] >= 0.95, notes
    assert result["structured"]["n"] >= 50


SENDERS = [
    ("From: Priyanka Deshmukh <p.deshmukh@lumen-labs.io>", "Priyanka Deshmukh"),
    ("Kimden: Ülkü Şahbaz <ulku@ornek.com.tr>", "Ülkü Şahbaz"),
    ("İlknur Hanım'a selam söyleyin", "İlknur"),
]


@pytest.mark.parametrize(("text", "name"), SENDERS)
def test_names_in_a_mails_head_and_before_an_inflected_honorific(text, name):
    found = [text[s.start : s.end] for s in scan(text, SETTINGS) if s.type == "NAME"]
    assert found == [name]


def test_a_head_without_an_address_announces_no_name():
    assert scan("From: Grand Bazaar to Taksim Square, <b>ten minutes</b>", SETTINGS) == []


def test_a_scorer_that_finds_nothing_fails():
    result, _ = score(labelled("labelled.jsonl"), Settings(skip_types=frozenset(("PHONE",))))
    assert result["structured"]["recall"] < 0.95


ORACLES = [
    (checksums.tckn, stdnum.tr.tckimlik, 11, False),
    (checksums.german_tax, stdnum.de.idnr, 11, True),
    (checksums.dutch, stdnum.nl.bsn, 9, False),
    (checksums.pesel, stdnum.pl.pesel, 11, False),
    (checksums.nhs, stdnum.gb.nhs, 10, False),
    (checksums.cpf, stdnum.br.cpf, 11, False),
    (checksums.ssn, stdnum.us.ssn, 9, False),
    (checksums.luhn, stdnum.luhn, 16, False),
]


@pytest.mark.parametrize(("ours", "oracle", "size", "stricter"), ORACLES)
def test_check_digits_agree_with_the_oracle(ours, oracle, size, stricter):
    rng = random.Random(size)
    hits = 0
    for _ in range(4000):
        digits = "".join(rng.choice("0123456789") for _ in range(size))
        mine, theirs = ours(digits), oracle.is_valid(digits)
        hits += mine
        assert mine == theirs or (stricter and not mine), digits
    assert hits > 10


def test_iban_agrees_with_the_oracle():
    for line in labelled("blind.jsonl") + labelled("labelled.jsonl"):
        for span in line["spans"]:
            if span["type"] == "IBAN":
                code = "".join(c for c in span["text"] if c.isalnum()).upper()
                assert checksums.iban(code) == stdnum.iban.is_valid(code, check_country=False)


FINDS = [
    ("call +90 532 123 45 67", "PHONE", "+90 532 123 45 67"),
    ("tel: 0532\u200e 123 45 67", "PHONE", "0532\u200e 123 45 67"),  # a bidi mark inside
    ("TC KİMLİK NO: 784 141 225 26", "ID", "784 141 225 26"),
    ("هويتي ١٠١٣٤٠٨٩١٧", "ID", "١٠١٣٤٠٨٩١٧"),
    ("kod nokta adres: ali nokta k et gmail nokta com", "EMAIL", "ali nokta k et gmail nokta com"),
    ("iban tr24 0001 0077 6266 8694 0944 78", "IBAN", "tr24 0001 0077 6266 8694 0944 78"),
    ("token hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8x", "SECRET", "hf_aB3dE5gH7jK9mN1pQ2rS4tU6vW8x"),
    ("db: postgres://app:s3cr3tPw@db.example.com/x", "SECRET", "s3cr3tPw"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "SECRET",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ),
]


@pytest.mark.parametrize(("text", "kind", "value"), FINDS)
def test_finds(text, kind, value):
    assert (kind, value) in [(s.type, text[s.start : s.end]) for s in scan(text, SETTINGS)]


QUIET = [
    "order 78414122526 has shipped",
    "x = f(1234567890) + 5321112233",
    "git clone git@github.com:acme/tool.git",
    "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxx goes here",
    "in 2019-2023 it grew by 12 000 000",
    "look at the dot on the map",
    "build 10.4.192.11 of the driver",
    "is 2566 laşe gekige perne isunraal exde comple worke",
]


@pytest.mark.parametrize("text", QUIET)
def test_stays_quiet(text):
    assert scan(text, SETTINGS) == []


def masked(messages, tools=""):
    row = Record("chat", messages, "", tools, "", empty_prompt=False)
    found, out = mask.record(row, SETTINGS, replace=True)
    again, _ = mask.record(out, SETTINGS, replace=False)
    assert again == []
    return found, out


def test_same_value_same_placeholder_in_a_conversation():
    _, out = masked(
        [
            {"role": "user", "content": "My phone is 0532 123 45 67, my wife's is 0533 987 65 43."},
            {"role": "assistant", "content": "I call +905321234567 then."},
        ]
    )
    assert out.messages[0]["content"] == "My phone is <PHONE_1>, my wife's is <PHONE_2>."
    assert out.messages[1]["content"] == "I call <PHONE_1> then."


def test_numbers_in_tool_arguments_stay_json():
    call = {
        "type": "function",
        "function": {"name": "f", "arguments": '{"phone":5321112233,"n":3}'},
    }
    _, out = masked(
        [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
    )
    arguments = json.loads(out.messages[1]["tool_calls"][0]["function"]["arguments"])
    assert arguments == {"phone": "<PHONE_1>", "n": 3}


def test_every_labelled_line_scans_clean_after_masking():
    for line in [line for name in ALL for line in labelled(name)]:
        masked([{"role": "user", "content": line["text"]}])


def test_own_terms():
    settings = Settings(terms=terms_pattern(["Gülşen Erdoğmuş", "# a comment", "مشروع النسر"]))
    text = "GÜLŞEN  ERDOĞMUŞ aradı; وعن مشروع النسر"
    assert [s.type for s in scan(text, settings)].count("TERM") == 2


def blocks(found, **given):
    return policy.blocks(found, **given) or ""


def test_policy():
    found = {"PHONE": 3}
    stay = {"data_region": "tr", "machine_region": "TR-1"}
    leave = {"data_region": "tr", "machine_region": "EU-RO-1"}
    assert blocks(found, scanned=True, masked=False, reviewed=False, **stay) == ""
    assert "3 finds" in blocks(found, scanned=True, masked=False, reviewed=False, **leave)
    assert blocks(found, scanned=True, masked=True, reviewed=False, **leave) == ""
    assert blocks(found, scanned=True, masked=False, reviewed=True, **leave) == ""
    assert "not scanned" in blocks({}, scanned=False, masked=False, reviewed=False, **leave)
    assert "keys" in blocks({"SECRET": 1}, scanned=True, masked=False, reviewed=False, **stay)
    assert (
        blocks(
            found,
            scanned=True,
            masked=False,
            reviewed=False,
            data_region="de",
            machine_region="EU-RO-1",
        )
        == ""
    )
