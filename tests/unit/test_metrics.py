"""Metrics from the plugin's lines and, without them, from Axolotl's own log."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.metrics import (
    CURVE_POINTS,
    Curve,
    GpuUse,
    LogMetricsReader,
    Metrics,
    MetricsReader,
    better,
)

RECORDS: list[dict[str, Any]] = [
    {"event": "train_begin", "at": 10.0, "step": 0, "max_steps": 20},
    {"event": "evaluate", "at": 11.0, "step": 0, "max_steps": 20, "eval_loss": 6.0710001},
    {
        "event": "log",
        "at": 12.0,
        "step": 1,
        "max_steps": 20,
        "loss": 6.0723,
        "grad_norm": 0.7,
        "learning_rate": 1e-3,
        "epoch": 0.03,
        "tokens/train_per_sec_per_gpu": 500.5,
    },
    {"event": "gpu", "at": 12.5, "gpus": [{"util_percent": 97.0, "memory_used_mib": 16000.0}]},
    {"event": "save", "at": 13.0, "step": 1, "max_steps": 20},
    {"event": "evaluate", "at": 14.0, "step": 1, "max_steps": 20, "eval_loss": 5.5},
    {"event": "log", "at": 15.0, "step": 2, "max_steps": 20, "loss": 5.9, "grad_norm": "nan"},
    {
        "event": "log",
        "at": 16.0,
        "step": 2,
        "max_steps": 20,
        "train_runtime": 2.7,
        "train_loss": 5.99,
    },
    {"event": "train_end", "at": 17.0, "step": 2, "max_steps": 20},
]
DATA = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


def test_the_newest_figures_are_exact() -> None:
    reader = MetricsReader(gpu_count=2)
    reader.feed(DATA)
    assert reader.latest == Metrics(
        step=2,
        max_steps=20,
        epoch=0.03,
        loss=5.9,
        eval_loss=5.5,
        best_eval_loss=5.5,
        best_eval_step=1,
        train_loss=5.99,
        train_runtime_s=2.7,
        grad_norm=None,
        learning_rate=1e-3,
        tokens_per_s=1001.0,
        at=17.0,
        step_at=15.0,
        saved_step=1,
        ended=True,
        diverged_at_step=2,
        gpus=(GpuUse(97.0, 16000.0, None, None, None),),
        gpus_at=12.5,
    )
    assert reader.curve.points == [(1, 6.0723), (2, 5.9)]


@settings(deadline=None)
@given(cuts=st.lists(st.integers(min_value=0, max_value=len(DATA))))
def test_any_split_gives_the_same(cuts: list[int]) -> None:
    places = sorted({*cuts, 0, len(DATA)})
    whole, split = MetricsReader(), MetricsReader()
    whole.feed(DATA)
    for start, end in itertools.pairwise(places):
        split.feed(DATA[start:end])
    assert split.latest == whole.latest


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_garbage_never_raises(data: bytes) -> None:
    for reader in (MetricsReader(), LogMetricsReader()):
        reader.feed(b"Starting trainer...\n" + data + b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60_000,
        b'{"event": "log", "step": 1' + b"0" * 5000 + b"}",
        b'{"event": "log", "step": true, "loss": {"a": 1}}',
        b'{"event": "log", "step": -5, "loss": 1e999}',
        b'{"event": "gpu", "gpus": [1, null, {"util_percent": "x"}]}',
        b'{"event": "gpu", "gpus": "all"}',
        b"null",
        b"\xff\xfe",
        b"x" * (1 << 20),
    ],
)
def test_odd_lines_are_skipped(line: bytes) -> None:
    reader = MetricsReader()
    reader.feed(line + b"\n" + DATA)
    assert reader.latest.step == 2
    assert reader.latest.train_loss == 5.99


def test_memory_is_bounded() -> None:
    reader = MetricsReader()
    for _ in range(40):
        reader.feed(b"x" * (1 << 18))
    assert len(reader._lines._rest) <= 1 << 16
    curve = Curve()
    for step in range(1, 100_000):
        curve.add(step, 1.0 / step)
    assert CURVE_POINTS // 4 < len(curve.points) <= CURVE_POINTS
    assert curve.points[0] == (1, 1.0)
    assert curve.points[-1][0] > 99_000


def test_a_resumed_training_goes_over_its_curve() -> None:
    curve = Curve()
    for step in (1, 2, 3, 4, 3, 4, 5):
        curve.add(step, float(step))
    assert [step for step, _ in curve.points] == [1, 2, 3, 4, 5]


def test_read_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader()
    assert reader.read(path) == Metrics()
    path.write_bytes(DATA[:300])
    reader.read(path)
    path.write_bytes(DATA)
    assert reader.read(path).train_loss == 5.99
    assert reader.curve.points == [(1, 6.0723), (2, 5.9)]


# A stretch of a real log (transformers 5): bars, erased bars and records share physical lines.
LOG = (
    b"Map: 100%|####| 64/64 [00:00<00:00, 9000 examples/s]\n"
    b"[2026-11-30 16:42:42,291] [INFO] [axolotl.train] Starting trainer...\n"
    b"\r  0%|          | 0/20 [00:00<?, ?it/s][2026-11-30] [INFO] Running evaluation step...\n"
    b"\r  0%|          | 0/4 [00:00<?, ?it/s]\n"
    b"\r100%|##########| 4/4 [00:00<00:00,  6.43it/s]\r                \r\n\r      \r"
    b"{'eval_loss': '6.071', 'eval_runtime': '0.8936', 'epoch': 0}\n"
    b"\r  5%|5         | 1/20 [00:01<00:28,  1.51s/it]\r            \r"
    b"{'loss': '6.072', 'grad_norm': '0.7261', 'learning_rate': '0.001', "
    b"'memory/max_active (GiB)': '0', 'tokens/train_per_sec_per_gpu': '71.28', 'epoch': '0.03'}\n"
    b"\r 10%|#         | 2/20 [00:01<00:13,  1.29it/s]\r   \r{'loss': nan, 'grad_norm': inf}\n"
    b"\r 15%|#         | 3/20 [00:01<00:13,  1.29it/s]\r   \r{'loss': 5.5, 'epoch': 0.09}\n"
)


def test_one_slow_step_does_not_make_the_tokens_a_second() -> None:
    reader = MetricsReader(gpu_count=2)
    for step, rate in enumerate([5.0, *[100.0] * 9, 50.0], 1):
        record = {"event": "log", "step": step, "tokens/train_per_sec_per_gpu": rate}
        reader.feed(json.dumps(record).encode() + b"\n")
    # The newest ten, the slow first step no longer among them: ten equal shares by their seconds.
    assert reader.latest.tokens_per_s == pytest.approx(2 * 10 / (9 / 100 + 1 / 50))
    reader.feed(b'{"event": "log", "step": 12, "tokens/train_per_sec_per_gpu": 0}\n')
    assert reader.latest.tokens_per_s == pytest.approx(2 * 10 / (9 / 100 + 1 / 50))


def test_the_log_gives_the_same_figures_in_fewer_digits() -> None:
    for cut in (1, 7, len(LOG)):
        reader = LogMetricsReader()
        for start in range(0, len(LOG), cut):
            reader.feed(LOG[start : start + cut])
        latest = reader.latest
        assert (latest.step, latest.max_steps) == (3, 20)
        assert (latest.loss, latest.eval_loss, latest.epoch) == (5.5, 6.071, 0.09)
        assert latest.tokens_per_s == 71.28
        assert latest.diverged_at_step == 2
        assert reader.curve.points == [(1, 6.072), (3, 5.5)]
        assert not latest.ended


def test_the_plugin_wins_over_the_log() -> None:
    gpu = (GpuUse(1.0, None, None, None, None),)
    assert better(Metrics(step=1), Metrics(step=2)).step == 1
    assert better(Metrics(gpus=gpu), Metrics(step=2)) == Metrics(step=2, gpus=gpu)


def test_both_agree_on_a_whole_run() -> None:
    noise = random.Random(3)
    lines, log = [RECORDS[0]], [LOG[: LOG.index(b"\r  0%")]]
    for step in range(1, 21):
        loss = round(6 * 0.9**step + noise.random(), 3)
        lines.append({"event": "log", "at": 1.0, "step": step, "max_steps": 20, "loss": loss})
        bar = b"\r 1%%|#| %d/20 [0<0, 1it/s]\r  \r" % step if step % 3 == 1 else b""  # throttled
        log.append(bar + b"{'loss': '%.4g'}\n" % loss)
    plugin, text = MetricsReader(), LogMetricsReader()
    plugin.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    text.feed(b"".join(log))
    assert text.latest.step == plugin.latest.step == 20
    assert text.curve.points == plugin.curve.points
