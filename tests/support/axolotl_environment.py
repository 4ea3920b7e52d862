"""Build Axolotl's environment as an instance would, and print its folder as the last line.

    python -m tests.support.axolotl_environment

The one that `gpujob submit` builds in the default home: quickstart and tests share it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from orchestrator.axolotl_env import AxolotlEnv, EnvReady, network_of
from orchestrator.compose_site import ENVIRONMENTS
from orchestrator.remote import Shell
from orchestrator.settings import Settings
from orchestrator.site import SiteRefused
from tests.support.local_shell import LocalShell


def main() -> int:
    """Return 0 once it is there; progress goes to stderr."""
    settings = Settings()
    given = settings.axolotl_env
    root = settings.home / ENVIRONMENTS
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = AxolotlEnv(
            cast("Shell", LocalShell()),
            folder,
            str(root),
            "tests",
            given=str(given) if given else None,
            variant="cpu",
            network=network_of(os.environ),
        )
        try:
            while not isinstance(found := environment.ensure(), EnvReady):
                mega = found.downloaded_bytes / 1e6
                sys.stderr.write(
                    f"  {found.seconds:4.0f} s  {found.step}  {found.done} of {found.of} packages, "
                    f"{mega:,.0f} MB\n"
                )
                time.sleep(10)
        except SiteRefused as refused:
            sys.stderr.write(f"{refused}\n")
            return 1
    print(Path(found.axolotl).parent.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
