"""Checkpoints in an S3 store: presigned for the instance, verified, published whole, pruned.

Below `prefix/<job name>-<job id>/checkpoints/checkpoint-<step>/` lie the files as the trainer
wrote them. The instance sends them to URLs that are good for one object, one content and until the
deadline; whoever holds the key looks at what arrived, and writes the manifest last and only once.
A checkpoint without a manifest does not exist.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.targets import Bucket
from orchestrator.agent.carrier import part_bytes
from orchestrator.agent.weights import BadWeights, check_weights
from orchestrator.artifacts import checkpoint
from orchestrator.artifacts.collect import SPARE_BYTES, sync
from orchestrator.artifacts.manifest import (
    ArtifactsMissing,
    ArtifactsRefused,
    Choice,
    Wanted,
    choose_checkpoint,
)
from orchestrator.artifacts.push import CHUNK, PushFault, Tell
from orchestrator.artifacts.push_s3 import key_of, resumed, status_of

LONGEST_URL_S = 7 * 24 * 3600  # SigV4's own limit; a longer one is signed, and then refused
SHORTEST_URL_S = 60
MANIFEST_BYTES = 4 << 20
_NAME = re.compile(r"checkpoint-(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a job's checkpoints lie in a bucket."""

    place: Bucket
    subfolder: str  # name and id of the job

    @property
    def base(self) -> str:
        """Return the prefix of all of them, with a slash at its end."""
        return key_of(self.place, f"{self.subfolder}/checkpoints/")


