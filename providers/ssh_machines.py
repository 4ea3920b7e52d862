"""`machines.yaml`: the machines that a person rented by hand, each with its typed price card.

    machines:
      - name: yellow
        host: 203.0.113.7
        user: root
        key: ~/.ssh/id_ed25519
        price: {file: price-cards/cloudrux.yaml, gpu: L40S}

A wrong file is InvalidRequest: it names the file, the line, the key and what to write instead.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from providers import gpus
from providers.errors import InvalidRequest

CPU = "CPU"  # the `gpu` of a machine without one
MICRO = Decimal("0.000001")
MAX_BYTES = 1 << 20  # of a file: a list of machines is small
HOST_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/=]+)")
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Words = Annotated[str, Field(min_length=1)]
STRICT = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False)


class PriceCard(BaseModel):
    """What one GPU with its share of the machine costs an hour, as its owner read it somewhere.

    price_per_hour: net of VAT. vat_rate: 0.20 for 20 %; 0 where none is charged or it comes back.
    usd_per_unit: US dollars for one unit of another currency. date: when the price was read.
    """

    model_config = STRICT

    gpu: Words
    vram_gib: float | None = Field(None, gt=0, le=100_000)
    price_per_hour: Decimal = Field(ge=0, le=100_000)
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    vat_rate: Decimal = Field(ge=0, lt=1)
    billing_step_s: float = Field(gt=0, le=31 * 86_400)
    region: Words
    source: Words
    date: dt.date
    usd_per_unit: Decimal | None = Field(None, gt=0)

    @field_validator("gpu")
    @classmethod
    def _known(cls, value: str) -> str:
        known = CPU if value.upper() == CPU else gpus.canonical(value)
        if known is None:
            raise ValueError(f"no such GPU; there are: {CPU}, {', '.join(gpus.GPUS)}")
        return known

    @model_validator(mode="after")
    def _priced_in_dollars(self) -> PriceCard:
        if self.currency != "USD" and self.usd_per_unit is None:
            raise ValueError(f"usd_per_unit is missing: US dollars for 1 {self.currency}")
        return self

    @property
    def usd_per_hour(self) -> Decimal:
        """Return what leaves the account for one GPU: VAT included, rounded up to micro-dollars."""
        rate = self.usd_per_unit if self.usd_per_unit is not None else Decimal(1)
        return (self.price_per_hour * (1 + self.vat_rate) * rate).quantize(MICRO, ROUND_UP)

    @property
    def vram(self) -> float:
        """Return GiB of one GPU: as typed, else as sold; 0 for a CPU."""
        facts = gpus.lookup(self.gpu)
        if facts is None:
            return 0.0
        return self.vram_gib or facts.vram_gib


class Machine(BaseModel):
    """One machine. host_key: its OpenSSH line or SHA256 fingerprint; None: asked about once.

    folder: on the machine, absolute or below the login's home; all that gpujob leaves lies there.
    axolotl_env: a ready environment there. teardown_command, check_command: run on THIS computer
    by `sh -c`; check_command ends with 0 when the machine is gone, and with 1 while it is not.
    """

    model_config = STRICT

    name: Name
    host: str = Field(pattern=r"^[A-Za-z0-9:._%-]+$")
    port: int = Field(22, ge=1, le=65_535)
    user: str = Field("root", pattern=r"^[A-Za-z_][A-Za-z0-9._-]{0,63}$")
    key: Path
    host_key: str | None = None
    gpus: int = Field(1, ge=1, le=64)
    folder: str = Field("gpujob", pattern=r"^[A-Za-z0-9/._-]+$")
    axolotl_env: str | None = None
    keep_environment: bool = False
    price: PriceCard
    teardown_command: Words | None = None
    check_command: Words | None = None

    @field_validator("host_key")
    @classmethod
    def _a_key(cls, value: str | None) -> str | None:
        if value is None or FINGERPRINT.fullmatch(value):
            return value
        line = HOST_KEY.match(value)
        if line is None:
            raise ValueError("give a line as in ssh_host_ed25519_key.pub, or SHA256:...")
        return f"{line[1]} {line[2]}"

    @field_validator("key")
    @classmethod
    def _a_file(cls, value: Path) -> Path:
        path = value.expanduser()
        if not path.is_file():
            raise ValueError(f"no file {path}: give the path of your private key")
        return path.absolute()

    @field_validator("folder")
    @classmethod
    def _ours_alone(cls, value: str) -> str:
        parts = [part for part in value.split("/") if part]
        if not parts or ".." in parts or "." in parts:
            raise ValueError("give a folder of its own: it is emptied at the end")
        return value.rstrip("/")


class _File(BaseModel):
    model_config = STRICT

    machines: tuple[Machine, ...] = ()

    @model_validator(mode="after")
    def _one_name_each(self) -> _File:
        names = [machine.name for machine in self.machines]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two machines are named {name}")
        return self


def read_machines(path: Path) -> dict[str, Machine]:
    """Return the machines of the file by name; none where there is no file. InvalidRequest."""
    if not path.exists():
        return {}
    document, lines = _document(path)
    listed = document.get("machines")
    if isinstance(listed, list):
        document = {**document, "machines": [_with_card(one, path) for one in listed]}
    try:
        found = _File.model_validate(document)
    except ValidationError as error:
        raise InvalidRequest(_words(path, lines, error)) from None
    return {machine.name: machine for machine in found.machines}


def _with_card(machine: Any, path: Path) -> Any:
    """Return the machine with its price looked up, where that names a file of cards."""
    price = machine.get("price") if isinstance(machine, Mapping) else None
    if not isinstance(price, Mapping) or "file" not in price:
        return machine
    own = {key: value for key, value in price.items() if key not in {"file", "gpu"}}
    name = Path(str(price["file"])).expanduser()
    file = name if name.is_absolute() else path.parent / name
    return {**machine, "price": {**_card(file, str(price.get("gpu", ""))), **own}}


def _card(file: Path, gpu: str) -> dict[str, Any]:
    """Return the card of that GPU, with what the file says of all its cards."""
    if not file.is_file():
        raise InvalidRequest(f"{file}: no such file of price cards")
    document, _ = _document(file)
    cards = document.get("cards")
    if not isinstance(cards, list) or not all(isinstance(card, Mapping) for card in cards):
        raise InvalidRequest(f"{file}: cards: a list of {{gpu, price_per_hour, ...}} is missing")
    common = {key: value for key, value in document.items() if key not in {"cards", "provider"}}
    wanted = gpus.canonical(gpu)
    for card in cards:
        if wanted is not None and gpus.canonical(str(card.get("gpu"))) == wanted:
            return {**common, **card}
    known = ", ".join(str(card.get("gpu")) for card in cards)
    raise InvalidRequest(f"{file}: no card for price.gpu {gpu!r}; there are: {known}")


def _document(path: Path) -> tuple[dict[str, Any], Mapping[tuple[Any, ...], int]]:
    """Return a YAML file's mapping, and the line of each of its keys."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidRequest(f"{path}: larger than {MAX_BYTES:,} bytes: is it the right file?")
        text = path.read_text(encoding="utf-8")
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not a text file in UTF-8") from error
    except ValueError as error:  # YAML's own: 2026-13-45
        raise InvalidRequest(f"{path}: {error}: write a date as YYYY-MM-DD") from error
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        said = getattr(error, "problem", None) or type(error).__name__
        raise InvalidRequest(f"{path}{line}: not YAML: {said}") from error
    if document is None:
        return {}, {}
    if not isinstance(document, dict):
        raise InvalidRequest(f"{path}: a mapping is expected, such as `machines:` and a list")
    lines: dict[tuple[Any, ...], int] = {}
    _note_lines(tree, (), lines, 0)
    return document, lines


def _note_lines(
    node: Any, at: tuple[Any, ...], lines: dict[tuple[Any, ...], int], deep: int
) -> None:
    if node is None or deep > 20:
        return
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            lines[(*at, key.value)] = key.start_mark.line + 1
            _note_lines(value, (*at, key.value), lines, deep + 1)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _note_lines(value, (*at, number), lines, deep + 1)


def _words(path: Path, lines: Mapping[tuple[Any, ...], int], error: ValidationError) -> str:
    said = []
    for one in error.errors(include_input=False, include_url=False)[:5]:
        at = tuple(one["loc"])
        while at and at not in lines:
            at = at[:-1]
        line = f" line {lines[at]}" if at in lines else ""
        name = ".".join(str(part) for part in one["loc"])
        text = str(one["msg"]).removeprefix("Value error, ")
        text = {"missing": "is missing", "extra_forbidden": "unknown key"}.get(one["type"], text)
        said.append(f"{path}{line}: {name}: {text}" if name else f"{path}{line}: {text}")
    return "\n".join(said)
