"""A trainer that behaves like Axolotl from the outside, in a second and without torch.

Standard library only and Python 3.8, so that it runs wherever the agent does. It takes Axolotl's
command line (`train CONFIG --launcher python`), prints what Axolotl prints, writes the plugin's
metrics and a finite adapter, and so passes the agent's own success check. What it does wrong is
chosen by switches: a JSON object in the environment variable GPUJOB_STUB, else in `stub.json`
beside the executable.

switch                default   meaning
steps                 config's max_steps, else 20
seconds_per_step      0.01
startup_s             0         before the first line
log_bytes_per_step    0         filler beside the ordinary lines: NUL, 0xff, ANSI, no newline
save_steps            0         every so many steps a checkpoint; the newest one is gone on from
save_takes_s          0         so long before a checkpoint is there
hold_at_step          0         stays there for ever, unless it was gone on from a checkpoint
metrics               true      write metrics.jsonl as the plugin does
adapter_bytes         4096      size of each of the adapter's two tensors
children              0         so many children that outlive it, every second in its own session
ignore_term           false     ignore SIGTERM
fail                  null      one of FAILURES
fail_at_step          half of the steps
"""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

FAILURES = {
    # a traceback with this last line, rc 1:
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB.",
    "disk_full": "OSError: [Errno 28] No space left on device",
    "data_missing": "ValueError: The dataset could not be loaded. This could be due to a"
    " misconfigured dataset path (data/nope.jsonl).",
    "error": "RuntimeError: something nobody foresaw",
    # rc 0, and yet no success:
    "nan": "",  # NaN gradient, loss filtered to 0, NaN adapter, the final line
    "nan_adapter": "",  # all looks well, the adapter is NaN
    "partial": "",  # stops in the middle, rc 0, a partial adapter
    "no_final_line": "",
    "no_adapter": "",
    # signals:
    "killed": "",  # SIGKILL by itself
    "hang": "",  # makes no more progress, for ever
}
LAYER = "base_model.model.model.layers.0.self_attn.q_proj.lora_"


def main(argv):
    """Train, or pretend to; the exit status is Axolotl's."""
    if len(argv) < 2 or argv[0] != "train":
        print("usage: stub_trainer.py train CONFIG [--launcher python]", file=sys.stderr)
        return 2
    return Run(Path(argv[1]).read_text(encoding="utf-8"), read_switches()).run()


def read_switches():
    """Return the switches in force."""
    beside = Path(sys.argv[0]).resolve().parent / "stub.json"
    text = os.environ.get("GPUJOB_STUB", "")
    if not text and beside.exists():
        text = beside.read_text(encoding="utf-8")
    return json.loads(text or "{}")


def setting(config, key, default):
    """Return a top-level scalar of the YAML text; good enough for what gpujob derives."""
    for line in config.splitlines():
        name, colon, value = line.partition(":")
        if colon and name == key:
            return value.strip().strip("'\"") or default
    return default


