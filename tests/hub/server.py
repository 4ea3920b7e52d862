"""A small stand-in for the Hugging Face Hub: what huggingface_hub asks of it for a push.

Tokens with roles, private and public repositories, LFS uploads with verification, commits with a
parent, branches. Faults are set from the test: `refuse` (status by kind of call), `lose` (do it,
then drop the connection without an answer).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LFS_OVER = 10 * 1024  # bytes; safetensors always go by LFS


@dataclass
class Blob:
    """One file of a revision."""

    data: bytes
    lfs: bool

    def entry(self, path: str) -> dict[str, Any]:
        """Return it as a tree lists it."""
        oid = git_oid(self.data)
        made: dict[str, Any] = {"type": "file", "path": path, "size": len(self.data), "oid": oid}
        if self.lfs:
            sha256 = hashlib.sha256(self.data).hexdigest()
            made["lfs"] = {"oid": sha256, "size": len(self.data), "pointerSize": 130}
        return made


@dataclass
class Repo:
    """One repository: commits newest last, branches by name."""

    private: bool
    commits: list[tuple[str, str, dict[str, Blob]]] = field(default_factory=list)  # oid, title
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, title: str, files: dict[str, Blob], branch: str = "main") -> str:
        """Add a commit and return its id."""
        seed = f"{title}{len(self.commits)}{sorted(files)}"
        oid = hashlib.sha1(seed.encode()).hexdigest()
        self.commits.append((oid, title, files))
        self.branches[branch] = oid
        return oid

    def files(self, revision: str) -> dict[str, Blob] | None:
        """Return the files of a branch or commit."""
        oid = self.branches.get(revision, revision)
        return next((files for known, _, files in self.commits if known == oid), None)


def git_oid(data: bytes) -> str:
    """Return git's id of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """The server. tokens: token to (user, role); all may write in `lab`, none in `hall`."""

    def __init__(self) -> None:
        self.tokens = {
            "hf_writewritewritewrite": ("ada", "write"),
            "hf_readreadreadreadread": ("ada", "read"),
        }
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.refuse: dict[str, int] = {}
        self.lose: dict[str, int] = {}  # kind of call -> how many answers are still to be lost
        self.lock = threading.Lock()
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def environ(self, token: str = "hf_writewritewritewrite") -> dict[str, str]:
        """Return what a client needs."""
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": token}


