"""What a machine delivered when nobody was there: fetched, checked, and put where it belongs."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from orchestrator.agent_answers import read_exit
from orchestrator.artifacts import checkpoint
from orchestrator.artifacts.collect import Result, collect
from orchestrator.artifacts.manifest import ArtifactsMissing, ArtifactsRefused
from orchestrator.artifacts.push import PushFault
from orchestrator.remote import Progress, RemoteFailed, Shell
from orchestrator.site import Kept, Rescued, SiteError, SiteRefused
from orchestrator.states import Reason


@dataclass(frozen=True, slots=True)
class Rescue:
    """Where one attempt's machine would deliver. fetch: brings it into a folder of this machine."""

    fetch: Callable[[Path], dict[str, Any]]
    folder: Path  # of the attempt, below the home; made and removed here
    checkpoints: Path
    token: str

    def take(self, output: Path, result: Result) -> Rescued | None:
        """Return what the machine delivered; None where it delivered nothing.

        Raises SiteError for what may pass, SiteRefused for what will not.
        """
        try:
            index = self.fetch(self.folder)
            if not index:
                return None
            ended = index.get("exit")
            if not isinstance(ended, dict) or ended.get("token") != self.token:
                raise SiteRefused(Reason.ARTIFACTS_REFUSED, "what was delivered is not this job's")
            report, shell = read_exit(ended), cast("Shell", _Folder())
            if index["step"] is None:
                if report.reason is not Reason.SUCCEEDED:
                    raise SiteRefused(Reason.ARTIFACTS_REFUSED, "a result of no finished training")
                home = collect(shell, str(self.folder), output, index, result)
                return Rescued(report, home, None)
            size = checkpoint.bring(
                shell, str(self.folder), self.checkpoints, index["step"], index,
                adapter=result.adapter, enough=lambda: False,
            )  # fmt: skip
            return Rescued(report, None, Kept(index["step"], size))
        except PushFault as fault:
            if fault.retry:
                raise SiteError(str(fault)) from fault
            raise SiteRefused(Reason.ARTIFACTS_FAILED, str(fault)) from fault
        except (ArtifactsRefused, ArtifactsMissing) as refused:
            raise SiteRefused(Reason.ARTIFACTS_REFUSED, str(refused)) from refused
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class _Folder:
    """A folder of this machine, as the collecting of results reads one of an instance."""

    def get(
        self, remote: str, local: Path, *, max_bytes: int, progress: Progress | None = None
    ) -> str:
        """Copy one file; see `Shell.get`."""
        source = Path(remote)
        if source.is_symlink() or not source.is_file() or source.stat().st_size > max_bytes:
            raise RemoteFailed(f"no such file: {source.name}", code="absent")
        shutil.copyfile(source, local)
        if progress is not None:
            progress(max_bytes, max_bytes)
        with local.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
