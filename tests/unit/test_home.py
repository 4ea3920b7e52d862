"""GPUJOB_HOME: private, local, writable."""

import os
import stat
from pathlib import Path

import pytest

from orchestrator import home as home_module
from orchestrator.home import (
    NETWORK_FILE_SYSTEMS,
    HomeRefused,
    open_home,
    owner8,
    owner_of,
    refuse_network_file_system,
)
from orchestrator.store import Store
from orchestrator.store_quick import open_quick


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_is_private(tmp_path):
    home = open_home(tmp_path / "new" / "home")
    assert mode(home.root) == 0o700
    assert mode(home.job_folder("abc123")) == 0o700
    assert home.log_path("abc123", 2) == home.root / "jobs/abc123/attempt-2/train.log"
    assert home.key_path("abc123").parent == home.job_folder("abc123")
    assert home.database_url == f"sqlite:///{home.root}/gpujob.db"


def test_an_open_home_is_closed_to_others(tmp_path):
    tmp_path.chmod(0o755)
    open_home(tmp_path)
    assert mode(tmp_path) == 0o700


def test_the_owner_is_made_once(tmp_path):
    home = open_home(tmp_path)
    owner = owner_of(home, None)
    assert len(owner) == 32
    assert owner_of(home, None) == owner
    assert mode(home.root / "owner") == 0o600
    assert owner_of(home, "me@here") == "me@here"
    assert owner8("me@here") == owner8("me@here") != owner8(owner)
    assert len(owner8(owner)) == 8


def test_an_empty_owner_file_is_not_replaced(tmp_path):
    home = open_home(tmp_path)
    (tmp_path / "owner").touch()
    with pytest.raises(HomeRefused, match="owner is empty"):
        owner_of(home, None)


@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused_in_words(kind, tmp_path):
    mounts = [("/", "ext4"), (str(tmp_path), kind), ("/elsewhere", "ext4")]
    with pytest.raises(HomeRefused, match="set GPUJOB_HOME to a folder on a local disk"):
        refuse_network_file_system(tmp_path / "a" / "b", mounts)


def test_the_longest_mount_point_decides(tmp_path):
    inner = tmp_path / "local"
    mounts = [(str(inner), "ext4"), ("/", "nfs4"), (str(tmp_path), "nfs")]
    refuse_network_file_system(inner / "home", mounts)
    with pytest.raises(HomeRefused, match="nfs at"):
        refuse_network_file_system(tmp_path / "locality", mounts)


def test_a_later_mount_covers_an_earlier_one(tmp_path):
    with pytest.raises(HomeRefused):
        refuse_network_file_system(tmp_path, [(str(tmp_path), "ext4"), (str(tmp_path), "cifs")])


def test_a_symlink_to_the_network_is_followed(tmp_path):
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "share")
    with pytest.raises(HomeRefused):
        refuse_network_file_system(tmp_path / "link", [(str(tmp_path / "share"), "fuse.sshfs")])


def test_mount_points_with_spaces_are_understood():
    assert home_module._unescape(r"/mnt/my\040disk") == "/mnt/my disk"


def test_this_machine_says_what_is_mounted():
    assert any(point == "/" for point, _ in home_module._mounts())


def test_a_folder_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root, as in CI, may write anywhere
    with pytest.raises(HomeRefused, match="not writable; set GPUJOB_HOME"):
        open_home(tmp_path / "x")


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HomeRefused, match="set GPUJOB_HOME"):
        open_home(tmp_path / "file")


@pytest.mark.parametrize("name", ["what?", "50%", "a%20b?c=d", "plus+hash#", "at@:colon"])
def test_a_path_may_hold_what_means_something_in_a_url(tmp_path, name):
    home = open_home(tmp_path / name)
    store = Store.open(home.database_url)
    assert store.new_job_id()
    store.close()
    assert (tmp_path / name / "gpujob.db").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    quick = open_quick(home.database_url)
    assert quick is not None
    quick.close()
