"""The long campaigns: run in chunks, remembered, written to docs/evidence/ as JSON.

    python scripts/prove.py                  all campaigns; what is done for this commit is skipped
    python scripts/prove.py sim kills        only these
    python scripts/prove.py --list           what there is, and how far each is
    python scripts/prove.py --minutes 20     stop after so long; the next call goes on

A campaign is a list of chunks, each one command. A finished chunk is remembered for the commit it
ran on, in docs/evidence/.progress/ (not committed), so a run may be cut at any moment. The document
of a campaign is written when its last chunk is done: what was run, on what, and what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
PROGRESS = EVIDENCE / ".progress"
PY = sys.executable
TAIL_LINES = 15  # of a failed chunk's output: enough to see why
PACKAGES = ("asyncssh", "paramiko", "pydantic", "pytest", "sqlalchemy")
ELSEWHERE = ("test_kill_points", "test_runpod_deaths", "test_runpod_crowd", "test_runpod_faults")
LAYER_NAMES = ("none", "L0", "L1", "L2", "L3", "L4", "L5", "L7")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One command. Its result: the JSON on its last line, or what pytest counted."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Campaign:
    """claim: the sentence that it proves."""

    claim: str
    chunks: Callable[[], Iterator[Chunk]]


def sim_chunks(seeds: int = 10_000, portion: int = 250) -> Iterator[Chunk]:
    """Yield the worlds of the simulation, in portions."""
    for first in range(1, seeds + 1, portion):
        argv = (PY, "-m", "tests.sim", "--first", str(first), "--seeds", str(portion), "--json")
        yield Chunk(f"seeds {first}-{first + portion - 1}", argv)


def layer_chunks(seeds: int = 1000) -> Iterator[Chunk]:
    """Yield each layer switched off."""
    for name in LAYER_NAMES:
        yield Chunk(name, (PY, "-m", "tests.sim", "--layer", name, "--seeds", str(seeds), "--json"))


def bug_chunks() -> Iterator[Chunk]:
    """Yield the table of planted bugs."""
    yield Chunk("all bugs", (PY, "-m", "tests.sim", "--bugs", "--seeds", "40", "--json"))


def pytest_chunks(
    path: str, size: int = 4, *, marked: str = "", at_once: int = 1
) -> Iterator[Chunk]:
    """Yield the tests of a file or folder, a few at a time.

    marked: pytest's -m; without it those of the gate and those marked `prove`. at_once: workers,
    for tests that mostly wait.
    """
    done = subprocess.run(
        [PY, "-m", "pytest", path, "--collect-only", "-q", "-m", marked, "-p", "no:randomly"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    if not ids:
        raise SystemExit(f"no test found in {path}:\n{done.stdout}{done.stderr}")
    workers = ("-n", str(at_once)) if at_once > 1 else ()
    for start in range(0, len(ids), size):
        some = ids[start : start + size]
        argv = (PY, "-m", "pytest", "-q", "-m", marked, "-p", "no:randomly", *workers, *some)
        yield Chunk(f"{path} {start + 1}-{start + len(some)}", argv)


def slow_chunks() -> Iterator[Chunk]:
    """Yield the tests that the gate leaves out, but for those that are a campaign of their own."""
    for chunk in pytest_chunks("tests", marked="prove"):
        argv = tuple(word for word in chunk.argv if not any(name in word for name in ELSEWHERE))
        if any("::" in word for word in argv):
            yield Chunk(chunk.name, argv)


def fault_chunks(size: int = 6) -> Iterator[Chunk]:
    """Yield the faults of the simulated RunPod, some at a time, each lot with a run without one."""
    sys.path.insert(0, str(ROOT))
    from tests.support.fault_table import ALL

    names = [fault.name for fault in ALL]
    for start in range(0, len(names), size):
        some = names[start : start + size]
        yield Chunk(f"{some[0]} to {some[-1]}", (PY, "scripts/faults.py", "--json", *some))


def axolotl_env() -> str:
    """Return the folder of Axolotl's environment, built if need be: some tests train for real."""
    given = os.environ.get("GPUJOB_TEST_AXOLOTL_ENV")
    if given:
        return given
    build = [PY, "-m", "tests.support.axolotl_environment"]
    done = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def rounds_chunks(rounds: int = 50, portion: int = 5) -> Iterator[Chunk]:
    """Yield rounds of twenty processes that submit at once under one team budget."""
    test = "tests/e2e/test_team_budget.py"
    argv = (PY, "-m", "pytest", "-q", "-p", "no:randomly", test)
    for first in range(0, rounds, portion):
        yield Chunk(
            f"rounds {first + 1}-{first + portion}", argv, {"GPUJOB_TEST_ROUNDS": str(portion)}
        )


