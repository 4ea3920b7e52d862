"""The plugin, with stand-ins for Axolotl's two base classes; the real ones are met in tests/e2e."""

from __future__ import annotations

import json
import sys
import types

import pytest

from orchestrator.agent.bundle import PLUGIN_CLASS, plugin_source
from orchestrator.agent.metrics import read_metrics


@pytest.fixture
def plugin(monkeypatch):
    base = types.ModuleType("axolotl.integrations.base")
    vars(base)["BasePlugin"] = type("BasePlugin", (), {})
    transformers = types.ModuleType("transformers")
    vars(transformers)["TrainerCallback"] = type("TrainerCallback", (), {})
    for name, module in {
        "axolotl": types.ModuleType("axolotl"),
        "axolotl.integrations": types.ModuleType("axolotl.integrations"),
        "axolotl.integrations.base": base,
        "transformers": transformers,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    module = types.ModuleType("gpujob_plugin")
    exec(compile(plugin_source(), "gpujob_plugin.py", "exec"), module.__dict__)
    return module


class State:
    is_world_process_zero = True
    global_step = 3
    max_steps = 20


class Args:
    fp16 = False


@pytest.fixture
def callback(plugin, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUJOB_FOLDER", str(tmp_path))
    (made,) = plugin.GpujobPlugin().add_callbacks_pre_trainer({}, None)
    return made


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def test_the_name_that_axolotl_is_given(plugin):
    module, name = PLUGIN_CLASS.split(".")
    assert module == "gpujob_plugin"
    assert hasattr(plugin, name)


def test_outside_an_attempt_it_does_nothing(plugin, monkeypatch):
    monkeypatch.delenv("GPUJOB_FOLDER", raising=False)
    assert plugin.GpujobPlugin().add_callbacks_pre_trainer({}, None) == []


def test_exact_floats_and_steps(callback, tmp_path):
    callback.on_train_begin(Args, State, None)
    callback.on_log(Args, State, None, logs={"loss": 0.1 + 0.2, "grad_norm": 1, "epoch": 0.5})
    callback.on_log(Args, State, None, logs={"eval_loss": 2.5})
    callback.on_save(Args, State, None)
    callback.on_train_end(Args, State, None)
    events = lines(tmp_path)
    assert [event["event"] for event in events] == [
        "train_begin", "log", "evaluate", "save", "train_end",
    ]  # fmt: skip
    assert events[1]["loss"] == 0.1 + 0.2
    assert all((event["step"], event["max_steps"]) == (3, 20) for event in events)
    assert all(isinstance(event["at"], float) for event in events)
    assert events[0]["fp16"] is False


def test_nan_and_infinities_are_strings_and_the_agent_sees_them(callback, tmp_path):
    logs = {"loss": float("nan"), "grad_norm": float("inf"), "other": float("-inf"), "x": object}
    callback.on_log(Args, State, None, logs=logs)
    (event,) = lines(tmp_path)
    assert (event["loss"], event["grad_norm"], event["other"]) == ("nan", "inf", "-inf")
    assert read_metrics(str(tmp_path / "metrics.jsonl")).bad_step == 3


def test_one_write_a_line(callback, monkeypatch):
    import os

    written = []

    def write(fd, data):
        written.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    callback.on_log(Args, State, None, logs={"loss": 1.0})
    assert len(written) == 1
    assert written[0].endswith(b"\n")


def test_only_the_main_process_writes(callback, tmp_path):
    class Other(State):
        is_world_process_zero = False

    callback.on_log(Args, Other, None, logs={"loss": 1.0})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_nothing_that_goes_wrong_ends_the_training(plugin, capsys):
    callback = plugin.GpujobCallback("/no/such/folder/metrics.jsonl")
    callback.on_log(Args, State, None, logs={"loss": 1.0})
    callback.on_log(Args, None, None, logs={"loss": 1.0})
    callback.on_train_begin(None, State, None)
    assert capsys.readouterr().err.count("metrics are lost") == 1
