"""The start argument of a pod: a shell script that ends it in time, then the image's own start.

The script is runpod_start.sh, shipped beside this file. It travels packed in the argument itself,
so it runs before anything can be downloaded, and what it needs to know is in the environment.
"""

from __future__ import annotations

import base64
import gzip
import math
import re
from functools import cache
from pathlib import Path

from providers.base import HostKey, LaunchRequest
from providers.runpod_offers import STORAGE_USD_PER_GIB_HOUR
from providers.runpod_pods import STAMP, disks, facts_of
from providers.runpod_settings import DEFAULT_WAITS, Waits

FOLDER = "/tmp/gpujob"  # noqa: S108 - inside the container, which is ours alone
SELF_DESTRUCT = f"sh {FOLDER}/start.sh end"
HOST_KEY_WORD = "gpujob: host key"

_HOST_KEY = re.compile(rf"{HOST_KEY_WORD} (\S+) (\S+) ([A-Za-z0-9+/]{{40,2000}}={{0,2}})\s*")
_KEY_TYPES = frozenset({"ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"})


@cache
def start_argument() -> str:
    """Return the create call's `args`: unpack the script, and become it."""
    text = (Path(__file__).parent / "runpod_start.sh").read_bytes()
    packed = base64.b64encode(gzip.compress(text, mtime=0)).decode()
    script = f"{FOLDER}/start.sh"
    unpack = f"mkdir -p {FOLDER} && echo {packed} | base64 -d | gzip -d > {script}"
    return f"sh -c '{unpack} && exec sh {script}'"


def start_env(
    request: LaunchRequest,
    left_s: float,
    boot_timeout_s: float,
    base_url: str,
    waits: Waits = DEFAULT_WAITS,
) -> dict[str, str]:
    """Return what the script reads, beside the stamps. No secret.

    left_s: seconds to the deadline. The end is the deadline, or earlier when the budget, at the
    quoted price and the disks' own, is spent.
    """
    end_in_s = left_s
    if request.budget_usd is not None:
        rate = request.offer.price_usd_per_hour
        rate += STORAGE_USD_PER_GIB_HOUR * sum(disks(request.disk_gib))
        if rate > 0:
            end_in_s = min(end_in_s, max(0.0, float(request.budget_usd / rate * 3600)))
    end_at = request.deadline_at - left_s + end_in_s
    return {
        "PUBLIC_KEY": request.public_key,
        "JUPYTER_DISABLE": "1",  # the image starts it on all interfaces otherwise
        "RUNPOD_API_BASE_URL": base_url,
        f"{STAMP}START": request.start_script or facts_of(request).start,
        f"{STAMP}END_AT": str(int(end_at)),
        f"{STAMP}END_IN_S": str(int(end_in_s)),
        f"{STAMP}CONTACT_IN_S": str(int(boot_timeout_s + waits.contact_margin_s)),
        f"{STAMP}LEASE_S": str(math.ceil(request.lease_s)),
        f"{STAMP}STEP_S": str(math.ceil(waits.step_s)),
    }


def host_key_said(line: str, label: str) -> HostKey | None:
    """Return the host key that a line of the container's log tells for this label. Pure."""
    match = _HOST_KEY.search(line)
    if match is None or match[1] != label or match[2] not in _KEY_TYPES:
        return None
    try:
        body = base64.b64decode(match[3], validate=True)
    except ValueError:
        return None
    name = match[2].encode()
    if not body.startswith(len(name).to_bytes(4, "big") + name):
        return None
    return HostKey(match[2], match[3])