@dataclass(frozen=True, slots=True)
class Source:
    """A prefix in a bucket, with a slash at its end."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Sent:
    """One file of a checkpoint. parts: the sha256 of each part, where it goes in parts."""

    path: str
    bytes: int
    sha256: str
    parts: tuple[str, ...] = ()


def sent_files(document: Any, choice: Choice) -> tuple[Sent, ...]:
    """Return what the instance says of the files that are chosen; raises ArtifactsRefused."""
    said = {entry["path"]: entry.get("parts", []) for entry in document["files"]}
    return tuple(_sent(wanted.path, wanted.bytes, wanted.sha256, said[wanted.path])
                 for wanted in choice.wanted)  # fmt: skip


def _sent(path: str, size: int, sha256: str, parts: Any) -> Sent:
    count = -(-size // part_bytes(size)) if size > part_bytes(size) else 0
    fine = isinstance(parts, list) and len(parts) == count
    if not fine or not all(isinstance(p, str) and re.fullmatch(r"[0-9a-f]{64}", p) for p in parts):
        raise ArtifactsRefused(f"{path}: the hashes of its parts are none")
    return Sent(path, size, sha256, tuple(parts))


def grant(s3: Any, shelf: Shelf, step: int, files: Sequence[Sent], url_s: float) -> dict[str, Any]:
    """Return what the instance still has to send, each with its URL; whole: nothing, for ever."""
    if _manifest(s3, shelf, step) is not None:
        return {"whole": True, "items": []}
    items: list[dict[str, Any]] = []
    for file in files:
        key = f"{shelf.base}checkpoint-{step}/{file.path}"
        if _is_there(s3, shelf.place.bucket, key, file):
            continue
        entry = {"path": file.path, "offset": 0, "bytes": file.bytes}
        what = {"Bucket": shelf.place.bucket, "Key": key}
        if not file.parts:
            items.append(entry | _url(s3, "put_object", what, file.sha256, url_s))
            continue
        upload, have = resumed(s3, shelf.place.bucket, key)
        for number, start, size in _parts(file):
            if have.get(number, {}).get("Size") != size:
                part = {**what, "UploadId": upload, "PartNumber": number}
                url = _url(s3, "upload_part", part, file.parts[number - 1], url_s)
                items.append(entry | {"offset": start, "bytes": size} | url)
    return {"whole": False, "items": items}


def publish(s3: Any, shelf: Shelf, step: int, files: Sequence[Sent], keep: int) -> dict[str, Any]:
    """Return whether the checkpoint is whole now, verified and published, and what it lacks.

    Older ones go only now. What arrived otherwise than it was sent is removed and asked for anew.
    """
    missing = [file.path for file in files if not _finished(s3, shelf, step, file)]
    if missing:
        return {"whole": False, "missing": missing}
    if _manifest(s3, shelf, step) is None:
        listed = [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in files]
        document = {"schema": checkpoint.SCHEMA, "step": step, "files": listed}
        key = f"{shelf.base}checkpoint-{step}/{checkpoint.MANIFEST}"
        body = json.dumps(document, indent=1).encode()
        try:
            s3.put_object(Bucket=shelf.place.bucket, Key=key, Body=body, IfNoneMatch="*")
        except Exception as error:
            if not hasattr(error, "response") or status_of(error) != 412:
                raise
    _prune(s3, shelf, keep)
    return {"whole": True, "missing": []}


def fetch(s3: Any, shelf: Shelf, folder: Path, tell: Tell, *, adapter: bool) -> dict[str, Any]:
    """Bring the newest whole checkpoint into `folder`, unless a newer one lies there.

    Returns {"step": or None, "passed_over": [why, ...]}: one whose bytes are not those of its
    manifest is passed over, and the one before it serves.
    """
    at_home = checkpoint.newest(folder)
    home = None if at_home is None else checkpoint.step_of(at_home)
    passed_over = []
    for step in sorted(_published(s3, shelf), reverse=True):
        if home is not None and step <= home:
            break
        try:
            choice = choose_checkpoint(_manifest(s3, shelf, step), adapter=adapter)
            part = folder / f"checkpoint-{step}.part"
            source = Source(shelf.place.bucket, f"{shelf.base}checkpoint-{step}/")
            _download(s3, source, choice, part, tell)
            if not check_weights(str(part), adapter=adapter).finite:
                raise ArtifactsRefused("it holds NaN or infinite values")  # noqa: TRY301
        except (ArtifactsRefused, ArtifactsMissing, BadWeights) as error:
            passed_over.append(f"checkpoint {step}: {error}")
            continue
        checkpoint.publish(part, folder / f"checkpoint-{step}", step, choice)
        return {"step": step, "passed_over": passed_over}
    return {"step": home, "passed_over": passed_over}


def listed(s3: Any, shelf: Shelf) -> dict[str, Any]:
    """Return {"checkpoints": [{"step", "bytes", "where"}]} of the whole ones, oldest first."""
    found = []
    for step in sorted(_published(s3, shelf)):
        files = (_manifest(s3, shelf, step) or {}).get("files", [])
        where = f"s3://{shelf.place.bucket}/{shelf.base}checkpoint-{step}"
        total = sum(file.get("bytes", 0) for file in files)
        found.append({"step": step, "bytes": total, "where": where})
    return {"checkpoints": found}


def pull(s3: Any, place: Bucket, files: Sequence[Sent], folder: Path, tell: Tell) -> dict[str, Any]:
    """Bring files that lie below a place into a folder, each checked by its hash."""
    choice = Choice(tuple(Wanted(file.path, file.bytes, file.sha256) for file in files), ())
    try:
        _download(s3, Source(place.bucket, key_of(place, "")), choice, folder, tell)
    except (ArtifactsRefused, ArtifactsMissing) as error:
        raise PushFault(str(error)) from error
    return {"files": len(files)}


def check(s3: Any, shelf: Shelf, url_s: float) -> dict[str, Any]:
    """Try a presigned URL; return {"ends_in_s"} of the credentials, None where they have no end."""
    import urllib.error
    import urllib.request

    key = f"{shelf.base}.gpujob-probe"
    what = {"Bucket": shelf.place.bucket, "Key": key}
    # Listed first: some stores make a bucket by the first object put into it.
    s3.list_objects_v2(Bucket=shelf.place.bucket, Prefix=shelf.base, MaxKeys=1)
    made = _url(s3, "put_object", what, hashlib.sha256(b"").hexdigest(), url_s)
    request = urllib.request.Request(  # noqa: S310 - the person's own endpoint
        made["url"], data=b"", headers=made["headers"], method="PUT"
    )
    try:
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        said = f"it refuses a presigned URL (HTTP {error.code})"
        raise PushFault(said, "Checkpoints need a store that takes presigned URLs") from error
    except OSError as error:
        raise PushFault(f"not in reach: {error}", "Check AWS_ENDPOINT_URL", retry=True) from error
    s3.delete_object(Bucket=shelf.place.bucket, Key=key)
    credentials = s3._request_signer._credentials  # noqa: SLF001 - boto names its end nowhere else
    left = getattr(credentials, "_seconds_remaining", None)
    return {"ends_in_s": left() if left is not None else None}


def _url(s3: Any, verb: str, what: Mapping[str, Any], sha256: str, url_s: float) -> dict[str, Any]:
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    params = {**what, "ChecksumSHA256": digest}
    lasts = int(max(SHORTEST_URL_S, min(url_s, LONGEST_URL_S)))
    url = s3.generate_presigned_url(verb, Params=params, ExpiresIn=lasts)
    return {"url": url, "headers": {"x-amz-checksum-sha256": digest}}


def _parts(file: Sent) -> list[tuple[int, int, int]]:
    """Return number, offset and size of each part."""
    length = part_bytes(file.bytes)
    starts = range(0, file.bytes, length)
    return [(n, at, min(length, file.bytes - at)) for n, at in enumerate(starts, 1)]


def _finished(s3: Any, shelf: Shelf, step: int, file: Sent) -> bool:
    """Return whether a file is there by its hash, put together from its parts if need be."""
    bucket, key = shelf.place.bucket, f"{shelf.base}checkpoint-{step}/{file.path}"
    if _is_there(s3, bucket, key, file):
        return True
    if not file.parts:
        return False
    upload, have = resumed(s3, bucket, key)
    if any(have.get(number, {}).get("Size") != size for number, _, size in _parts(file)):
        return False
    parts = [
        {
            "PartNumber": number,
            "ETag": have[number]["ETag"],
            "ChecksumSHA256": base64.b64encode(bytes.fromhex(sha256)).decode(),
        }
        for number, sha256 in enumerate(file.parts, 1)
    ]
    try:
        s3.complete_multipart_upload(
            Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
        )
    except Exception as error:
        if not hasattr(error, "response") or status_of(error) >= 500:
            raise
        s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
        return False
    if _is_there(s3, bucket, key, file):
        return True
    s3.delete_object(Bucket=bucket, Key=key)  # parts of another content: sent anew
    return False


def _is_there(s3: Any, bucket: str, key: str, file: Sent) -> bool:
    """Return whether an object has this content, by the store's word, else by reading it."""
    try:
        head = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except Exception as error:
        if hasattr(error, "response") and status_of(error) == 404:
            return False
        raise
    if head["ContentLength"] != file.bytes:
        return False
    said = str(head.get("ChecksumSHA256", ""))
    if said:
        whole = bytes.fromhex(file.sha256)
        joined = hashlib.sha256(b"".join(map(bytes.fromhex, file.parts))).digest()
        digest = base64.b64encode(joined if "-" in said else whole).decode()
        return said == (f"{digest}-{len(file.parts)}" if "-" in said else digest)
    hasher = hashlib.sha256()
    for chunk in s3.get_object(Bucket=bucket, Key=key)["Body"].iter_chunks(CHUNK):
        hasher.update(chunk)
    return hasher.hexdigest() == file.sha256


