"""Pushing to an S3 store by boto3: what is missing is sent, everything is read back.

Objects lie below `prefix/<job name>-<job id>/`, the manifest is the last. Large files go in parts;
an upload that was cut off is found again and continued, part by part.
"""

from __future__ import annotations

import base64
import hashlib
import math
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.targets import Bucket
from orchestrator.artifacts.push import CHUNK, File, Order, PushFault, Tell, with_manifest

PART = 16 << 20  # bytes; at least 5 MiB by S3's rule
MAX_PARTS = 10_000  # by S3's rule
THREADS = 4
CONNECT_S, READ_S = 10, 60
TRIES = 4  # of one request, by botocore

_KEY = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_RIGHTS = "Give the key the rights to put, get, list and delete below this prefix"
# Error codes of S3 with what they mean; others by their HTTP status.
_DEFINITE: dict[str, tuple[str, str]] = {
    "NoSuchBucket": ("there is no such bucket", "Create it, or mend its name"),
    "InvalidAccessKeyId": ("the store does not know the access key", _KEY),
    "SignatureDoesNotMatch": ("the store refuses the secret key", _KEY),
    "InvalidToken": ("the store refuses the session token", "Renew AWS_SESSION_TOKEN"),
    "ExpiredToken": ("the session token has run out", "Renew AWS_SESSION_TOKEN"),
    "AccessDenied": ("the key may not do this", _RIGHTS),
    "AllAccessDisabled": ("the bucket is closed", "Ask its owner"),
    "RequestTimeTooSkewed": ("this machine's clock is wrong", "Set the clock"),
    "PermanentRedirect": ("the bucket lies in another region", "Set AWS_REGION"),
    "AuthorizationHeaderMalformed": ("the bucket lies in another region", "Set AWS_REGION"),
    "IllegalLocationConstraintException": ("the bucket lies in another region", "Set AWS_REGION"),
    "QuotaExceeded": ("the store is full", "Make room there"),
    "XMinioStorageFull": ("the store is full", "Make room there"),
}


def client() -> Any:
    """Return a client from the environment: AWS_* variables, profiles, any compatible endpoint."""
    import boto3
    from botocore.config import Config

    config = Config(
        signature_version="s3v4",
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"mode": "standard", "max_attempts": TRIES},
        request_checksum_calculation="when_required",  # ours are given with each request
        response_checksum_validation="when_required",
        max_pool_connections=THREADS + 2,
    )
    with meanings():
        return boto3.session.Session().client("s3", config=config)


def check(s3: Any, place: Bucket, order: Order) -> tuple[str, ...]:
    """Write, list and delete a probe; returns notes for a person, raises PushFault."""
    key = key_of(place, f".gpujob-probe-{secrets.token_hex(4)}")
    with meanings():
        # Listed first: some stores make a bucket by the first object put into it.
        s3.list_objects_v2(Bucket=place.bucket, Prefix=key_of(place, order.subfolder), MaxKeys=1)
        s3.put_object(Bucket=place.bucket, Key=key, Body=b"")
        try:
            s3.head_object(Bucket=place.bucket, Key=key)
        finally:
            left = _deleted(s3, place.bucket, key)
    return (f"{place}: the probe {key} could not be deleted: {left}",) if left else ()


def _deleted(s3: Any, bucket: str, key: str) -> str:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        s3.delete_object(Bucket=bucket, Key=key)
    except (BotoCoreError, ClientError) as error:
        return str(error)
    return ""


def push(s3: Any, place: Bucket, order: Order, tell: Tell) -> str:
    """Return the address below which everything lies, each object read back by its hash."""
    files = with_manifest(order)
    base = key_of(place, order.subfolder)
    total, done = sum(size for _, size, _ in files), 0
    with meanings():
        for name, size, sha256 in files:
            key, path = f"{base}/{name}", Path(order.folder) / name
            if not verified(s3, place.bucket, key, path, sha256):
                _send(s3, place.bucket, key, path, lambda more, done=done: tell(done + more, total))
                if not verified(s3, place.bucket, key, path, sha256):
                    message = f"{name} reads back otherwise than it was sent"
                    raise PushFault(message, "Try again: gpujob push", retry=True)
            done += size
            tell(done, total)
        missing = _unlisted(s3, place.bucket, base, files)
    if missing:
        raise PushFault(f"the listing does not show {', '.join(missing)}", retry=True)
    return f"s3://{place.bucket}/{base}"


