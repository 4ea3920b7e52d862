"""Files of the Hugging Face hub, fetched one by one over its plain HTTP addresses.

`hf://datasets/OWNER/NAME[@REVISION]/PATH/TO/FILE`. HF_ENDPOINT names another hub, HF_TOKEN is
sent to that host only.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

_ADDRESS = re.compile(
    r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w./-]+?))?/(?P<path>[^@]+)$"
)
_DEFAULT_HUB = "https://huggingface.co"
_TIMEOUT_S = 30
_CONFIG_TIMEOUT_S = 5  # of a kilobyte that a plan can do without
_BLOCK = 1 << 20


class HubError(Exception):
    """A hub file that cannot be had, in words for the user."""


class MissingError(HubError):
    """There is no such file, as the hub says."""


def bring(address: str, cache: Path) -> Path:
    """Return the local copy of a hub file, fetched unless it is there already; n network calls.

    Raises HubError with the cause and what to do.
    """
    found = _ADDRESS.match(address)
    if not found or ".." in found["path"].split("/"):
        raise HubError(
            f"{address}: write it as hf://datasets/OWNER/NAME/FILE or .../NAME@REVISION/FILE"
        )
    revision = found["revision"] or "main"
    target = cache / found["repo"].replace("/", "--") / revision.replace("/", "--") / found["path"]
    if target.is_file() and revision != "main":
        return target
    name, at = urllib.parse.quote(found["path"]), urllib.parse.quote(revision, safe="")
    _fetch(f"datasets/{found['repo']}/resolve/{at}/{name}", target, address, _TIMEOUT_S)
    return target


def model_config(model: str, cache: Path) -> Path:
    """Return the folder with the `config.json` of a model of the hub; fetched once, one call.

    Raises HubError where it can't be had.
    """
    folder = cache / model.replace("/", "--")
    if not (folder / "config.json").is_file():
        path = f"{urllib.parse.quote(model)}/resolve/main/config.json"
        _fetch(path, folder / "config.json", model, _CONFIG_TIMEOUT_S)
    return folder


def tokenizer(model: str, cache: Path) -> Path:
    """Return a folder with a hub model's tokenizer and chat template; n calls, the first time only.

    Raises HubError where there is no tokenizer.json; the template may stand in either other file,
    or in none.
    """
    folder = cache / model.replace("/", "--")
    if (folder / "tokenizer.json").is_file():
        return folder
    where = f"{urllib.parse.quote(model)}/resolve/main"
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        with contextlib.suppress(MissingError):
            _fetch(f"{where}/{name}", folder / name, model, _CONFIG_TIMEOUT_S)
    _fetch(f"{where}/tokenizer.json", folder / "tokenizer.json", model, _TIMEOUT_S)
    return folder


def _fetch(path: str, target: Path, address: str, timeout_s: float) -> None:
    """Bring one file of the hub to `target`, whole or not at all. Raises HubError."""
    hub = os.environ.get("HF_ENDPOINT", _DEFAULT_HUB).rstrip("/")
    url = f"{hub}/{path}"
    if not url.startswith(("https://", "http://")):
        raise HubError(f"HF_ENDPOINT {hub}: not an http address")
    request = urllib.request.Request(url)  # noqa: S310 - the scheme was checked above
    token = os.environ.get("HF_TOKEN")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer, part.open("wb") as file:  # noqa: S310
            expected = int(answer.headers.get("Content-Length") or -1)
            size = 0
            while block := answer.read(_BLOCK):
                size += file.write(block)
            if expected >= 0 and size != expected:
                raise HubError(f"{address}: {size:,} of {expected:,} bytes came; try again")
    except urllib.error.HTTPError as error:
        what = {
            401: "gated, private, or not there: set HF_TOKEN",
            403: "no access: accept its terms on the hub",
            404: "no such file there",
        }.get(error.code, (f"the hub answered {error.code}"))
        kind = MissingError if error.code == http.HTTPStatus.NOT_FOUND else HubError
        raise kind(f"{address}: {what}") from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        raise HubError(
            f"{address}: the hub cannot be reached ({getattr(error, 'reason', error)})"
        ) from error
    part.replace(target)
