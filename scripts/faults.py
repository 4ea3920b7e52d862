"""Run every fault against the simulated RunPod and print the fault table: `make faults [NAMES]`.

Needs root on Linux (pods are namespaces) and openssh-server. Prints Markdown: exit code, create
calls, pods left alive, billed pod-seconds beyond a run without fault, and what two others did.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import fault_table  # noqa: E402 - after the path
from tests.support.faulty import Fault, Outcome, play, table  # noqa: E402


def main(names: list[str]) -> int:
    """Print the table; return 1 where a pod was left or an exit code did not tell the truth."""
    chosen = [fault for fault in fault_table.ALL if not names or fault.name in names]
    rows: list[tuple[Fault, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="gpujob-faults-") as folder:
        base = play(Fault("none"), Path(folder) / "none")
        for fault in chosen:
            came = play(fault, Path(folder) / fault.name)
            rows.append((fault, came))
            print(f"{fault.name}: exit {came.code}, left {came.left}", file=sys.stderr, flush=True)
    print(f"A run without fault: exit {base.code}, {base.billed_s:.1f} s billed.\n")
    print(table(rows, base.billed_s))
    wrong = [f.name for f, came in rows if came.left or came.code not in f.ends]
    if wrong:
        print("WRONG: " + ", ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
