"""What each container image needs of a pod: where its volume goes, its CUDA floor, its own start.

Pure. Sources: the images' own build files and start scripts (axolotl-ai-cloud/axolotl,
runpod/containers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

# Documented by RunPod, and small beside Axolotl's own image; the locked environment is built on it.
DEFAULT_IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
# The locked PyTorch is built for CUDA 13: a host whose driver is older cannot run it.
CUDA_FLOOR = "13.0"


class Start(StrEnum):
    """How an image's SSH server comes up."""

    ENTRYPOINT = "entrypoint"  # the image's entry point has started it before us
    SCRIPT = "/start.sh"  # the command that our start argument has replaced
    AUTO = "auto"  # the first of the two that is there, else sshd itself


@dataclass(frozen=True, slots=True)
class Image:
    """A row of the table. mount: of the volume; workdir: where attempts live, on that volume."""

    pattern: str
    mount: str
    start: Start
    cuda_floor: str = CUDA_FLOOR

    @property
    def workdir(self) -> str:
        """Return the folder that is ours."""
        return self.mount


IMAGES = (
    # `/workspace` holds its code and its environment: a volume there would hide both.
    Image(r"(?:docker\.io/)?axolotlai/axolotl", "/workspace/data", Start.ENTRYPOINT),
    Image(r"(?:docker\.io/)?runpod/", "/workspace/data", Start.SCRIPT),
)
OTHER = Image("", "/workspace/data", Start.AUTO)


def image_facts(name: str | None) -> Image:
    """Return what is known of an image; a template's image is unknown (None)."""
    if name is None:
        return OTHER
    return next((row for row in IMAGES if re.match(row.pattern, name)), OTHER)
