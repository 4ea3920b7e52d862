"""Named points before and after every journal write and every provider call. FOR TESTS ONLY.

A kill test installs a hook and ends the process at the n-th point, or at a named one (the harness
reads `GPUJOB_TEST_KILL_AT` itself); the simulation raises there, or lets another process run. In
production nothing is installed, and a point costs one comparison.

Names: `journal.before:<Event>`, `journal.after:<Event>`, `provider.before:<verb>`,
`provider.after:<verb>`, `site.before:<call>`, `site.after:<call>`. No transaction is open at any.
"""

from __future__ import annotations

from collections.abc import Callable

Hook = Callable[[str], None]
_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Set the hook of this process; None removes it."""
    global _hook  # noqa: PLW0603 - one process, one hook: it stands for what may happen to a process
    _hook = hook


def reach(name: str) -> None:
    """Tell the hook, if there is one, that the process has come to this point."""
    if _hook is not None:
        _hook(name)
