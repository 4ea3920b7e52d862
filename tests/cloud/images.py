"""How the images that gpujob may name behave at their start: ENTRYPOINT, CMD, and the programs.

Two kinds matter. Axolotl's cloud image has an ENTRYPOINT that starts sshd, and the start argument
replaces only `sleep infinity`. RunPod's own images start sshd in CMD, so that a start argument
replaces it and there is no sshd unless the argument starts one. Any other image has neither.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field

SSHD_SETUP = """\
if [ -n "$PUBLIC_KEY$SSH_KEY" ]; then
  mkdir -p "$HOME/.ssh" && chmod 700 "$HOME/.ssh"
  printf '%s\\n' "${PUBLIC_KEY:-$SSH_KEY}" >> "$HOME/.ssh/authorized_keys"
  chmod 600 "$HOME/.ssh/authorized_keys"
  [ -f /etc/ssh/ssh_host_ed25519_key ] ||
    ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
  mkdir -p /run/sshd
  /usr/sbin/sshd
fi
"""
EXPORT = """\
env | sed -n 's/^\\(RUNPOD_[A-Z_0-9]*\\|PATH\\)=\\(.*\\)$/export \\1="\\2"/p' > /etc/rp_environment
printf '%s\\n' '. /etc/rp_environment' >> "$HOME/.bashrc"
"""
HOME = "/root"
SCRIPT_HEAD = "#!/bin/sh\numask 022\n"
CLOUD_ENTRYPOINT = SCRIPT_HEAD + EXPORT + SSHD_SETUP + 'exec "$@"\n'
RUNPOD_START = SCRIPT_HEAD + SSHD_SETUP + EXPORT + "exec sleep infinity\n"
# In every image: what Debian's openssh-server and root's home come with, as far as it matters.
COMMON_FILES = {
    "etc/ssh/sshd_config": """\
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100
Subsystem sftp internal-sftp
""",
    "root/.bashrc": "case $- in *i*) ;; *) return ;; esac\n",
}


@dataclass(frozen=True, slots=True)
class Image:
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ("sleep", "infinity")
    files: dict[str, str] = field(default_factory=dict)
    cuda: str = "12.4"

    def argv(self, args: str) -> list[str]:
        """Return what PID 1 runs: `args` in the place of CMD, or GraphQL's JSON form of both."""
        if args.lstrip().startswith("{"):
            given = json.loads(args)
            entry = given.get("entrypoint")
            return [*(self.entrypoint if entry is None else entry), *given.get("cmd", [])]
        return [*self.entrypoint, *(shlex.split(args) if args.strip() else self.command)]


CLOUD = Image(
    (f"{HOME}/cloud-entrypoint.sh",),
    files={"root/cloud-entrypoint.sh": CLOUD_ENTRYPOINT},
    cuda="13.0",
)
RUNPOD = Image(command=("/start.sh",), files={"start.sh": RUNPOD_START}, cuda="12.8")
PLAIN = Image()
KNOWN = {"axolotlai/axolotl-cloud": CLOUD, "runpod/": RUNPOD}
PULL_ERROR = "Error response from daemon: manifest for {name} not found: manifest unknown"


def image(name: str) -> Image | None:
    """Return how `name` behaves, None where the registry has no such image."""
    if "no-such-image" in name:
        return None
    return next((found for start, found in KNOWN.items() if name.startswith(start)), PLAIN)