class _Handler(BaseHTTPRequestHandler):
    server_hub: Hub
    protocol_version = "HTTP/1.1"

    ROUTES = (
        ("GET", r"/api/whoami-v2", "whoami"),
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "yaml"),
        ("POST", r"/api/models/([^/]+/[^/]+)/preupload/(.+)", "preupload"),
        ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
        ("PUT", r"/lfs/([0-9a-f]{64})", "put"),
        ("POST", r"/lfs/verify", "verify"),
        ("POST", r"/api/models/([^/]+/[^/]+)/commit/(.+)", "commit"),
        ("POST", r"/api/models/([^/]+/[^/]+)/branch/(.+)", "branch"),
        ("GET", r"/api/models/([^/]+/[^/]+)/tree/([^/]+)/?.*", "tree"),
        ("GET", r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", "info"),
        ("GET", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve"),
    )

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        path = unquote(urlsplit(self.path).path)
        for method, pattern, name in self.ROUTES:
            found = re.fullmatch(pattern, path)
            if method == self.command and found:
                self._answer(name, found.groups(), body)
                return
        self._reply(404, {"error": "no such page"})

    do_GET = do_POST = do_PUT = do_HEAD = _serve  # noqa: N815 - http.server calls them so

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, name: str, words: tuple[Any, ...], body: bytes) -> None:
        hub = self.server_hub
        with hub.lock:
            hub.calls.append(name)
            if name in hub.refuse:
                self._reply(hub.refuse[name], {"error": f"{name} is refused"})
                return
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            who = hub.tokens.get(token)
            if who is None and name not in {"put", "verify"}:
                self._reply(401, {"error": "Invalid credentials in Authorization header"})
                return
            writes = name in {"create", "preupload", "batch", "commit", "branch"}
            if writes and who is not None and who[1] == "read":
                self._reply(403, {"error": "this token may only read"})
                return
            status, answer = getattr(self, f"_{name}")(*words, body)
            if hub.lose.get(name, 0) > 0:
                hub.lose[name] -= 1
                self.close_connection = True
                self.connection.shutdown(2)
                return
        self._reply(status, answer)

    def _reply(self, status: int, answer: Any) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _whoami(self, _: bytes) -> Any:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        name, role = self.server_hub.tokens[token]
        orgs = [
            {"name": "lab", "roleInOrg": "write", "type": "org"},
            {"name": "hall", "roleInOrg": "read", "type": "org"},
        ]
        access = {"displayName": "t", "role": role}
        if role == "fineGrained":
            scope = {"entity": {"name": "lab", "type": "org"}, "permissions": ["repo.write"]}
            access["fineGrained"] = {"scoped": [scope], "global": []}  # type: ignore[assignment]
        auth = {"type": "access_token", "accessToken": access}
        return 200, {"type": "user", "name": name, "orgs": orgs, "auth": auth}

    def _create(self, body: bytes) -> Any:
        asked = json.loads(body)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        owner = asked.get("organization") or self.server_hub.tokens[token][0]
        name = f"{owner}/{asked['name']}"
        url = {"url": f"{self.server_hub.url}/{name}"}
        if name in self.server_hub.repos:
            return 409, {"error": "You already created this model repo", **url}
        private = asked.get("visibility") == "private" or asked.get("private") is True
        repo = self.server_hub.repos[name] = Repo(private)
        repo.commit("initial commit", {".gitattributes": Blob(b"*.safetensors lfs\n", lfs=False)})
        return 200, url

    def _yaml(self, _: bytes) -> Any:
        return 200, {"errors": [], "warnings": []}

    def _preupload(self, name: str, revision: str, body: bytes) -> Any:
        repo = self._repo(name)
        have = (repo.files(revision) if repo is not None else None) or {}
        files = []
        for asked in json.loads(body)["files"]:
            path = asked["path"]
            lfs = path.endswith(".safetensors") or asked["size"] > LFS_OVER
            made: dict[str, Any] = {
                "path": path,
                "uploadMode": "lfs" if lfs else "regular",
                "shouldIgnore": False,
            }
            if path in have:
                entry = have[path].entry(path)
                made["oid"] = entry["lfs"]["oid"] if lfs and "lfs" in entry else entry["oid"]
            files.append(made)
        return 200, {"files": files}

    def _batch(self, _name: str, body: bytes) -> Any:
        hub, made = self.server_hub, []
        for asked in json.loads(body)["objects"]:
            one: dict[str, Any] = {"oid": asked["oid"], "size": asked["size"]}
            if asked["oid"] not in hub.objects:
                one["actions"] = {
                    "upload": {"href": f"{hub.url}/lfs/{asked['oid']}"},
                    "verify": {"href": f"{hub.url}/lfs/verify"},
                }
            made.append(one)
        return 200, {"transfer": "basic", "objects": made}

    def _put(self, oid: str, body: bytes) -> Any:
        if hashlib.sha256(body).hexdigest() != oid:
            return 400, {"error": "other content than said"}
        self.server_hub.objects[oid] = body
        return 200, {}

    def _verify(self, body: bytes) -> Any:
        asked = json.loads(body)
        data = self.server_hub.objects.get(asked["oid"])
        return (200, {}) if data is not None and len(data) == asked["size"] else (404, {})

    def _commit(self, name: str, revision: str, body: bytes) -> Any:
        repo = self._repo(name)
        if repo is None:
            return 404, {"error": "Repository not found"}
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        head = next(line["value"] for line in lines if line["key"] == "header")
        if head.get("parentCommit") not in {None, repo.branches.get(revision)}:
            return 412, {"error": "A commit has happened since. Please refresh and try again."}
        files = dict(repo.files(revision) or {})
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]), lfs=False)
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.server_hub.objects:
                    return 400, {"error": "LFS object is not there"}
                files[value["path"]] = Blob(self.server_hub.objects[value["oid"]], lfs=True)
        oid = repo.commit(head["summary"], files, revision)
        url = f"{self.server_hub.url}/{name}/commit/{oid}"
        return 200, {"success": True, "commitOid": oid, "commitUrl": url}

    def _branch(self, name: str, branch: str, body: bytes) -> Any:
        repo = self._repo(name)
        if repo is None:
            return 404, {"error": "Repository not found"}
        if branch in repo.branches:
            return 409, {"error": "Reference already exists"}
        repo.branches[branch] = json.loads(body or b"{}").get("startingPoint", "main")
        return 200, {}

    def _tree(self, name: str, revision: str, _: bytes) -> Any:
        repo = self._repo(name)
        files = repo.files(revision) if repo is not None else None
        if files is None:
            return 404, {"error": "Not found"}
        return 200, [blob.entry(path) for path, blob in sorted(files.items())]

    def _info(self, name: str, revision: str | None, _: bytes) -> Any:
        repo = self._repo(name)
        if repo is None or repo.files(revision or "main") is None:
            return 404, {"error": "Repository not found"}
        sha = repo.branches.get(revision or "main", revision)
        siblings = [{"rfilename": path} for path in repo.files(revision or "main") or {}]
        return 200, {"id": name, "sha": sha, "private": repo.private, "siblings": siblings}

    def _resolve(self, name: str, revision: str, path: str, _: bytes) -> Any:
        repo = self._repo(name)
        blob = ((repo.files(revision) if repo is not None else None) or {}).get(path)
        return (200, blob.data) if blob is not None else (404, {"error": "Entry not found"})

    def _repo(self, name: str) -> Repo | None:
        return self.server_hub.repos.get(name)
