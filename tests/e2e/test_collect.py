"""A result brought home over a real SSH server."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.artifacts.collect import Result, collect
from orchestrator.artifacts.manifest import ArtifactsMissing, ArtifactsRefused
from orchestrator.paramiko_shell import ParamikoShell
from orchestrator.remote import ShellError
from tests.support.results import manifest_of, write_adapter
from tests.support.sshd import Sshd

pytestmark = [pytest.mark.e2e, pytest.mark.system("openssh-server")]

RESULT = Result("3f2a00", adapter=True, base_model="acme/base", own=lambda _: {"README.md": b"5"})
TAKEN = {
    "adapter_model.safetensors",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "config.json",
}


def test_a_result_comes_home_whole(shell: ParamikoShell, tmp_path: Path) -> None:
    out, home = tmp_path / "far" / "out", tmp_path / "home" / "3f2a"
    write_adapter(out)
    steps: list[tuple[int, int]] = []
    got = collect(
        shell, str(out), home, manifest_of(out), RESULT, progress=lambda *step: steps.append(step)
    )
    assert got.folder == home
    assert {path for path, _, _ in got.files} == TAKEN | {"README.md"}
    assert {path.name for path in home.iterdir()} == TAKEN | {"README.md", "manifest.json"}
    assert not home.with_name("3f2a.part").exists()
    weights = "adapter_model.safetensors"
    assert (home / weights).read_bytes() == (out / weights).read_bytes()
    config = json.loads((home / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "acme/base"
    assert (home / "README.md").read_text() == "5"
    for path in home.iterdir():
        assert path.stat().st_mode & 0o777 == 0o644
        assert str(tmp_path) not in path.read_text(errors="replace"), path
    listed = manifest_of(home)["files"]
    there = [(file["path"], file["bytes"], file["sha256"]) for file in listed]
    assert [file for file in there if file[0] != "manifest.json"] == list(got.files)
    assert steps[-1][0] == steps[-1][1]


def test_collecting_twice_is_once(shell: ParamikoShell, tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "home"
    write_adapter(out)
    first = collect(shell, str(out), home, manifest_of(out), RESULT)
    inode = home.stat().st_ino
    assert collect(shell, str(out), home, manifest_of(out), RESULT) == first
    assert home.stat().st_ino == inode
    assert not (tmp_path / "home-2").exists()


def test_what_is_in_the_way_is_not_touched(shell: ParamikoShell, tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "home"
    write_adapter(out)
    home.mkdir()
    (home / "thesis.tex").write_text("precious")
    (tmp_path / "home-2").write_text("a file")
    got = collect(shell, str(out), home, manifest_of(out), RESULT)
    assert got.folder == tmp_path / "home-3"
    assert [path.name for path in home.iterdir()] == ["thesis.tex"]
    assert collect(shell, str(out), home, manifest_of(out), RESULT) == got
    damaged = got.folder / "adapter_model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert collect(shell, str(out), home, manifest_of(out), RESULT).folder.name == "home-4"


def test_an_empty_folder_is_used(shell: ParamikoShell, tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "home"
    write_adapter(out)
    home.mkdir()
    assert collect(shell, str(out), home, manifest_of(out), RESULT).folder == home


def test_a_cut_costs_nothing_but_time(server: Sshd, tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "home"
    write_adapter(out, values=4_000_000)
    document = manifest_of(out)
    starts: list[int] = []
    for _ in range(20):
        shell = server.shell()
        first = len(starts)

        def step(done: int, _: int, first: int = first) -> None:
            if len(starts) == first:
                starts.append(done)
            if done - starts[-1] > 9_000_000:
                server.cut()

        try:
            got = collect(shell, str(out), home, document, RESULT, progress=step)
        except ShellError:
            assert not home.exists()
            continue
        finally:
            shell.close()
        break
    assert got.folder == home
    assert len(starts) > 2
    assert max(starts) > 8_000_000, "it began anew instead of going on"


def test_a_finished_part_is_not_fetched_again(shell: ParamikoShell, tmp_path: Path) -> None:
    out, part = tmp_path / "out", tmp_path / "home.part"
    write_adapter(out)
    document = manifest_of(out)
    part.mkdir()
    weights = "adapter_model.safetensors"
    (part / weights).write_bytes((out / weights).read_bytes())
    (part / "stray").write_text("of an older run")
    (part / "model.safetensors.index.json").write_text("{}")
    (out / weights).unlink()
    got = collect(shell, str(out), tmp_path / "home", document, RESULT)
    assert {path.name for path in got.folder.iterdir()} == TAKEN | {"README.md", "manifest.json"}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(
    shell: ParamikoShell, tmp_path: Path, bad: float
) -> None:
    write_adapter(tmp_path / "out", bad=bad)
    document = manifest_of(tmp_path / "out")
    with pytest.raises(ArtifactsRefused, match="NaN or infinite"):
        collect(shell, str(tmp_path / "out"), tmp_path / "home", document, RESULT)
    assert not (tmp_path / "home").exists()


def test_damaged_weights_are_refused(shell: ParamikoShell, tmp_path: Path) -> None:
    write_adapter(tmp_path / "out")
    weights = tmp_path / "out" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(ArtifactsRefused, match="damaged"):
        collect(
            shell, str(tmp_path / "out"), tmp_path / "home", manifest_of(tmp_path / "out"), RESULT
        )


@pytest.mark.parametrize("lie", ["sha256", "fewer", "more"])
def test_a_manifest_that_lies_is_refused(shell: ParamikoShell, tmp_path: Path, lie: str) -> None:
    out = tmp_path / "out"
    write_adapter(out)
    document = manifest_of(out)
    entry = next(file for file in document["files"] if file["path"] == "adapter_model.safetensors")
    entry |= {
        "sha256": {"sha256": "0" * 64},
        "fewer": {"bytes": entry["bytes"] - 1},
        "more": {"bytes": entry["bytes"] + 1},
    }[lie]
    with pytest.raises(ArtifactsRefused, match="adapter_model"):
        collect(shell, str(out), tmp_path / "home", document, RESULT)
    assert not (tmp_path / "home").exists()


def test_a_symlink_in_place_of_a_file_is_refused(shell: ParamikoShell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_adapter(out)
    document = manifest_of(out)
    (out / "tokenizer.json").rename(tmp_path / "elsewhere")
    (out / "tokenizer.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactsRefused, match="symlink"):
        collect(shell, str(out), tmp_path / "home", document, RESULT)


def test_a_file_that_went_away_is_missing(shell: ParamikoShell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_adapter(out)
    document = manifest_of(out)
    (out / "tokenizer.json").unlink()
    with pytest.raises(ArtifactsMissing, match=r"tokenizer\.json"):
        collect(shell, str(out), tmp_path / "home", document, RESULT)


def test_a_disk_without_room_is_said_before_a_byte_moves(
    shell: ParamikoShell, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("{}")
    (tmp_path / "out" / "model.safetensors").write_bytes(b"x")
    document = manifest_of(tmp_path / "out")
    document["files"][1]["bytes"] = 1 << 40
    result = Result("3f2a00", adapter=False, base_model="b")
    with pytest.raises(OSError, match="free"):
        collect(shell, str(tmp_path / "out"), tmp_path / "home", document, result)
    assert not list((tmp_path / "home.part").iterdir())


def test_the_best_adapter_comes_beside_the_last(shell: ParamikoShell, tmp_path: Path) -> None:
    out, home = tmp_path / "far" / "out", tmp_path / "home"
    write_adapter(out)
    main = manifest_of(out)
    write_adapter(out / "checkpoint-20", values=500)
    (out / "checkpoint-20" / "trainer_state.json").write_text("{}")
    (out / "checkpoint-20" / "optimizer.pt").write_bytes(b"not wanted here")
    told: list[int | None] = []

    def own(step: int | None) -> dict[str, bytes]:
        told.append(step)
        return {"README.md": b"# it\n"}

    result = replace(RESULT, own=own, best_step=lambda: 20)

    def listed(step: int) -> object:
        return manifest_of(out / f"checkpoint-{step}")

    got = collect(shell, str(out), home, main, result, listed=listed)
    assert told == [20]
    weights = "adapter_model.safetensors"
    best = {path.name for path in (home / "best").iterdir()}
    assert best == {weights, "adapter_config.json"}
    assert (home / "best" / weights).read_bytes() == (out / "checkpoint-20" / weights).read_bytes()
    assert (home / weights).read_bytes() == (out / weights).read_bytes()
    config = json.loads((home / "best" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "acme/base"
    assert {f"best/{name}" for name in best} <= {path for path, _, _ in got.files}
    assert collect(shell, str(out), home, main, result, listed=listed) == got

    # A checkpoint that is gone, damaged or no number costs the best adapter, never the result.
    for number, broken in enumerate(("gone", "damaged", "nan")):
        if broken == "damaged":
            (out / "checkpoint-20" / weights).write_bytes(b"{}")
        if broken == "nan":
            write_adapter(out / "checkpoint-20", bad=float("nan"))
        there = None if broken == "gone" else listed(20)
        place = tmp_path / f"again{number}"
        collect(shell, str(out), place, main, result, listed={20: there}.get)
        assert told[-1] is None
        assert (place / weights).exists()
        assert not (place / "best").exists()
