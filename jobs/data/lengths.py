"""How long records are in tokens: estimated by script, or counted by the model's tokenizer."""

from array import array
from dataclasses import dataclass, field
from typing import Any

from .records import Record

#: Tokens a chat template adds to each turn, where it cannot be rendered here (ChatML: 5 to 8).
TURN_TOKENS = 8
#: Candidate sequence lengths of the advice table.
CANDIDATES = (512, 1024, 2048, 4096, 8192)
#: The recommendation: at most this share of rows over, at most this share of answer tokens lost.
MAX_ROWS_OVER, MAX_TOKENS_LOST = 0.01, 0.02
#: Axolotl's own floor (min_sample_len): shorter rows are dropped by it.
MIN_SAMPLE_TOKENS = 2
#: The estimate's band, from five tokenizers on prose in three languages.
ESTIMATE_BAND = 0.25


#: Tokens of one record: whole, before the first answer, of the answers.
Length = tuple[int, int, int]


def estimate(text: str) -> int:
    """Return the tokens of a text, estimated by its script, on the safe (high) side.

    chars/5 for plain ASCII, chars/2.5 for Turkish and other Latin with marks and for Arabic,
    chars/1.3 for scripts of three bytes a letter. A stray mark in English text does not switch.
    """
    size = len(text)
    if text.isascii():
        return size // 5 + 1
    extra = len(text.encode("utf-8", "replace")) - size
    if extra * 66 < size:  # under 1.5 % of the letters
        return size // 5 + extra + 1
    if extra > size * 1.4:
        return int(size / 1.3) + 1
    return int(size / 2.5) + 1


def estimate_record(record: Record) -> Length:
    """Return the estimated length of a record, template included."""
    if record.messages is None:
        tokens = estimate(record.text)
        return tokens, 0, tokens
    total = prompt = answer = 0
    first = True
    for message in record.messages:
        tokens = estimate(message["content"]) + TURN_TOKENS
        if "tool_calls" in message:
            tokens += sum(estimate(c["function"]["arguments"]) + 8 for c in message["tool_calls"])
        if message["role"] == "assistant":
            if first:
                prompt = total + TURN_TOKENS // 2
                first = False
            answer += tokens - TURN_TOKENS // 2
        total += tokens
    if record.tools:
        tokens = estimate(record.tools)
        total, prompt = total + tokens, prompt + tokens
    return total, prompt, answer


@dataclass(slots=True)
class Lengths:
    """The lengths of a set: three numbers a record, 12 bytes each.

    memory: sequence_len -> GiB that the job's training takes on one GPU; empty: no model is known.
    """

    how: str = "estimate"
    total: Any = field(default_factory=lambda: array("I"))
    prompt: Any = field(default_factory=lambda: array("I"))
    answer: Any = field(default_factory=lambda: array("I"))
    memory: dict[int, float] = field(default_factory=dict)

    def extend(self, other: "Lengths") -> None:
        """Take in the lengths of another part of the set."""
        self.total.extend(other.total)
        self.prompt.extend(other.prompt)
        self.answer.extend(other.answer)

    def percentiles(self) -> dict[str, int]:
        """Return min, p50, p90, p95, p99, max of the whole lengths; empty for no records."""
        if not self.total:
            return {}
        ordered = sorted(self.total)
        last = len(ordered) - 1
        at = {f"p{p}": ordered[min(last, int(last * p / 100 + 0.5))] for p in (50, 90, 95, 99)}
        return {"min": ordered[0], **at, "max": ordered[-1]}

    def row(self, size: int) -> dict[str, Any]:
        """Return what a sequence_len costs: rows over, tokens lost, rows with nothing to learn."""
        over = lost = nothing = dropped_answer = used = 0
        for total, prompt, answer in zip(self.total, self.prompt, self.answer, strict=True):
            if total > size:
                over += 1
                lost += total - size
                dropped_answer += answer - max(0, min(answer, size - prompt))
                nothing += prompt >= size
                used += size
            else:
                used += total
        rows = len(self.total)
        sequences = packed(self.total, size)
        return {
            "sequence_len": size,
            "rows_over": over,
            "rows_over_share": round(over / rows, 4) if rows else 0.0,
            "tokens_lost_if_truncated": lost,
            "answer_tokens_lost_if_truncated": dropped_answer,
            "rows_lost_if_dropped": over,
            "rows_with_nothing_to_learn": nothing,
            "packed_sequences": sequences,
            "packing_efficiency": round(used / (sequences * size), 4) if sequences else 0.0,
            "padding_share_unpacked": round(1 - used / (rows * size), 4) if rows else 0.0,
            "tokens_computed": sequences * size,
            "activation_memory_vs_2048": round(size / 2048, 3),
            "memory_gib": self.memory.get(size),
        }

    def table(self, chosen: int = 0) -> list[dict[str, Any]]:
        """Return the rows of the advice table, the chosen length among them.

        `price_vs_recommended`: tokens computed (packed, padding included) over those at the
        recommended length. Time and price go with them; attention over longer texts is on top.
        """
        sizes = sorted({*CANDIDATES, chosen} - {0})
        rows = [self.row(size) for size in sizes]
        best = self.advice()[0]
        base = self.row(best)["tokens_computed"] if best else 0
        for row in rows:
            row["price_vs_recommended"] = round(row["tokens_computed"] / base, 3) if base else None
        return rows

    def advice(self) -> tuple[int, str]:
        """Return (the smallest good power of two, why); 0 for no records.

        Good: at most 1 % of the rows over it and at most 2 % of the answer tokens lost.
        """
        if not self.total:
            return 0, "no records"
        answers = sum(self.answer) or 1
        size = 256
        while size < 1 << 20:
            row = self.row(size)
            if (
                row["rows_over_share"] <= MAX_ROWS_OVER
                and row["answer_tokens_lost_if_truncated"] <= answers * MAX_TOKENS_LOST
            ):
                return size, (
                    f"{row['rows_over']:,} of {len(self.total):,} rows are longer; "
                    f"{row['answer_tokens_lost_if_truncated'] / answers:.1%} of the answer tokens "
                    "would be lost"
                )
            size *= 2
        return size, "records longer than any usual context"

    def outliers(self) -> list[int]:
        """Return the indexes of up to 20 records longer than four times the 99th percentile."""
        marks = self.percentiles()
        if not marks or marks["max"] <= 4 * marks["p99"]:
            return []
        return [i for i, total in enumerate(self.total) if total > 4 * marks["p99"]][:20]

    def as_dict(self, chosen: int = 0) -> dict[str, Any]:
        """Return the figures for --json."""
        size, why = self.advice()
        return {
            "how": self.how,
            "band": ESTIMATE_BAND if self.how.startswith("estimate") else 0.0,
            "records": len(self.total),
            "total_tokens": sum(self.total),
            "trainable_tokens": sum(self.answer),
            "percentiles": self.percentiles(),
            "recommended_sequence_len": size,
            "why": why,
            "table": self.table(chosen),
        }


def packed(totals: Any, size: int) -> int:
    """Return the sequences that first-fit packing of the rows would fill, by a fair approximation.

    Rows over `size` count as one sequence each; the rest fills bins to 97 %, which is what
    first-fit-decreasing reaches on mixed lengths.
    """
    full = rest = 0
    for total in totals:
        if total >= size:
            full += 1
        else:
            rest += total
    return full + (int(rest / (size * 0.97)) + 1 if rest else 0)
