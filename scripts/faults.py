"""Run every fault against the simulated RunPod and print the fault table: `make faults [NAMES]`.

    python scripts/faults.py [NAMES]          run them, print the table as Markdown
    python scripts/faults.py --json [NAMES]   the same, and last of all one line of JSON
    python scripts/faults.py --told FILE      print the table of a campaign's document

Needs root on Linux (pods are namespaces) and openssh-server. Each row: exit code, create calls,
pods left alive, billed pod-seconds beyond a run without fault, and what two others did.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import fault_table  # noqa: E402 - after the path
from tests.support.faulty import Fault, Row, play, row_of, table  # noqa: E402


def measure(names: list[str]) -> list[Row]:
    """Return a row for each fault, all of them without names; one run without fault comes first."""
    chosen = [fault for fault in fault_table.ALL if not names or fault.name in names]
    unknown = set(names) - {fault.name for fault in chosen}
    if unknown:
        raise SystemExit(f"no fault is called {', '.join(sorted(unknown))}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="gpujob-faults-") as folder:
        base = play(Fault("none"), Path(folder) / "none")
        print(f"none: exit {base.code}, billed {base.billed_s:.1f} s", file=sys.stderr, flush=True)
        for fault in chosen:
            came = play(fault, Path(folder) / fault.name)
            row = row_of(fault, came, base.billed_s)
            rows.append(row)
            print(f"{fault.name}: {row}", file=sys.stderr, flush=True)
            if not row["held"]:
                print(came.text, file=sys.stderr, flush=True)
    return rows


def told(path: Path) -> list[Row]:
    """Return the rows in a campaign's document."""
    chunks = json.loads(path.read_text(encoding="utf-8"))["chunks"].values()
    return [row for chunk in chunks for row in chunk["told"]["rows"]]


def main() -> int:
    """Print the table; return 1 where a pod was left or an exit code did not tell the truth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--told", type=Path, help="the document of a campaign")
    options = parser.parse_args()
    rows = told(options.told) if options.told else measure(options.names)
    print(table(rows, fault_table.ALL))
    wrong = [row["fault"] for row in rows if not row["held"]]
    if wrong:
        print("WRONG: " + ", ".join(wrong))
    if options.json:
        left = sum(row["left"] for row in rows)
        print(json.dumps({"faults": len(rows), "left": left, "wrong": len(wrong), "rows": rows}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
