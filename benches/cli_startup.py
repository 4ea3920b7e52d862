"""Print the CPU time (user + system) of short commands: `gpujob --help`, `ps --json`, `ps`.

    python benches/cli_startup.py [runs]

Each command is a process of its own on a home with 50 jobs; the median and the best of the runs are
printed beside the promise. Byte code is compiled beforehand, as an installed package has it.
"""

from __future__ import annotations

import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("--help",), 0.30),
    (("ps", "--json"), 0.60),
    (("ps",), 0.75),
    (("status", "job-7"), 0.75),
    (("cost", "--json"), 0.75),
)


def cpu_s(argv: list[str], environ: dict[str, str]) -> float:
    """Return user + system seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=environ, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def fill(home: Path) -> None:
    """Make a home with 50 closed jobs."""
    sys.path.insert(0, str(ROOT))
    from orchestrator.home import open_home
    from orchestrator.store import Store
    from tests.support.filled_store import ENDING, Filler

    opened = open_home(home)
    store = Store.open(opened.database_url)
    filler = Filler(store)
    for number in range(50):
        filler.job(f"job-{number}", *ENDING, "asked", "gone", "closed")
    store.close()


def main() -> None:
    """Print one line a command."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for room in ("orchestrator", "providers", "jobs"):
        compileall.compile_dir(str(ROOT / room), quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        fill(home)
        environ = {**os.environ, "GPUJOB_HOME": str(home), "GPUJOB_SWEEP": "off"}
        print(f"CPU seconds, {runs} runs, 50 jobs          median   best   promise")
        bare = [cpu_s([sys.executable, "-c", "pass"], environ) for _ in range(runs)]
        print(f"{'bare python':<38} {statistics.median(bare):6.3f} {min(bare):6.3f}")
        for words, promise in COMMANDS:
            argv = [sys.executable, "-m", "orchestrator", *words]
            taken = [cpu_s(argv, environ) for _ in range(runs)]
            line = f"{'gpujob ' + ' '.join(words):<38}"
            print(f"{line} {statistics.median(taken):6.3f} {min(taken):6.3f}   {promise:.2f}")


if __name__ == "__main__":
    main()
