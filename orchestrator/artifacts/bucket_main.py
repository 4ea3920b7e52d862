"""The process that holds a store's key: one request as a JSON line on stdin, one answer on stdout.

It ends when its stdin does. Credentials are in its environment, and nowhere else.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from jobs.targets import Bucket, target
from orchestrator.artifacts import bucket
from orchestrator.artifacts.push import PushFault
from orchestrator.artifacts.push_main import end_with_parent, say
from orchestrator.artifacts.push_s3 import key_of
from orchestrator.redact import redact, remember_secrets, secrets_in


def main() -> int:
    """Do what the request says and answer; returns 0 where an answer was given."""
    request = json.loads(sys.stdin.buffer.readline())
    remember_secrets(secrets_in(os.environ))
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        say({"answer": _answer(request)})
    except PushFault as fault:
        said = redact(f"{request['target']}: {fault}")
        say({"fault": {"error": said, "remedy": fault.remedy, "retry": fault.retry}})
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told
        said = redact(f"{request['target']}: {type(error).__name__}: {error}")
        say({"fault": {"error": said, "remedy": "", "retry": True}})
    return 0


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from orchestrator.artifacts.push_s3 import client, meanings

    place = target(request["target"])
    if not isinstance(place, Bucket):
        raise PushFault("no bucket", "Write s3://bucket/prefix")
    shelf = bucket.Shelf(place, request["subfolder"])
    files = [
        bucket.Sent(file["path"], file["bytes"], file["sha256"], tuple(file["parts"]))
        for file in request.get("files", [])
    ]
    with meanings():
        s3 = client()
        if request["do"] == "grant":
            return bucket.grant(s3, shelf, request["step"], files, request["url_s"])
        if request["do"] == "publish":
            return bucket.publish(s3, shelf, request["step"], files, request["keep"])
        if request["do"] == "check":
            return bucket.check(s3, shelf, request["url_s"])
        if request["do"] == "list":
            return bucket.listed(s3, shelf)
        if request["do"] in {"rescue set", "rescued"}:
            return _rescue(s3, shelf, request)
        tell = lambda done, total: say({"done": done, "total": total})  # noqa: E731
        folder = Path(request["folder"])
        if request["do"] == "pull":
            return bucket.pull(s3, place, files, folder, tell)
        return bucket.fetch(s3, shelf, folder, tell, adapter=request["adapter"])


def _rescue(s3: Any, shelf: bucket.Shelf, request: dict[str, Any]) -> dict[str, Any]:
    from orchestrator.artifacts import rescue_store

    where = f"{shelf.subfolder}/rescue/attempt-{request['attempt']}/"
    source = bucket.Source(shelf.place.bucket, key_of(shelf.place, where))
    if request["do"] == "rescue set":
        return rescue_store.grants(s3, source, request["url_s"])
    folder = Path(request["folder"])
    return rescue_store.fetch(s3, source, folder, adapter=request["adapter"])


if __name__ == "__main__":
    sys.exit(main())
