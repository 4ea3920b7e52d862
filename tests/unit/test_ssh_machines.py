"""machines.yaml and price cards: what is wrong is named with its line, before anything."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from providers.errors import InvalidRequest
from providers.ssh_facts import offer_of
from providers.ssh_machines import Machine, read_machines

CARD = (
    "{gpu: L40S, price_per_hour: 1.36, currency: USD, vat_rate: 0.2, billing_step_s: 3600,"
    " region: TR, source: my invoice, date: 2026-11-30}"
)
MACHINE = """machines:
  - name: yellow
    host: 203.0.113.7
    key: KEY
    price: CARD
"""


def write(folder: Path, text: str = MACHINE, card: str = CARD) -> Path:
    key = folder / "id_ed25519"
    key.write_text("a key")
    file = folder / "machines.yaml"
    file.write_text(text.replace("KEY", str(key)).replace("CARD", card))
    return file


def one(folder: Path, text: str = MACHINE, card: str = CARD) -> Machine:
    (machine,) = read_machines(write(folder, text, card)).values()
    return machine


def test_no_file_no_machines(tmp_path):
    assert read_machines(tmp_path / "machines.yaml") == {}
    (tmp_path / "empty").write_text("")
    assert read_machines(tmp_path / "empty") == {}


def test_the_price_is_what_leaves_the_account(tmp_path):
    offer = offer_of(one(tmp_path))
    assert (offer.gpu, offer.vram_gib, offer.region) == ("L40S", 48.0, "TR")
    assert offer.price_usd_per_hour == Decimal("1.632000")  # VAT included
    assert offer.billing_step_s == 3600
    two = offer_of(one(tmp_path, MACHINE + "    gpus: 2\n"))
    assert (two.price_usd_per_hour, two.gpu_count) == (Decimal("3.264000"), 2)


def test_another_currency_takes_its_rate(tmp_path):
    lira = CARD.replace("USD", "TRY").replace("1.36", "60")
    with pytest.raises(InvalidRequest, match="usd_per_unit is missing"):
        one(tmp_path, card=lira)
    card = lira.replace("}", ", usd_per_unit: 0.0235}")
    assert offer_of(one(tmp_path, card=card)).price_usd_per_hour == Decimal("1.692000")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (" date: 2026-11-30", "", "line 5: machines.0.price.date: is missing"),
        (" currency: USD,", "", "line 5: machines.0.price.currency: is missing"),
        (" vat_rate: 0.2,", "", "machines.0.price.vat_rate: is missing"),
        (" source: my invoice,", "", "machines.0.price.source: is missing"),
        (" billing_step_s: 3600,", "", "machines.0.price.billing_step_s: is missing"),
        ("date: 2026-11-30", "date: yesterday", "machines.0.price.date: "),
        ("date: 2026-11-30", "date: 2026-13-45", "write a date as YYYY-MM-DD"),
        ("1.36", "-1", "machines.0.price.price_per_hour: "),
        ("1.36", ".nan", "machines.0.price.price_per_hour: "),
        ("1.36", "dear", "machines.0.price.price_per_hour: "),
        ("USD", "dollars", "machines.0.price.currency: "),
        ("L40S", "L41", "no such GPU; there are: CPU, T4"),
        ("name: yellow", "nom: yellow", "line 2: machines.0.nom: unknown key"),
        ("203.0.113.7", "203.0.113.7; rm -rf /", "line 3: machines.0.host: "),
        ("key: KEY", "key: /no/such/key", "line 4: machines.0.key: no file /no/such/key"),
        ("    price", "    port: 70000\n    price", "line 5: machines.0.port: "),
        ("    price", "    host_key: nonsense\n    price", "give a line as in ssh_host"),
        ("    price", "    folder: /\n    price", "give a folder of its own"),
        ("    price", "    folder: a/../../b\n    price", "give a folder of its own"),
        ("    price", "    folder: a b\n    price", "line 5: machines.0.folder: "),
        ("machines:", "machines: [", "not YAML"),
        ("    key: KEY\n", "", "line 2: machines.0.key: is missing"),
    ],
)
def test_bad_input_names_line_and_key(tmp_path, old, new, said):
    assert old in MACHINE + CARD
    text, card = MACHINE.replace(old, new), CARD.replace(old, new)
    with pytest.raises(InvalidRequest) as refused:
        one(tmp_path, text, card)
    assert said in str(refused.value)
    assert str(tmp_path / "machines.yaml") in str(refused.value)


def test_a_list_alone_is_no_such_file(tmp_path):
    with pytest.raises(InvalidRequest, match="a mapping is expected"):
        read_machines(write(tmp_path, "- machines\n"))


def test_a_name_stands_for_one_machine(tmp_path):
    with pytest.raises(InvalidRequest, match="two machines are named yellow"):
        read_machines(write(tmp_path, MACHINE + MACHINE.partition("\n")[2]))


@pytest.mark.parametrize("content", [b"\xff\xfe\0", b"\0" * 100, b"a: b: c", b"x" * (2 << 20)])
def test_what_is_no_such_file_is_refused_in_words(tmp_path, content):
    file = tmp_path / "machines.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest, match=str(file)):
        read_machines(file)


def test_a_card_is_taken_from_a_file(tmp_path):
    cards = """provider: acme
currency: USD
vat_rate: 0.2
billing_step_s: 60
region: TR
source: their page
date: 2026-11-30
cards:
  - {gpu: L4, price_per_hour: 0.74}
  - {gpu: A100-80GB, vram_gib: 80, price_per_hour: 2.24}
"""
    (tmp_path / "cards.yaml").write_text(cards)
    machine = one(tmp_path, card="{file: cards.yaml, gpu: A100 SXM}")
    assert machine.price.price_per_hour == Decimal("2.24")
    own = one(tmp_path, card="{file: cards.yaml, gpu: L4, vat_rate: 0}")
    assert own.price.usd_per_hour == Decimal("0.740000")
    with pytest.raises(InvalidRequest, match="there are: L4, A100-80GB"):
        one(tmp_path, card="{file: cards.yaml, gpu: H100}")
    with pytest.raises(InvalidRequest, match="no such file of price cards"):
        one(tmp_path, card="{file: other.yaml, gpu: L4}")


def test_the_cards_that_come_along(tmp_path):
    cards = Path(__file__).parents[2] / "examples" / "price-cards" / "cloudrux.yaml"
    wanted = {
        "L4": (24, "0.74"), "RTX4090": (24, "1.11"), "A40": (48, "0.74"), "L40S": (48, "1.36"),
        "RTX PRO 6000": (96, "3.11"), "A100-80GB": (80, "2.24"), "H100-80GB": (80, "4.99"),
        "H200": (141, "6.61"), "B200": (180, "9.99"),
    }  # fmt: skip
    for gpu, (vram, price) in wanted.items():
        card = one(tmp_path, card=f"{{file: {cards}, gpu: {gpu}}}").price
        assert (card.vram, card.price_per_hour) == (vram, Decimal(price))
        assert card.currency == "USD"
