"""Run gpujob's command line and break it on purpose, with the user's secrets in the error's text.

GPUJOB_TEST_CRASH_AT=POINT raises there, once. GPUJOB_TEST_PLANT=environment | redact | argv breaks
one protection of gpujob itself: the test must then find the leak.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from orchestrator import points

_seen: Counter[str] = Counter()


def hook(name: str) -> None:
    """Raise at the point named, as a library would that tells what it was given."""
    _seen[name] += 1
    if f"{name}#{_seen[name]}" == os.environ.get("GPUJOB_TEST_CRASH_AT"):
        from orchestrator.locate import environment

        known = environment(os.environ, Path.cwd())
        words = [
            known[name].partition("://me:")[2].partition("@")[0] or known[name]
            for name in os.environ["GPUJOB_TEST_SECRETS"].split()
        ]
        encoded = [base64.b64encode(f"{'x' * at}{word}y".encode()).decode() for word in words
                   for at in range(3)]  # fmt: skip
        raise RuntimeError(
            " | ".join([*words, *encoded, *(quote(word, safe="") for word in words)])
        )


def plant(which: str) -> None:
    """Break one protection."""
    if which == "environment":
        from providers import local_launch

        local_launch.PASSED_ON |= {"HF_TOKEN"}
    if which == "redact":
        from orchestrator import complaint, redact

        redact.redact = lambda text: text
        _ = complaint
    if which == "argv":
        from orchestrator import compose_site

        right = compose_site.compose_run

        def wrong(*given, **named):
            import dataclasses

            made = right(*given, **named)
            return dataclasses.replace(made, argv=(*made.argv, os.environ["HF_TOKEN"]))

        compose_site.compose_run = wrong


if __name__ == "__main__":
    from orchestrator.__main__ import main

    points.install(hook)
    plant(os.environ.get("GPUJOB_TEST_PLANT", ""))
    main()
