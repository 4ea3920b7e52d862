"""Make the hashed requirement files anew: `python scripts/lock.py [--upgrade]`. Needs uv.

Versions that stand in a file already are kept unless --upgrade is given. No file names an index:
who installs decides where from, and the hashes hold wherever that is.

requirements/base.txt              gpujob itself, and what builds it
requirements/dev.txt               the same, with what tests and lint need
orchestrator/locks/axolotl.txt     Axolotl's environment without torch, for pip's --no-deps
orchestrator/locks/torch.txt       torch as PyPI has it: CUDA on Linux, CPU and Metal on macOS
orchestrator/locks/torch-cpu.txt   torch's CPU build for Linux, which PyPI has not
orchestrator/locks/build.txt       setuptools, with which the two source archives are built
orchestrator/locks/uv.txt          uv, which knows where that build is to be had
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "orchestrator" / "locks"
# Axolotl and its two companions: their own lists of dependencies are not followed, and Axolotl's
# bound on Python (3.12) is not either. The companions have no wheels, their archives no C code.
AXOLOTL = "axolotl==0.21.0\naxolotl-contribs-lgpl==0.0.7\naxolotl-contribs-mit==0.0.6\n"
TORCH = "torch==2.13.0"
# Of this build only the wheel for CPython 3.11 on x86_64 could be hashed where this was written. A
# machine on which another one is to be had takes the next way of orchestrator/axolotl_env.py.
TORCH_CPU = f"{TORCH}+cpu"
TORCH_CPU_SHA256 = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
COMMON = ("--universal", "--generate-hashes", "--no-annotate", "--no-header", "--quiet")


def main(arguments: list[str]) -> int:
    """Write all files; return the exit status."""
    extra = ["--upgrade"] if "--upgrade" in arguments else []
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    base = ROOT / "requirements" / "base.txt"
    dev = ROOT / "requirements" / "dev.txt"
    project = str(ROOT / "pyproject.toml")
    compile_to(uv, base, ["-p", "3.11", project, "--group", "build", *extra])
    compile_to(uv, dev, ["-p", "3.11", project, "--group", "dev", "-c", str(base), *extra])
    with tempfile.TemporaryDirectory() as folder:
        alone, excluded, plain = (Path(folder) / name for name in ("alone", "excluded", "plain"))
        alone.write_text(AXOLOTL)
        excluded.write_text("torch\n")
        plain.write_text(TORCH + "\n")
        axolotl = LOCKS / "axolotl.txt"
        source = ["-p", "3.11", str(LOCKS / "axolotl.in"), "--excludes", str(excluded)]
        compile_to(uv, axolotl, [*source, *extra])
        companions = Path(folder) / "companions.txt"
        compile_to(uv, companions, ["-p", "3.12", "--no-deps", str(alone)])
        held = ["-c", str(axolotl)]
        compile_to(uv, LOCKS / "torch.txt", ["-p", "3.11", str(plain), *held, *extra])
        plain.write_text("setuptools\n")
        compile_to(uv, LOCKS / "build.txt", ["-p", "3.11", str(plain), *held, *extra])
        plain.write_text("uv\n")
        compile_to(uv, LOCKS / "uv.txt", ["-p", "3.11", str(plain), *extra])
        axolotl.write_text(axolotl.read_text() + companions.read_text())
    (LOCKS / "torch-cpu.txt").write_text(f"{TORCH_CPU} --hash=sha256:{TORCH_CPU_SHA256}\n")
    return 0


def compile_to(uv: str, target: Path, arguments: list[str]) -> None:
    """Resolve into one file."""
    command = [uv, "pip", "compile", *COMMON, "-o", str(target), *arguments]
    subprocess.run(command, check=True)
    print(f"{target.name}: {target.read_text().count('==')} packages")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