def fuzz_chunks() -> Iterator[Chunk]:
    """Yield ten minutes of fuzzing, in two halves; needs `pip install atheris`."""
    for half in ("first", "second"):
        yield Chunk(f"{half} 300 s", (PY, "scripts/fuzz_data.py", "--seconds", "300"))


CAMPAIGNS: dict[str, Campaign] = {
    "sim": Campaign("No leak, no double, no foreign machine touched, in any world.", sim_chunks),
    "layers": Campaign("Each layer is needed: without it, worlds leak.", layer_chunks),
    "bugs": Campaign("Each planted bug is caught by a checker.", bug_chunks),
    "kills": Campaign(
        "Killed at any point, the next command or the deadline ends the machine.",
        lambda: pytest_chunks("tests/e2e/test_kill_points.py", 6, at_once=2),
    ),
    "faults": Campaign(
        "Whatever RunPod does wrong: no pod is left, none of somebody else's is touched, and the "
        "exit code is true.",
        fault_chunks,
    ),
    "deaths": Campaign(
        "On the simulated RunPod, killed at 40 points or asleep past the lease at 10: the next "
        "command brings the job to its end, no pod is left, none is doubled.",
        lambda: pytest_chunks("tests/e2e/test_runpod_deaths.py", 2),
    ),
    "crowd": Campaign(
        "Three processes with 200 jobs on one SQLite file, one killed, one stopped and woken: no "
        "pod is left, none is doubled, each job has its true reason.",
        lambda: pytest_chunks("tests/e2e/test_runpod_crowd.py"),
    ),
    "slow": Campaign(
        "What the gate leaves out for time: real trainings, faults, resumes, pushes.", slow_chunks
    ),
    "team-budget": Campaign(
        "Twenty processes that submit at once cannot pass the team's budget.", rounds_chunks
    ),
    "data-fuzz": Campaign("No input of the data gate ends in a traceback.", fuzz_chunks),
}


# ---------------------------------------------------------------- running


def run(name: str, commit: str, until: float) -> bool | None:
    """Return whether the campaign's claim held; None where time ran out before its end."""
    campaign = CAMPAIGNS[name]
    chunks = list(campaign.chunks())
    done = remembered(name, commit)
    for number, chunk in enumerate(chunks, 1):
        if chunk.name in done:
            continue
        if time.monotonic() >= until:
            return None
        result = run_chunk(chunk)
        done[chunk.name] = result
        remember(name, {"commit": commit, "chunk": chunk.name, **result})
        word = "ok" if result["rc"] == 0 else f"FAILED ({result['rc']})"
        print(f"{name}: {number}/{len(chunks)} {chunk.name}: {word}, {result['seconds']} s",
              flush=True)  # fmt: skip
    results = {chunk.name: done[chunk.name] for chunk in chunks}
    write_evidence(name, campaign, commit, results)
    return all(result["rc"] == 0 for result in results.values())


