"""What is looked at on a machine rented by hand before a job is sent there. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from providers import gpus
from providers.base import Check, Needs
from providers.ssh_machines import CPU, Machine

WRITE_BYTES = 64 << 20
LEAST_WRITE_MB_PER_S = 10.0  # slower, and a checkpoint of a 7B adapter takes a minute
LIMIT_S = 90.0
CLOCK_OFF_S = 300.0  # beyond that TLS certificates and our deadline are judged wrongly
OLDEST_PYTHON = (3, 8)  # the agent's
OLDEST_DRIVER = 580  # CUDA 13, which the locked torch is built for (CUDA's compatibility table)
BUSY_MIB = 1024.0  # a GPU with so much in use serves somebody else
GB, GIB = 1e9, float(1 << 30)


def checks(machine: Machine, answer: dict[str, Any], needs: Needs, now: float) -> tuple[Check, ...]:
    """Return one check a line, those that failed among them."""
    return (
        _good("login", f"{machine.user}@{machine.host}:{machine.port}, host key as trusted"),
        _claim(machine, answer),
        _system(answer),
        *_graphics(machine, answer.get("gpus")),
        *_disk(machine, answer, needs),
        *_egress(answer, needs),
        _clock(answer, now),
    )


def claimed_by(claim: dict[str, Any]) -> str:
    """Return who holds a machine, in words."""
    if not claim.get("label"):
        return "claimed by a claim.json that cannot be read"
    return f"claimed by {claim['label']} of owner {claim.get('owner', 'unknown')}"


def _claim(machine: Machine, answer: dict[str, Any]) -> Check:
    claim = answer.get("claim")
    if claim is None:
        return _good("claim", "free")
    remedy = (
        "Wait for that job, or cancel it; if it is long dead, remove "
        f"{answer.get('folder')}/claim.json on the machine."
    )
    return _bad("claim", f"{machine.name} is {claimed_by(claim)}", remedy)


def _system(answer: dict[str, Any]) -> Check:
    python = tuple(answer["python"])
    words = f"{answer['system']}, Python {'.'.join(map(str, python))}"
    if answer["system"] != "linux":
        return _bad("system", words, "gpujob trains on Linux machines only.")
    if python < OLDEST_PYTHON:
        return _bad("system", words, "Install Python 3.8 or newer as python3.")
    return _good("system", words)


def _graphics(machine: Machine, rows: list[list[str]] | None) -> Iterator[Check]:
    wanted = machine.price.gpu
    if wanted == CPU:
        yield _good("gpu", "none asked for: the price card says CPU")
        return
    if not rows:
        remedy = "Install NVIDIA's driver, or put right price.gpu in machines.yaml."
        yield _bad("gpu", "nvidia-smi is not there, or does not work", remedy)
        return
    names = [gpus.canonical(row[0]) or row[0] for row in rows]
    words = f"{len(rows)}x {', '.join(dict.fromkeys(names))}"
    if names.count(wanted) < machine.gpus:
        remedy = "Put right price.gpu and gpus in machines.yaml: the price hangs on them."
        yield _bad("gpu", f"{words}; the card says {machine.gpus}x {wanted}", remedy)
    else:
        yield _good("gpu", words)
    used = max(_number(row[2]) for row in rows)
    if used >= BUSY_MIB:
        yield _bad("gpu memory", f"{used / 1024:.1f} GiB in use", "End what runs there first.")
    driver = rows[0][3]
    if 0 < _number(driver.partition(".")[0]) < OLDEST_DRIVER:
        yield _bad("driver", driver, f"Install driver {OLDEST_DRIVER} or newer (CUDA 13).")
    else:
        yield _good("driver", driver)


def _disk(machine: Machine, answer: dict[str, Any], needs: Needs) -> Iterator[Check]:
    environment_gib = 0.0 if machine.axolotl_env else needs.environment_gib
    free, need = answer["free_bytes"] / GB, (needs.disk_gib + environment_gib) * GIB / GB
    words = f"{free:.1f} GB free, the job needs about {need:.1f}"
    if free < need:
        yield _bad("disk", words, "Free some, or name a folder on a larger disk: `folder`.")
    else:
        yield _good("disk", words)
    speed = answer["write_mb_per_s"]
    if speed is None:
        remedy = f"See that {answer['folder']} can be written by the login."
        yield _bad("write", answer["write_error"], remedy)
    elif speed < LEAST_WRITE_MB_PER_S:
        remedy = "Name a folder on a faster disk: `folder`."
        yield _bad("write", f"{speed:.0f} MB/s", remedy)
    else:
        yield _good("write", f"{speed:.0f} MB/s")


def _egress(answer: dict[str, Any], needs: Needs) -> Iterator[Check]:
    for host, port, why in answer["egress"]:
        if why and (host, port) not in needs.egress:
            told = f"{host}:{port} cannot be reached from it ({why}), which is no harm: the result"
            yield _good("egress", f"{told} comes to this computer and goes there from here")
        elif why:
            remedy = "Open it in the machine's firewall, or ask who rents it out."
            yield _bad("egress", f"{host}:{port} cannot be reached: {why}", remedy)
        else:
            yield _good("egress", f"{host}:{port} can be reached")


def _clock(answer: dict[str, Any], now: float) -> Check:
    off = answer["now"] - now
    words = f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this computer's"
    if abs(off) > CLOCK_OFF_S:
        return _bad("clock", words, "Set it there (timedatectl set-ntp true), or here.")
    return _good("clock", words)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _good(name: str, detail: str) -> Check:
    return Check(name, ok=True, detail=detail)


def _bad(name: str, detail: str, remedy: str) -> Check:
    return Check(name, ok=False, detail=detail, remedy=remedy)
