"""Where a result is pushed: `s3://bucket/prefix` and `hf://user/repo`, read and checked. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

S3 = "s3://"
HUB = "hf://"
MAX_KEY_BYTES = 1024  # of a whole object key, by S3's rule; our own names take the rest
MAX_PREFIX_BYTES = 600

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
# What the hub takes for each half of an id: letters, digits, dot, dash, underscore, 96 in all.
_HUB_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
MAX_HUB_CHARS = 96


class BadTarget(ValueError):  # noqa: N818 - an answer to the user
    """A place that can't be pushed to; `str()` says why, `remedy` what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Bucket:
    """A place in an S3 store; prefix without slashes at its ends, "" for the bucket itself."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        """Return the address, in its one form."""
        return f"{S3}{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Repo:
    """A model repository of the Hugging Face Hub."""

    owner: str
    name: str

    @property
    def id(self) -> str:
        """Return `owner/name`."""
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        """Return the address, in its one form."""
        return f"{HUB}{self.id}"


Target = Bucket | Repo


def is_target(text: str) -> bool:
    """Return whether a text names a place that is pushed to, well or badly written."""
    return text.startswith((S3, HUB))


def target(text: str) -> Target:
    """Return the place that a text names; raises BadTarget."""
    if text.startswith(S3):
        return _bucket(text, text.removeprefix(S3))
    if text.startswith(HUB):
        return _repo(text, text.removeprefix(HUB))
    raise BadTarget(
        f"{text}: neither s3:// nor hf://", "Write s3://bucket/prefix or hf://user/repo"
    )


def _bucket(text: str, rest: str) -> Bucket:
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket or _ADDRESS.fullmatch(bucket):
        raise BadTarget(
            f"{text}: {bucket or 'nothing'} is no name of a bucket",
            "Names have 3 to 63 small letters, digits, dots and dashes: s3://bucket/prefix",
        )
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    odd = any(unicodedata.category(char)[0] == "C" or char in "\\?#" for char in prefix)
    if odd or any(part in {"", ".", ".."} for part in parts):
        raise BadTarget(
            f"{text}: the part after the bucket can't be used",
            "Leave out empty parts, dots alone, backslashes, ? and #",
        )
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise BadTarget(
            f"{text[:80]}...: longer than {MAX_PREFIX_BYTES} bytes", "Choose a shorter prefix"
        )
    return Bucket(bucket, prefix)


def _repo(text: str, rest: str) -> Repo:
    owner, slash, name = rest.rstrip("/").partition("/")
    if not slash or "/" in name:
        raise BadTarget(
            f"{text}: a repository has an owner and a name", "Write hf://user/repo, for a model"
        )
    for part in (owner, name):
        doubled = "--" in part or ".." in part
        if not _HUB_PART.fullmatch(part) or doubled or part.endswith(".git"):
            raise BadTarget(
                f"{text}: {part or 'nothing'} is no name on the hub",
                "Letters, digits, dot, dash and underscore; no -- or .., no dash or dot at an end",
            )
    if len(f"{owner}/{name}") > MAX_HUB_CHARS:
        raise BadTarget(f"{text}: longer than {MAX_HUB_CHARS} characters", "Choose a shorter name")
    return Repo(owner, name)