def run_chunk(chunk: Chunk) -> dict[str, Any]:
    """Return exit code, seconds, and what the command told."""
    began = time.monotonic()
    done = subprocess.run(
        chunk.argv, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **chunk.env},
    )  # fmt: skip
    told = told_by(done.stdout)
    result: dict[str, Any] = {
        "rc": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "told": told,
    }
    if done.returncode != 0:
        text = (done.stdout + done.stderr).replace(str(ROOT), ".")
        result["tail"] = text.splitlines()[-TAIL_LINES:]
    return result


def told_by(stdout: str) -> dict[str, Any]:
    """Return the JSON object on the last line, or pytest's counts."""
    lines = stdout.strip().splitlines()
    last = lines[-1] if lines else ""
    if last.startswith("{"):
        found: dict[str, Any] = json.loads(last)
        return found
    return {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}


# ---------------------------------------------------------------- remembering


def remembered(name: str, commit: str) -> dict[str, dict[str, Any]]:
    """Return the chunks that went well on this commit; what failed is run anew."""
    path = PROGRESS / f"{name}.jsonl"
    if not path.is_file():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {r.pop("chunk"): r for r in rows if r["commit"] == commit and r["rc"] == 0}


def remember(name: str, row: dict[str, Any]) -> None:
    """Add one finished chunk."""
    PROGRESS.mkdir(parents=True, exist_ok=True)
    with (PROGRESS / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def write_evidence(
    name: str, campaign: Campaign, commit: str, results: dict[str, dict[str, Any]]
) -> None:
    """Write the campaign's document; times of day stay out, so equal runs differ little."""
    held = all(result["rc"] == 0 for result in results.values())
    kept = ("rc", "seconds", "told", "tail")
    document = {
        "campaign": name,
        "claim": campaign.claim,
        "held": held,
        "repeat": f"python scripts/prove.py {name}",
        "commit": commit,
        "versions": versions(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "seconds": round(sum(result["seconds"] for result in results.values()), 1),
        "sum": summed(results),
        "chunks": {
            chunk: {key: result[key] for key in kept if key in result}
            for chunk, result in results.items()
        },
    }
    path = EVIDENCE / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {'held' if held else 'DID NOT HOLD'}; docs/evidence/{path.name}")


def summed(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of equal numbers over the chunks."""
    total: dict[str, Any] = {}
    for result in results.values():
        for key, value in result["told"].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                total[key] = round(total.get(key, 0) + value, 2)
    return total


def versions() -> dict[str, str]:
    """Return what a campaign ran on: Python, SQLite, the packages that matter, Axolotl's pins."""
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    found |= {name: metadata.version(name) for name in PACKAGES}
    for lock in ("axolotl", "torch-cpu"):
        text = (ROOT / "orchestrator" / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
        found |= dict(re.findall(r"^(axolotl|peft|transformers|torch)==(\S+)", text, re.MULTILINE))
    return found


def commit_now() -> str:
    """Return the commit, marked where the tree differs from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    dirty = git("status", "--porcelain", "--", "*.py", "pyproject.toml")
    return git("rev-parse", "--short=12", "HEAD") + ("+changes" if dirty else "")


def main() -> int:
    """Run; 1 where a claim did not hold, 3 where time ran out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaigns", nargs="*", help=f"of: {', '.join(CAMPAIGNS)}")
    parser.add_argument("--list", action="store_true", help="show how far each is")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    unknown = set(options.campaigns) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"no campaign {', '.join(sorted(unknown))}")
    commit = commit_now()
    names = options.campaigns or list(CAMPAIGNS)
    if options.list:
        for name in names:
            print(f"{name}: {len(remembered(name, commit))} chunks done at {commit}; "
                  f"{CAMPAIGNS[name].claim}")  # fmt: skip
        return 0
    if {"kills", "slow"} & set(names):
        os.environ["GPUJOB_TEST_AXOLOTL_ENV"] = axolotl_env()
    until = time.monotonic() + options.minutes * 60
    held = [run(name, commit, until) for name in names]
    if False in held:
        return 1
    return 3 if None in held else 0


if __name__ == "__main__":
    sys.exit(main())
