"""What the live screen draws, read from a metrics file that grows."""

from __future__ import annotations

import json

from orchestrator.curve import CurveReader
from orchestrator.figures import Figures


def _write(path, *entries):
    with path.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def _step(number, **more):
    return {"event": "log", "at": 100.0 + 2 * number, "step": number, "max_steps": 9, **more}


def test_a_missing_file_is_an_empty_curve(tmp_path):
    curve = CurveReader(tmp_path / "none").read()
    assert (curve.points, curve.losses, curve.gpu_util_percent) == ((), (), None)


def test_it_grows_with_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    reader = CurveReader(path)
    _write(path, _step(1, loss=3.0))
    assert reader.read().points == ((102.0, 1),)
    _write(path, _step(2, loss=2.0))
    curve = reader.read()
    assert curve.points == ((102.0, 1), (104.0, 2))
    assert curve.losses == (3.0, 2.0)
    assert reader.read() == curve  # nothing new, nothing twice


def test_gpus_are_put_together(tmp_path):
    path = tmp_path / "metrics.jsonl"
    cards = [
        {"util_percent": 90.0, "memory_used_mib": 1024.0, "memory_total_mib": 2048.0},
        {"util_percent": 80.0, "memory_used_mib": 2048.0, "memory_total_mib": 2048.0},
    ]
    _write(path, {"event": "gpu", "at": 1.0, "gpus": cards})
    curve = CurveReader(path).read()
    assert (curve.gpu_util_percent, curve.gpu_used_gib, curve.gpu_total_gib) == (85.0, 3.0, 4.0)


def test_a_cpu_has_a_throughput_too(tmp_path):
    path = tmp_path / "metrics.jsonl"
    _write(path, _step(1, loss=3.0, **{"tokens/train_per_sec_per_gpu": 15.0}))
    found = Figures(gpu_count=0).read(path, tmp_path / "train.log", 0.0)
    assert found is not None
    assert found.tokens_per_s == 15.0
