"""Keeps a machine's lease alive while this process holds a connection to it.

A machine that was asked to die with its client ends itself when the file `lease` in the attempt's
folder has not changed for the lease's length (providers/runpod_start.sh). It is written here, on
the connection that is there anyway, beside whatever call is under way: an environment's build or an
upload may take longer than a lease. A process that is stopped or dead renews nothing.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
from collections.abc import Callable

from orchestrator.remote import Shell, ShellError

RENEW_S = 20.0  # of one renewal, at the most
SHARE = 4.0  # it is renewed so many times in its length: three may fail


class Renewal:
    """Of one site: `begin` with each connection, `stop` when it is dropped."""

    def __init__(self, lease_s: float) -> None:
        self._every_s = lease_s / SHARE
        self._over: threading.Event | None = None

    def begin(self, shell: Shell, folder: Callable[[], str]) -> None:
        """Renew over this connection from now on, until it is stopped or dead."""
        self.stop()
        over = self._over = threading.Event()
        threading.Thread(
            target=self._renew, args=(shell, folder, over), name="lease", daemon=True
        ).start()

    def stop(self) -> None:
        """Renew no more."""
        if self._over is not None:
            self._over.set()

    def _renew(self, shell: Shell, folder: Callable[[], str], over: threading.Event) -> None:
        while not over.is_set():
            place = shlex.quote(folder())
            word = secrets.token_hex(6)  # any change counts
            line = f"cd {place} 2>/dev/null && echo {word} >lease.new && mv -f lease.new lease"
            with contextlib.suppress(ShellError):  # the next one may pass; the site sees the rest
                shell.run(line, timeout_s=RENEW_S)
            over.wait(self._every_s)
