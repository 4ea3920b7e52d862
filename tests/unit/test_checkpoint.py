"""Checkpoints at home: whole or not at all, the newest whole one found, older ones pruned."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.artifacts import checkpoint
from orchestrator.artifacts.manifest import (
    ArtifactsMissing,
    ArtifactsRefused,
    choose_checkpoint,
)
from orchestrator.remote import Shell
from tests.support.clocks import VirtualClock
from tests.support.local_shell import LocalShell


def weights(value: float = 0.5) -> bytes:
    body = struct.pack("<f", value) * 64
    names = [f"base_model.model.layers.0.q_proj.lora_{x}.weight" for x in "AB"]
    header = {
        name: {
            "dtype": "F32",
            "shape": [8, 8],
            "data_offsets": [i * len(body), (i + 1) * len(body)],
        }
        for i, name in enumerate(names)
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + body * 2


def far(folder: Path, *, value: float = 0.5) -> dict[str, Any]:
    """Make a checkpoint as the instance has it; returns its manifest."""
    files = {
        "adapter_model.safetensors": weights(value),
        "adapter_config.json": b"{}",
        "optimizer.pt": b"o" * 5000,
        "rng_state.pth": b"r",
        "trainer_state.json": b'{"global_step": 10}',
        "training_args.bin": b"pickle",
        "README.md": b"/home/somebody",
    }
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return {
        "files": [
            {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ]
    }


def bring(
    tmp_path: Path, step: int, manifest: Any, enough: Callable[[], bool] = lambda: False
) -> int:
    return checkpoint.bring(
        cast("Shell", LocalShell()), str(tmp_path / f"far-{step}"), tmp_path / "home", step,
        manifest, adapter=True, enough=enough,
    )  # fmt: skip


def test_it_comes_whole_and_without_what_is_not_needed(tmp_path: Path) -> None:
    size = bring(tmp_path, 10, far(tmp_path / "far-10"))
    home = tmp_path / "home"
    found = checkpoint.newest(home)
    assert found == home / "checkpoint-10"
    names = {path.name for path in checkpoint.files_of(found)}
    assert names == {
        "adapter_model.safetensors", "adapter_config.json", "optimizer.pt", "rng_state.pth",
        "trainer_state.json",
    }  # fmt: skip
    assert size == sum(path.stat().st_size for path in checkpoint.files_of(found))
    assert not list(home.glob("*.part"))


def test_a_call_that_had_enough_is_gone_on_from(tmp_path: Path) -> None:
    manifest = far(tmp_path / "far-10")
    with pytest.raises(checkpoint.NotYetWhole):
        bring(tmp_path, 10, manifest, enough=lambda: True)
    assert checkpoint.newest(tmp_path / "home") is None
    bring(tmp_path, 10, manifest)
    assert checkpoint.newest(tmp_path / "home") is not None


def test_moving_gets_as_much_time_as_the_hashing_before_it() -> None:
    clock = VirtualClock()
    quick = checkpoint.pace(clock, 5.0)
    assert not quick(), "the first bytes always move"
    clock.sleep(4.9)
    assert not quick()
    clock.sleep(0.2)
    assert quick()

    large = checkpoint.pace(clock, 5.0)
    clock.sleep(20.0)  # what lies here already is hashed
    assert not large()
    clock.sleep(19.0)
    assert not large()
    clock.sleep(1.5)
    assert large()


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "no manifest", "symlink"])
def test_a_broken_newest_falls_back_to_the_one_before(tmp_path: Path, harm: str) -> None:
    for step in (10, 20):
        bring(tmp_path, step, far(tmp_path / f"far-{step}"))
    home = tmp_path / "home"
    victim = home / "checkpoint-20" / "optimizer.pt"
    if harm == "cut":
        victim.write_bytes(victim.read_bytes()[:-1])
    elif harm == "changed":
        victim.write_bytes(b"x" * 5000)
    elif harm == "gone":
        victim.unlink()
    elif harm == "no manifest":
        (home / "checkpoint-20" / checkpoint.MANIFEST).unlink()
    else:
        target = home / "elsewhere"
        target.write_bytes(victim.read_bytes())
        victim.unlink()
        victim.symlink_to(target)
    assert checkpoint.newest(home) == home / "checkpoint-10"


def test_what_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactsRefused, match="NaN"):
        bring(tmp_path, 10, far(tmp_path / "far-10", value=float("nan")))
    assert checkpoint.newest(tmp_path / "home") is None


def test_prune_keeps_the_newest(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        bring(tmp_path, step, far(tmp_path / f"far-{step}"))
    home = tmp_path / "home"
    (home / "checkpoint-15.part").mkdir()
    (home / "checkpoint-40.part").mkdir()
    checkpoint.prune(home, 2)
    left = sorted(path.name for path in home.iterdir())
    assert left == ["checkpoint-20", "checkpoint-30", "checkpoint-40.part"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"path": "../x"}, ArtifactsRefused),
        ({"path": "/etc/passwd"}, ArtifactsRefused),
        ({"bytes": 1 << 60}, ArtifactsRefused),
        ({"bytes": -1}, ArtifactsRefused),
        ({"sha256": "0"}, ArtifactsRefused),
        ({"path": "other.json"}, ArtifactsMissing),
    ],
)
def test_what_a_hostile_instance_lists_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception]
) -> None:
    manifest = far(tmp_path / "far-10")
    for entry in manifest["files"]:
        if entry["path"] == "trainer_state.json":
            entry.update(change)
    with pytest.raises(error):
        choose_checkpoint(manifest, adapter=True)


def test_states_of_several_gpus_are_taken() -> None:
    digest = hashlib.sha256(b"").hexdigest()
    names = [
        "trainer_state.json", "model.safetensors", "config.json", "rng_state_3.pth", "latest",
        "global_step10/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "optimizer_0/__0_0.distcp", "optimizer_0/.metadata", "zero_to_fp32.py",
    ]  # fmt: skip
    listed = [{"path": name, "bytes": 1, "sha256": digest} for name in names]
    taken = {file.path for file in choose_checkpoint({"files": listed}, adapter=False).wanted}
    assert taken == set(names) - {"zero_to_fp32.py"}
