"""What the user chose; one frozen value that travels to the worker processes."""

from dataclasses import dataclass
from typing import Any, Literal

HELD_OUT = 0.05  # share of records, where nobody chose
LongRule = Literal["drop", "truncate"]


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of the gate. Lengths are in tokens where not said otherwise."""

    format: str = ""  # "text": a text column counts, whatever stands beside it; "" = recognise
    shape: str = ""  # what is written: "" = messages or text; else the columns of alpaca or pairs
    columns: tuple[tuple[str, str], ...] = ()  # (ours, theirs)
    roles: tuple[tuple[str, str], ...] = ()  # (theirs, ours)
    encoding: str = "utf-8"
    to: str = ""  # "chat": mixed kinds become messages; "chosen": preference pairs too
    fix: bool = False
    skip_bad_lines: bool = False
    sequence_len: int = 0  # 0 = not chosen
    long: LongRule = "drop"  # Axolotl's own default for rows over sequence_len
    alternation: bool = False  # the template demands user and assistant in turn
    tokenizer: str = ""  # folder with tokenizer.json
    chat_template: str = ""  # a name of templates.BUILT_IN, a file, or "" = the tokenizer's
    with_lengths: bool = True
    with_pii: bool = True
    with_names: bool = True
    pii_regions: tuple[str, ...] = ("TR", "SA", "AE", "EG", "US", "GB")
    pii_terms: tuple[str, ...] = ()
    pii_keep: tuple[str, ...] = ()
    mask: bool = False
    exact: bool = True  # leave exact duplicates out
    near: bool = True  # leave near duplicates out
    near_threshold: float = 0.6
    min_response_chars: int = 0
    group: str = ""  # column whose equal values stay on one side of the split
    validation: float | None = None  # share held out, 0 = none; None: the job file's, else HELD_OUT
    seed: int = 42
    max_findings: int = 1000  # kept per code and file; the rest is counted

    @property
    def held_out(self) -> float:
        """Return the share of records to hold out; 0 for none."""
        return HELD_OUT if self.validation is None else self.validation

    def settings(self) -> dict[str, Any]:
        """Return the choices that shape the output, for the manifest and for resuming."""
        keys = [
            "format",
            "shape",
            "columns",
            "roles",
            "encoding",
            "to",
            "fix",
            "skip_bad_lines",
            "sequence_len",
            "long",
            "tokenizer",
            "chat_template",
            "with_names",
            "pii_regions",
            "pii_keep",
            "mask",
            "exact",
            "near",
            "near_threshold",
            "min_response_chars",
            "group",
            "validation",
            "seed",
        ]
        return {key: getattr(self, key) for key in keys} | {"pii_terms": len(self.pii_terms)}
