"""Set up a fresh clone with nothing but Python, then run the quickstart or the tests.

`make quickstart` and `make test` call this. Standard library only, since nothing is installed yet.
What is downloaded is said before it starts; the installer's own progress is shown as it goes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / ".gpujob-setup"
PYTHON_MIN = (3, 11)
# Measured on a 2-core machine with an empty cache; said so that nobody wonders whether it hangs.
WHAT = {
    "base": "gpujob's own packages: about 70 MB, 1 to 2 minutes",
    "dev": "gpujob's packages and the test tools: about 110 MB, 1 to 3 minutes",
    "axolotl": "Axolotl's environment, CPU build: about 0.8 GB (3 GB on disk), 3 to 8 minutes",
}
# A made-up price, so that the quickstart shows a cost line; printed as notional everywhere.
QUICKSTART_PRICE_USD_PER_HOUR = "0.60"
SYSTEM_NEEDS = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "tmux": "tmux",
    "systemd-analyze": "systemd",
}


def main() -> int:
    """Return the exit code of what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["quickstart", "test", "dev"])
    parser.add_argument("rest", nargs="*", help="handed on to gpujob submit, or to pytest")
    args = parser.parse_args()
    python = find_python()
    if os.name != "posix":
        return complain("gpujob runs on Linux and macOS; on Windows use WSL 2.")
    if python is None:
        return complain(
            f"Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer is needed; found only {sys.version}."
        )
    lock = "base" if args.what == "quickstart" else "dev"
    install(python, lock)
    if args.what == "quickstart":
        return quickstart(args.rest)
    return test(args.rest) if args.what == "test" else 0


def complain(message: str) -> int:
    """Print one line and return the usage exit code."""
    print(f"setup: {message}", file=sys.stderr)
    return 2


def find_python() -> str | None:
    """Return this interpreter, or the newest good one on PATH."""
    if sys.version_info >= PYTHON_MIN:
        return sys.executable
    for minor in range(14, PYTHON_MIN[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    return None


def install(python: str, lock: str) -> None:
    """Make `.venv` hold exactly the lock and gpujob itself; does nothing where it already does."""
    files = [ROOT / "requirements" / f"{lock}.txt"]
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()
    have = STAMP.read_text().split() if STAMP.exists() else []
    if digest in have:
        return
    say(f"installs into .venv: {WHAT[lock]}")
    started = time.monotonic()
    if not (VENV / "bin" / "python").exists():
        done = subprocess.run([python, "-m", "venv", str(VENV)], check=False)
        if done.returncode:
            raise SystemExit(
                complain(
                    "python -m venv failed. On Debian and Ubuntu that module is a package of its "
                    "own: apt-get install python3-venv"
                )
            )
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--require-hashes", "--no-deps", "-r", str(files[0])])
    # No build isolation: the build backend is in the lock too, so nothing unhashed is fetched.
    run([*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    STAMP.write_text("\n".join({*have, digest}))
    say(f"installed in {time.monotonic() - started:.0f} s")


def quickstart(rest: list[str]) -> int:
    """Return the exit code of the main job on `local`, then of loading its adapter with peft."""
    env = {"GPUJOB_LOCAL_PRICE_USD_PER_HOUR": QUICKSTART_PRICE_USD_PER_HOUR, **os.environ}
    gpujob = str(VENV / "bin" / "gpujob")
    say(f"runs the main job on this machine; the first time it builds {WHAT['axolotl']}")
    job = str(ROOT / "examples" / "quickstart" / "job.yaml")
    code = subprocess.run(
        [gpujob, "submit", job, "--yes", *rest], env=env, cwd=ROOT, check=False
    ).returncode
    if code:
        return code
    say("loads the adapter with peft, in Axolotl's environment:")
    return subprocess.run(
        [str(VENV / "bin" / "python"), str(ROOT / "examples" / "quickstart" / "check_adapter.py")],
        env=env, cwd=ROOT, check=False,
    ).returncode  # fmt: skip


def test(rest: list[str]) -> int:
    """Return pytest's exit code; asks once for missing system packages."""
    offer_system_packages()
    say(f"the first time this builds {WHAT['axolotl']}")
    python = str(VENV / "bin" / "python")
    build = [python, "-m", "tests.support.axolotl_environment"]
    built = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    env = dict(os.environ)
    if built.returncode:
        say("Axolotl's environment could not be built: its tests are left out, and the run fails")
    else:
        env["GPUJOB_TEST_AXOLOTL_ENV"] = built.stdout.strip().splitlines()[-1]
    command = [python, "-m", "pytest", "-q", "-n", str(min(os.cpu_count() or 2, 4)), *rest]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def offer_system_packages() -> None:
    """Ask once, on a terminal, for the Debian packages that some tests need."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = sorted({p for exe, p in SYSTEM_NEEDS.items() if shutil.which(exe, path=path) is None})
    if not missing:
        return
    say(f"some tests need these system packages, which are not here: {' '.join(missing)}")
    apt = shutil.which("apt-get")
    if not (apt and sys.stdin.isatty()):
        say("those tests are left out, and the run will fail with their list")
        return
    if (
        input(f"Install them now with apt-get install {' '.join(missing)}? [y/N] ").strip().lower()
        == "y"
    ):
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run([*sudo, apt, "update", "-q"], check=False)
        subprocess.run(
            [*sudo, apt, "install", "-y", "-q", "--no-install-recommends", *missing], check=False
        )


def run(command: list[str]) -> None:
    """Run a command, or end with its exit code."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"setup: {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
