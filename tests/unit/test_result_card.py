"""What goes with a result beside the weights: card, picture, evaluation report."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from jobs.data.options import Options
from jobs.data.prepare import prepare
from jobs.spec import JobSpec
from orchestrator.artifacts.card import CardFacts, render
from orchestrator.artifacts.picture import loss_svg, smoothed
from orchestrator.redact import remember_secrets
from orchestrator.result_card import CARD, CURVE, EVALUATION, own_files

SVG = "{http://www.w3.org/2000/svg}"
FALLING = [(step, 6.0 * 0.97**step) for step in range(1, 101)]
HELD_OUT = [(20, 4.1), (40, 2.5), (60, 2.2), (80, 2.4), (100, 2.6)]
SECRET = "hf_sentinelsentinelsentinel"


def shapes(svg: str, kind: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(SVG + kind))


def test_the_picture_shows_both_curves_where_they_belong() -> None:
    svg = loss_svg(FALLING, HELD_OUT)
    lines = shapes(svg, "polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [100, 100, 5]
    assert len(shapes(svg, "circle")) == 5
    for line in lines:
        places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        assert all(64 <= x <= 740 and 44 <= y <= 334 for x, y in places)
        assert [x for x, _ in places] == sorted(x for x, _ in places)
    exact = [float(pair.split(",")[1]) for pair in lines[0].attrib["points"].split()]
    assert exact == sorted(exact)  # a loss that falls goes down, and down is a larger y
    words = [text.text for text in shapes(svg, "text")]
    assert {"0", "100", "6", "step", "training loss, smoothed", "evaluation loss"} <= set(words)


@pytest.mark.parametrize(
    ("training", "evaluation", "lines"),
    [
        ([], [], 0),
        ([(1, 2.0)], [], 0),
        ([(1, float("nan")), (2, 1.0)], [], 0),
        ([(1, 2.0), (2, 2.0)], [], 1),  # a flat one has an axis all the same
        ([(1, 1e-9), (2, 3e12)], [], 1),
        ([], [(1, 2.0), (9, 1.0)], 1),
        ([(step, 1.0) for step in range(1, 40)], [], 1),
    ],
)
def test_curves_of_every_kind(training, evaluation, lines) -> None:
    svg = loss_svg(training, evaluation)
    assert bool(svg) == bool(lines)
    assert not svg or len(shapes(svg, "polyline")) == lines
    assert "nan" not in svg
    assert "inf" not in svg


def test_the_smoothed_line_begins_where_the_curve_does() -> None:
    first, *_, last = smoothed([(1, 5.0), *((step, 1.0) for step in range(2, 200))])
    assert first == (1, 5.0)
    assert last[1] == pytest.approx(1.0, abs=1e-3)


def test_the_hub_reads_the_header() -> None:
    """By the hub's own library: front matter that it takes, and an evaluation that it finds."""
    from huggingface_hub import ModelCard

    facts = CardFacts("tone: x", "acme/base", "lora", evaluations=HELD_OUT, curve="loss.svg")
    card: Any = ModelCard(render(facts))
    assert card.data.base_model == "acme/base"
    assert card.data.to_dict()["library_name"] == "peft"
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("loss", 2.2)
    assert "| 60 (best) | 2.2000 | 9.03 |" in card.text
    assert "![Loss by step](loss.svg)" in card.text


def test_many_evaluations_make_a_short_table_with_the_best_and_the_last() -> None:
    many = [(step, 3.0 if step != 333 else 1.0) for step in range(1, 1001)]
    rows = re.findall(r"^\| [\d,]+(?: \(best\))? \| ", render(
        CardFacts("n", "b", "lora", evaluations=many)
    ), re.MULTILINE)  # fmt: skip
    assert "| 333 (best) | " in rows
    assert "| 1,000 | " in rows
    assert len(rows) <= 16


def metrics(steps: range) -> str:
    lines: list[dict[str, Any]] = []
    for step in steps:
        lines.append({"event": "log", "step": step, "loss": 5.0 / step, "at": float(step)})
        if step % 20 == 0:
            held_out = abs(step - 40) / 40 + 1
            lines.append({"event": "evaluate", "step": step, "eval_loss": held_out})
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def made(tmp_path: Path) -> dict[str, bytes]:
    """Return the files of a job of two attempts, whose data went through the gate."""
    raw = tmp_path / "secret-folder" / "talks.jsonl"
    raw.parent.mkdir()
    said = [f"tell me about {n % 40}" for n in range(50)]
    records = [{"instruction": one, "input": "", "output": one[::-1]} for one in said]
    raw.write_text("".join(json.dumps(record) + "\n" for record in records))
    out = tmp_path / "prepared"
    prepare([raw], out, Options(shape="alpaca", validation=0.1, near=False), processes=1)
    held = out / "validation.jsonl"
    spec = JobSpec.model_validate({
        "name": "tone", "model": str(tmp_path / "models" / "tiny"), "method": "lora",
        "data": {"train": out / "train.jsonl", "format": "alpaca", "validation": held},
    })  # fmt: skip
    for number, steps in ((1, range(1, 31)), (2, range(21, 61))):
        (tmp_path / f"log-{number}-metrics.jsonl").write_text(metrics(steps))
    view = SimpleNamespace(
        attempts=[SimpleNamespace(gpu="L40S", gpu_count=2, price_is_notional=False)],
        cost_usd=Decimal("1.239"),
    )
    machine = SimpleNamespace(versions={"axolotl": "0.21.0", "x": SECRET})
    remember_secrets([SECRET])
    home = SimpleNamespace(log_path=lambda _, number, name: tmp_path / f"log-{number}-{name}")
    return dict(
        own_files(
            cast("Any", SimpleNamespace(job_id="abc123", attempt=2)),
            spec,
            cast("Any", SimpleNamespace(axolotl=machine)),
            store=cast("Any", SimpleNamespace(job=lambda *_, **__: view)),
            home=cast("Any", home),
            now=0.0,
        )
    )


def test_a_result_tells_its_making_and_no_place_or_secret(made, tmp_path) -> None:
    assert set(made) == {CARD, CURVE, EVALUATION}
    for data in made.values():
        assert str(tmp_path).encode() not in data
        assert SECRET.encode() not in data
        assert b"secret-folder" not in data
    text = made[CARD].decode()
    for words in (
        "A lora adapter of tiny", "on 2x L40S", "$1.24", "| talks.jsonl |  | `", "| train.jsonl | ",
        "| records read | 50 |", "| exact copies | 10 |", "| lora\\_targets | all-linear |",
        "| optimizer steps | 60 |", "| evaluation loss, best | 1 |", "| 40 (best) | 1.0000 |",
    ):  # fmt: skip
        assert words in text, words


def test_a_resumed_training_is_one_curve(made) -> None:
    report = json.loads(made[EVALUATION])
    assert [one["step"] for one in report["evaluations"]] == [20, 40, 60]
    assert report["best"] == {"step": 40, "eval_loss": 1.0}
    assert report["last"]["step"] == 60
    (line, smooth, held) = shapes(made[CURVE].decode(), "polyline")
    assert len(line.attrib["points"].split()) == 60  # step 21 to 30 count once
    assert len(smooth.attrib["points"].split()) == 60
    assert len(held.attrib["points"].split()) == 3
