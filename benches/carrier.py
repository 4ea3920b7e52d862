"""Sending a checkpoint of 200 MB by presigned URLs beside boto3's upload_file, in one run.

python benches/carrier.py [MEGABYTES]
"""

import random
import sys
import tempfile
from functools import partial
from pathlib import Path

from benches.meter import line, own_cpu
from jobs.targets import Bucket
from orchestrator.agent import carrier, listing
from orchestrator.artifacts import bucket
from orchestrator.artifacts.manifest import Choice, Wanted
from tests.support.s3_server import S3Server


def make(folder: Path, megabytes: int) -> Path:
    """Make a checkpoint of one file of noise, and what the agent needs to list it."""
    place = folder / "out" / "checkpoint-10"
    place.mkdir(parents=True)
    (folder / "order.json").write_text("{}")
    noise = random.Random(1)
    with (place / "optimizer.pt").open("wb") as file:
        for _ in range(megabytes):
            file.write(noise.randbytes(1_000_000))
    return place / "optimizer.pt"


def by_urls(s3: object, shelf: bucket.Shelf, folder: Path) -> None:
    """List with hashes, grant, send, verify and publish: all that a checkpoint costs."""
    document = listing.manifest(str(folder), "10")
    wanted = [Wanted(file["path"], file["bytes"], file["sha256"]) for file in document["files"]]
    files = bucket.sent_files(document, Choice(tuple(wanted), ()))
    granted = bucket.grant(s3, shelf, 10, files, 600)
    items = [
        carrier.Item(f"out/checkpoint-10/{item['path']}", item["offset"], item["bytes"],
                     item["url"], item["headers"])
        for item in granted["items"]
    ]  # fmt: skip
    state = carrier.send_all(str(folder), items, None, lambda _: None, {"done": 0})
    assert not state["failed"], state
    assert bucket.publish(s3, shelf, 10, files, 2)["whole"]


def main(megabytes: int = 200) -> None:
    """Print both, twice in turns: the second pair meets a warm store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = S3Server(folder / "s3")
        server.start()
        s3, path = server.client(), make(folder / "far", megabytes)
        try:
            for turn in (1, 2):
                shelf = bucket.Shelf(Bucket("results", "bench"), f"turn-{turn}")
                ours = own_cpu(partial(by_urls, s3, shelf, folder / "far"))
                theirs = own_cpu(partial(s3.upload_file, str(path), "results", f"theirs-{turn}"))
                size = path.stat().st_size
                print(line("  boto3 upload_file", size, *theirs))
                print(line("  URLs: hash, grant, send, verify", size, *ours))
                print(f"  ratio {ours[0] / theirs[0]:.2f}")
        finally:
            server.kill()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