def _manifest(s3: Any, shelf: Shelf, step: int) -> Mapping[str, Any] | None:
    key = f"{shelf.base}checkpoint-{step}/{checkpoint.MANIFEST}"
    try:
        body = s3.get_object(Bucket=shelf.place.bucket, Key=key)["Body"].read(MANIFEST_BYTES)
        document = json.loads(body)
    except ValueError:
        return {}
    except Exception as error:
        if hasattr(error, "response") and status_of(error) == 404:
            return None
        raise
    return document if isinstance(document, dict) else {}


def _keys(s3: Any, shelf: Shelf) -> dict[int, list[str]]:
    """Return the keys below each step."""
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=shelf.place.bucket, Prefix=shelf.base
    )
    found: dict[int, list[str]] = {}
    for page in pages:
        for entry in page.get("Contents", []):
            name = _NAME.fullmatch(entry["Key"].removeprefix(shelf.base).partition("/")[0])
            if name:
                found.setdefault(int(name[1]), []).append(entry["Key"])
    return found


def _published(s3: Any, shelf: Shelf) -> list[int]:
    return [step for step, keys in _keys(s3, shelf).items() if _is_published(keys)]


def _is_published(keys: Sequence[str]) -> bool:
    return any(key.endswith(f"/{checkpoint.MANIFEST}") for key in keys)


def _prune(s3: Any, shelf: Shelf, keep: int) -> None:
    """Remove all but the newest `keep` whole ones, manifests first, and unfinished older ones."""
    bucket, found = shelf.place.bucket, _keys(s3, shelf)
    whole = sorted(step for step, keys in found.items() if _is_published(keys))
    if not whole:
        return
    kept = set(whole[-keep:])
    for step, keys in found.items():
        if step in kept or step > whole[-1]:
            continue
        for key in sorted(keys, key=lambda key: not key.endswith(f"/{checkpoint.MANIFEST}")):
            s3.delete_object(Bucket=bucket, Key=key)
    uploads = s3.list_multipart_uploads(Bucket=bucket, Prefix=shelf.base).get("Uploads", [])
    for upload in uploads:
        name = _NAME.fullmatch(upload["Key"].removeprefix(shelf.base).partition("/")[0])
        if name and int(name[1]) <= whole[-1]:
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def _download(s3: Any, where: Source, choice: Choice, part: Path, tell: Tell) -> None:
    """Bring what is chosen into `part`; raises ArtifactsRefused, ArtifactsMissing, PushFault."""
    part.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = shutil.disk_usage(part).free
    if choice.total_bytes + SPARE_BYTES > free:
        need = choice.total_bytes
        message = f"the checkpoint needs {need:,} bytes, {part.parent} has {free:,} free"
        raise PushFault(message, "Make room there")
    done = 0
    for wanted in choice.wanted:
        target = part / wanted.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        hasher = hashlib.sha256()
        try:
            body = s3.get_object(Bucket=where.bucket, Key=where.prefix + wanted.path)["Body"]
        except Exception as error:
            if hasattr(error, "response") and status_of(error) == 404:
                raise ArtifactsMissing(f"{wanted.path} is not there") from error
            raise
        with contextlib.closing(body), target.open("wb") as file:
            for chunk in body.iter_chunks(CHUNK):
                hasher.update(chunk)
                file.write(chunk)
                done += len(chunk)
                tell(done, choice.total_bytes)
        if hasher.hexdigest() != wanted.sha256:
            target.unlink()
            raise ArtifactsRefused(f"{wanted.path} is not what its manifest says")
        sync(target)