def _unlisted(s3: Any, bucket: str, base: str, files: tuple[File, ...]) -> list[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{base}/")
    listed = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
    return [name for name, size, _ in files if listed.get(f"{base}/{name}") != size]


def verified(s3: Any, bucket: str, key: str, path: Path, sha256: str) -> bool:
    """Return whether the object is there with this content, by the store's own word for it.

    The store's sha256 counts, else its MD5 (the ETag); a store that has neither is read back.
    """
    from botocore.exceptions import ClientError

    try:
        head = s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except ClientError as error:
        if status_of(error) == 404:
            return False
        raise
    if head["ContentLength"] != path.stat().st_size:
        return False
    said = head.get("ChecksumSHA256", "")
    if said and "-" not in said:
        return bool(said == base64.b64encode(bytes.fromhex(sha256)).decode())
    if said:
        return bool(said == _composite(path))
    etag = str(head.get("ETag", "")).strip('"')
    if etag and etag == (_etag_of_parts(path) if "-" in etag else _md5(path)):
        return True
    digest = hashlib.sha256()
    for chunk in s3.get_object(Bucket=bucket, Key=key)["Body"].iter_chunks(CHUNK):
        digest.update(chunk)
    return digest.hexdigest() == sha256


def _send(s3: Any, bucket: str, key: str, path: Path, tell: Any) -> None:
    """Send one file, in one go or in the parts that are not there yet."""
    size = path.stat().st_size
    if size <= PART:
        body = path.read_bytes()
        s3.put_object(Bucket=bucket, Key=key, Body=body, ChecksumSHA256=b64_sha256(body))
        return
    upload, have = resumed(s3, bucket, key)
    parts: dict[int, dict[str, Any]] = {}
    sent = 0

    def one(number: int) -> tuple[int, dict[str, Any], int]:
        body = _part(path, number)
        known = have.get(number)
        md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
        checksum = b64_sha256(body)
        if known is None or known["ETag"].strip('"') != md5:
            known = s3.upload_part(
                Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body,
                ChecksumSHA256=checksum,
            )  # fmt: skip
        done = {"PartNumber": number, "ETag": known["ETag"], "ChecksumSHA256": checksum}
        return number, done, len(body)

    count = math.ceil(size / part_bytes(size))
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for number, part, length in pool.map(one, range(1, count + 1)):
                parts[number] = part
                sent += length
                tell(sent)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    s3.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload,
        MultipartUpload={"Parts": [parts[number] for number in sorted(parts)]},
    )  # fmt: skip


def resumed(s3: Any, bucket: str, key: str) -> tuple[str, dict[int, dict[str, Any]]]:
    """Return the newest unfinished upload of this key with its parts, or a fresh one."""
    uploads = s3.list_multipart_uploads(Bucket=bucket, Prefix=key).get("Uploads", [])
    ours = sorted((u for u in uploads if u["Key"] == key), key=lambda u: u["Initiated"])
    for older in ours[:-1]:
        s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=older["UploadId"])
    if not ours:
        made = s3.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256")
        return str(made["UploadId"]), {}
    upload = str(ours[-1]["UploadId"])
    pages = s3.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=upload)
    return upload, {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}


def part_bytes(size: int) -> int:
    """Return the size of a part: a function of the file's size alone, so that a retry has it."""
    least = math.ceil(size / MAX_PARTS)
    return max(PART, math.ceil(least / CHUNK) * CHUNK)


def _part(path: Path, number: int) -> bytes:
    length = part_bytes(path.stat().st_size)
    with path.open("rb") as file:
        file.seek((number - 1) * length)
        return file.read(length)


def _parts(path: Path) -> Iterator[bytes]:
    for number in range(1, math.ceil(path.stat().st_size / part_bytes(path.stat().st_size)) + 1):
        yield _part(path, number)


def _composite(path: Path) -> str:
    digests = [hashlib.sha256(part).digest() for part in _parts(path)]
    return f"{b64_sha256(b''.join(digests))}-{len(digests)}"


def _etag_of_parts(path: Path) -> str:
    digests = [hashlib.md5(part, usedforsecurity=False).digest() for part in _parts(path)]
    whole = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
    return f"{whole}-{len(digests)}"


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def b64_sha256(data: bytes) -> str:
    """Return the sha256 as S3's headers write it."""
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def key_of(place: Bucket, name: str) -> str:
    """Return the key of a name below a place."""
    return f"{place.prefix}/{name}" if place.prefix else name


@contextmanager
def meanings() -> Iterator[None]:
    """Turn whatever boto raises into a PushFault."""
    from botocore import exceptions as boto

    try:
        yield
    except boto.ClientError as error:
        raise _meaning(error) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
        remedy = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (environment or .env)"
        raise PushFault("there are no credentials for it here", remedy) from error
    except (boto.ProfileNotFound, boto.ConfigParseError, boto.InvalidConfigError) as error:
        raise PushFault(str(error), "Mend ~/.aws, or AWS_PROFILE") from error
    except boto.NoRegionError as error:
        raise PushFault("its region is not known", "Set AWS_REGION") from error
    except (boto.HTTPClientError, boto.ConnectionError) as error:  # connections, timeouts, proxies
        remedy = "Check AWS_ENDPOINT_URL, and that the store is up and in reach"
        raise PushFault(f"not in reach: {error}", remedy, retry=True) from error
    except boto.BotoCoreError as error:
        raise PushFault(str(error), "Check AWS_ENDPOINT_URL and AWS_REGION") from error
    except ValueError as error:  # an endpoint that is no address
        raise PushFault(str(error), "Mend AWS_ENDPOINT_URL") from error


def _meaning(error: Any) -> PushFault:
    code, status = str(error.response.get("Error", {}).get("Code", "")), status_of(error)
    if code in _DEFINITE:
        return PushFault(*_DEFINITE[code])
    if status in {401, 403}:
        return PushFault(f"the store refuses the key (HTTP {status})", _RIGHTS)
    if status == 404 and error.operation_name != "UploadPart":
        return PushFault(*_DEFINITE["NoSuchBucket"])
    # NoSuchUpload: somebody aborted it; the next try begins a new one.
    retry = status >= 500 or status in {404, 408, 409, 429} or code in {"BadDigest", "NoSuchUpload"}
    return PushFault(f"{error.operation_name}: {code} (HTTP {status})", retry=retry)


def status_of(error: Any) -> int:
    """Return the HTTP status of a ClientError, 0 where it has none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
