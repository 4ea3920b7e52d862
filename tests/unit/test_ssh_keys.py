"""A job's key: made once, for us alone, good for OpenSSH, gone with the job."""

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.remote import Target
from orchestrator.ssh_keys import job_key, openssh_argv, remove_job_key
from providers.base import HostKey


def test_a_key_is_made_once(tmp_path: Path) -> None:
    key = job_key(tmp_path, "3f2a00")
    assert key.file.stat().st_mode & 0o777 == 0o600
    assert key.file.parent.stat().st_mode & 0o777 == 0o700
    assert key.public_line.startswith("ssh-ed25519 AAAA")
    assert key.public_line.endswith(" gpujob-3f2a00")
    assert "\n" not in key.public_line
    assert job_key(tmp_path, "3f2a00") == key
    assert job_key(tmp_path, "3f2a01").public_line != key.public_line
    assert not list(tmp_path.rglob("*.part"))


def test_a_lost_public_file_is_made_again(tmp_path: Path) -> None:
    key = job_key(tmp_path, "3f2a00")
    (key.file.parent / "id_ed25519.pub").unlink()
    assert job_key(tmp_path, "3f2a00") == key
    assert (key.file.parent / "id_ed25519.pub").read_text() == key.public_line + "\n"


def test_removal_takes_all_and_can_be_repeated(tmp_path: Path) -> None:
    key = job_key(tmp_path, "3f2a00")
    remove_job_key(tmp_path, "3f2a00")
    assert not key.file.parent.exists()
    remove_job_key(tmp_path, "3f2a00")


@pytest.mark.parametrize("job", ["", "..", "a/b", "a b"])
def test_only_ids_name_a_folder(tmp_path: Path, job: str) -> None:
    with pytest.raises(ValueError, match="job id"):
        job_key(tmp_path, job)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs openssh-client")
def test_openssh_takes_it(tmp_path: Path) -> None:
    key = job_key(tmp_path, "3f2a00")
    said = subprocess.run(
        ["ssh-keygen", "-y", "-f", key.file], capture_output=True, text=True, check=True
    )
    assert said.stdout.split()[:2] == key.public_line.split()[:2]


def test_the_systems_ssh_is_pinned_too(tmp_path: Path) -> None:
    known = tmp_path / "known hosts"
    target = Target("10.0.0.1", 2222, "root", tmp_path / "key", HostKey("ssh-ed25519", "AAAA"))
    argv = openssh_argv(target, known)
    assert argv[-1] == "root@10.0.0.1"
    assert known.read_text() == "[10.0.0.1]:2222 ssh-ed25519 AAAA\n"
    assert "StrictHostKeyChecking=yes" in argv
    assert f'UserKnownHostsFile="{known}"' in argv
    unknown = Target("h", 22, "u", tmp_path / "key", None)
    assert "StrictHostKeyChecking=accept-new" in openssh_argv(unknown, known)
