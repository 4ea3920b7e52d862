"""Axolotl's side of gpujob: a plugin that writes what the trainer knows to metrics.jsonl.

One JSON object a line: train_begin, log, evaluate, save, train_end, with the step, the steps in
all and the time. Floats are exact; NaN and infinities are the strings "nan", "inf", "-inf". Nothing
here may ever end a training: whatever goes wrong is said once in the log.
"""
# mypy: ignore-errors

import json
import math
import os
import sys
import time

from axolotl.integrations.base import BasePlugin
from transformers import TrainerCallback


class GpujobPlugin(BasePlugin):
    """Adds the callback."""

    def add_callbacks_pre_trainer(self, cfg, model):
        """Return the callbacks for Axolotl to add."""
        folder = os.environ.get("GPUJOB_FOLDER")
        return [GpujobCallback(os.path.join(folder, "metrics.jsonl"))] if folder else []


class GpujobCallback(TrainerCallback):
    """Writes the events of the trainer's main process."""

    def __init__(self, path):
        self.path = path
        self.silent = False

    def on_train_begin(self, args, state, control, **kwargs):
        """Called once, when the number of steps is known."""
        self.write(state, {"event": "train_begin", "fp16": bool(getattr(args, "fp16", False))})

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Called with every record; the last one has train_runtime."""
        figures = dict(logs or {})
        kind = "evaluate" if any(name.startswith("eval_") for name in figures) else "log"
        self.write(state, dict(figures, event=kind))

    def on_save(self, args, state, control, **kwargs):
        """Called when a checkpoint is complete on disk."""
        self.write(state, {"event": "save"})

    def on_train_end(self, args, state, control, **kwargs):
        """Called when the last step is done; the final weights are saved after it."""
        self.write(state, {"event": "train_end"})

    def write(self, state, event):
        """Append one line with one write; never raises."""
        try:
            if not state.is_world_process_zero:
                return
            event = {str(key): plain(value) for key, value in event.items()}
            event.update(at=time.time(), step=state.global_step, max_steps=state.max_steps)
            line = json.dumps(event, allow_nan=False) + "\n"
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)
        except Exception as error:  # noqa: BLE001 - see the head
            if not self.silent:
                self.silent = True
                print("gpujob: metrics are lost:", error, file=sys.stderr, flush=True)


def plain(value):
    """Return a value that strict JSON can hold."""
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)[:200]
    return number if math.isfinite(number) else str(number)