class Run:
    """One pretended training."""

    def __init__(self, config, switches):
        self.switches = switches
        self.out = Path(setting(config, "output_dir", "out"))
        self.full = setting(config, "adapter", "") in ("", "null", "none")
        self.steps = int(switches.get("steps") or setting(config, "max_steps", 20))
        self.fail = switches.get("fail")
        self.fail_at = int(switches.get("fail_at_step") or max(1, self.steps // 2))
        if self.fail is not None and self.fail not in FAILURES:
            raise SystemExit(f"stub: unknown failure {self.fail!r}")
        self.metrics_path = Path(os.environ.get("GPUJOB_FOLDER", ".")) / "metrics.jsonl"
        self.noise = random.Random(7)

    def run(self):
        """Return the exit status."""
        if self.switches.get("ignore_term"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for number in range(int(self.switches.get("children", 0))):
            sleeper = [sys.executable, "-c", "import time; time.sleep(600)  # stub child"]
            subprocess.Popen(sleeper, start_new_session=bool(number % 2))
        time.sleep(float(self.switches.get("startup_s", 0)))
        self.write("adapter_config.json", b'{"peft_type": "LORA", "r": 8}')
        self.write("tokenizer_config.json", b"{}")
        say("axolotl.utils.data.sft", "Loading raw datasets...")
        say("axolotl.train", "Starting trainer...")
        begin = self.resumed()
        self.record({"event": "train_begin", "step": begin})
        self.bar(begin)
        for step in range(begin + 1, self.steps + 1):
            time.sleep(float(self.switches.get("seconds_per_step", 0.01)))
            self.step(step)
            while step == int(self.switches.get("hold_at_step", 0)) and not begin:
                time.sleep(0.2)
            if self.fail and step == self.fail_at:
                status = self.break_down()
                if status is not None:
                    return status
        self.finish()
        return 0

    def step(self, step):
        """Log one step as Axolotl does: a dict of strings, then the bar."""
        bad = self.fail == "nan" and step >= self.fail_at
        loss = 0.0 if bad else 6.0 * 0.99**step + self.noise.random() / 100
        grad = "nan" if bad else 0.7
        filler = int(self.switches.get("log_bytes_per_step", 0))
        if filler:
            self.emit(b"\x00\xff\x1b[31m" + b"x" * filler)
        line = {"loss": f"{loss:.4g}", "grad_norm": str(grad), "learning_rate": "0.001"}
        line["epoch"] = f"{step / self.steps:.4g}"
        self.emit(f"\r{line}\n".encode())
        self.bar(step)
        exact = {"loss": loss, "grad_norm": grad, "learning_rate": 0.001, "tokens_per_s": 1000.0}
        self.record({"event": "log", "step": step, "epoch": step / self.steps, **exact})
        every = int(self.switches.get("save_steps", 0))
        asked = self.out / "axolotl_checkpoint.save"
        if (every and step % every == 0) or asked.exists():
            asked.unlink(missing_ok=True)
            time.sleep(float(self.switches.get("save_takes_s", 0)))
            place = f"checkpoint-{step}/"
            self.save_weights(place)
            self.write(place + "adapter_config.json", b'{"peft_type": "LORA", "r": 8}')
            self.write(place + "optimizer.pt", b"not read by anybody" * 100)
            self.write(place + "training_args.bin", b"a pickle")
            self.write(place + "trainer_state.json", json.dumps({"global_step": step}).encode())
            self.record({"event": "save", "step": step})

    def resumed(self):
        """Return the step of the newest checkpoint, as auto_resume_from_checkpoints finds it."""
        steps = [int(path.name.partition("-")[2]) for path in self.out.glob("checkpoint-*")]
        if not steps:
            return 0
        state = json.loads(
            (self.out / f"checkpoint-{max(steps)}" / "trainer_state.json").read_text()
        )
        return state["global_step"]

    def break_down(self):
        """Fail in the chosen way; None where the run goes on to its (false) end."""
        if self.fail == "hang":
            while True:
                time.sleep(60)
        if self.fail == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fail == "partial":
            self.save()
            return 0
        if FAILURES[self.fail]:
            frame = '  File "/venv/lib/python3.12/site-packages/axolotl/train.py", line 1, in train'
            print("\nTraceback (most recent call last):", frame, sep="\n", file=sys.stderr)
            print(FAILURES[self.fail], file=sys.stderr)
            return 1
        return None

    def finish(self):
        """Say and write what ends a training."""
        runtime = {"train_runtime": "2.7", "train_loss": "5.9", "epoch": "1"}
        self.emit(f"\r{runtime}\n".encode())
        self.bar(self.steps)
        self.emit(b"\n")
        exact = {"train_runtime": 2.7, "train_loss": 5.9}
        self.record({"event": "log", "step": self.steps, **exact})
        self.record({"event": "train_end", "step": self.steps})
        say("axolotl.train", f"Training completed! Saving trained model to {self.out}.")
        if self.fail != "no_adapter":
            self.save()
        if self.fail != "no_final_line":
            say("axolotl.train", f"Model successfully saved to {self.out}")

    def save(self):
        """Write all that a finished training leaves."""
        self.save_weights("")
        self.write("README.md", b"---\nbase_model: x\n---\na path: /home/user/job\n")
        self.write("config.json", b"{}")
        self.write("tokenizer.json", b"{}")
        self.write("debug.log", b"the whole log again\n")

    def save_weights(self, place):
        """Write the weights: an adapter, or a whole model where the config has no adapter."""
        values = max(4, int(self.switches.get("adapter_bytes", 4096)) // 4)
        number = float("nan") if self.fail in ("nan", "nan_adapter") else 0.01
        body = struct.pack("<f", number) * values
        names = [LAYER + "A.weight", LAYER + "B.weight"]
        if self.full:
            names = ["model.embed_tokens.weight"]
        header = {}
        for index, name in enumerate(names):
            offsets = [index * len(body), (index + 1) * len(body)]
            header[name] = {"dtype": "F32", "shape": [1, values], "data_offsets": offsets}
        head = json.dumps(header).encode()
        head += b" " * (-len(head) % 8)
        target = "model.safetensors" if self.full else "adapter_model.safetensors"
        self.write(place + target, struct.pack("<Q", len(head)) + head + body * len(names))

    def write(self, name, data):
        """Write a file below the output folder."""
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def bar(self, step):
        """Draw the bar as tqdm does where there is no terminal."""
        share = 100 * step // self.steps
        self.emit(f"\r{share:3d}%|##| {step}/{self.steps} [00:00<00:00,  7.35it/s]".encode())

    def emit(self, data):
        """Write raw bytes to the log."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def record(self, event):
        """Append one line to metrics.jsonl, as the plugin does."""
        if not self.switches.get("metrics", True):
            return
        line = json.dumps({**event, "at": time.time(), "max_steps": self.steps}) + "\n"
        fd = os.open(str(self.metrics_path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def say(who, text):
    """Print one of Axolotl's own log lines."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S") + ",000"
    print(f"[{stamp}] [INFO] [{who}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
