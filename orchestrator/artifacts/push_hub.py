"""Pushing to the Hugging Face Hub by huggingface_hub: one commit, read back by its hashes.

The commit goes to `main`, where people load from, and a branch named after the attempt holds it for
good. Each try first compares what the hub has: a commit whose answer was lost is found there, so it
is never made twice; and a commit names its parent, so a late copy of it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.targets import Repo
from orchestrator.artifacts.push import File, Order, PushFault, Tell, with_manifest

COMMITS = 4  # tries of the commit, each after a look at what is there
_TOKEN = "Make a token with write access and set HF_TOKEN (environment or .env)"  # noqa: S105
_RIGHTS = "Give the token write access to this owner's repositories"
_LATER = "Check the network; gpujob push tries again"
READ_ROLES = frozenset({"read"})


def api() -> Any:
    """Return the client; its token from HF_TOKEN or from `hf auth login`. Raises PushFault."""
    from huggingface_hub import HfApi, get_token

    token = get_token()
    if not token:
        raise PushFault("there is no token of the hub here", _TOKEN)
    return HfApi(token=token)


def check(hub: Any, place: Repo) -> tuple[str, ...]:
    """Ask who the token is and what it may; creates nothing. Returns notes, raises PushFault."""
    from huggingface_hub.errors import RepositoryNotFoundError

    with _meanings():
        me = hub.whoami()
        _check_role(me, place)
        try:
            info = hub.model_info(place.id)
        except RepositoryNotFoundError:
            return ()
    if info.private is False:
        return (f"{place} is there and public: everybody will see the result",)
    return ()


def _check_role(me: dict[str, Any], place: Repo) -> None:
    """Raise PushFault where the token may not write below this owner."""
    token = (me.get("auth") or {}).get("accessToken") or {}
    role = str(token.get("role", ""))
    if role in READ_ROLES:
        raise PushFault("the token may only read", _TOKEN)
    orgs = {str(org.get("name")): org for org in me.get("orgs") or ()}
    if place.owner != me.get("name") and place.owner not in orgs:
        mine = str(me.get("name"))
        message = f"the token is {mine}'s, who is not in {place.owner}"
        raise PushFault(message, f"Write hf://{mine}/{place.name}, or use another token")
    if str(orgs.get(place.owner, {}).get("roleInOrg", "")) == "read":
        raise PushFault(f"you may only read in {place.owner}", "Ask its administrator")
    if role == "fineGrained" and not _may_write(token.get("fineGrained") or {}, place):
        raise PushFault(f"the token has no write access to {place.id}", _RIGHTS)


def _may_write(fine: dict[str, Any], place: Repo) -> bool:
    """Return whether a fine-grained token lists the right; lists of another form are trusted."""
    scopes = fine.get("scoped")
    if not isinstance(scopes, list):
        return True
    names = {place.owner, place.id}
    return any(
        "repo.write" in (scope.get("permissions") or ())
        for scope in scopes
        if isinstance(scope, dict) and (scope.get("entity") or {}).get("name") in names
    )


def push(hub: Any, place: Repo, order: Order, tell: Tell) -> str:
    """Return the commit's address, everything in it compared by size and hash."""
    files = with_manifest(order)
    folder, total = Path(order.folder), sum(size for _, size, _ in files)
    wanted = {name: (folder / name, size, sha256) for name, size, sha256 in files}
    with _meanings():
        hub.create_repo(place.id, private=True, exist_ok=True, repo_type="model")
        head = _head(hub, place)
        missing = _missing(hub, place, head, wanted)
        for last in range(1, COMMITS + 1):
            if not missing:
                break
            size = sum(wanted[name][1] for name in missing)
            tell(total - size, total)
            lost = _commit(hub, place, order, [f for f in files if f[0] in missing], head)
            head = _head(hub, place)
            missing = _missing(hub, place, head, wanted)
            if missing and lost is not None and last == COMMITS:
                raise lost
        if missing:
            raise PushFault(f"the hub does not have {', '.join(sorted(missing))}", retry=True)
        hub.create_branch(place.id, branch=order.revision, revision=head, exist_ok=True)
    tell(total, total)
    return f"{place}@{head}"


def _head(hub: Any, place: Repo) -> str:
    return str(hub.model_info(place.id, revision="main").sha)


def _missing(
    hub: Any, place: Repo, revision: str, wanted: dict[str, tuple[Path, int, str]]
) -> set[str]:
    """Return the names that the revision does not hold with this content."""
    missing = set(wanted)
    for entry in hub.list_repo_tree(place.id, recursive=True, revision=revision):
        if entry.path not in wanted:
            continue
        path, size, sha256 = wanted[entry.path]
        lfs, blob = getattr(entry, "lfs", None), getattr(entry, "blob_id", "")
        if getattr(entry, "size", -1) != size:
            continue
        if lfs.sha256 == sha256 if lfs is not None else blob == _git_oid(path):
            missing.discard(entry.path)
    return missing


def _commit(
    hub: Any, place: Repo, order: Order, files: list[File], parent: str
) -> Exception | None:
    """Ask for the commit; return the error after which it may have been made all the same."""
    import httpx2
    from huggingface_hub import CommitOperationAdd
    from huggingface_hub.errors import HfHubHTTPError

    folder = Path(order.folder)
    try:
        hub.create_commit(
            place.id,
            [CommitOperationAdd(name, folder / name) for name, _, _ in files],
            commit_message=f"{order.name}: attempt {order.attempt} of job {order.job}",
            commit_description="Pushed by gpujob.",
            parent_commit=parent,
            revision="main",
        )
    except HfHubHTTPError as error:
        if _status(error) == 412 or _status(error) >= 500:  # moved on, or nobody knows
            return error
        raise
    except httpx2.TransportError as error:
        return error
    return None


def _git_oid(path: Path) -> str:
    """Return the git id of a file's content, by which the hub names what is no LFS object."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _meanings() -> Iterator[None]:
    """Turn whatever huggingface_hub raises into a PushFault."""
    import httpx2
    from huggingface_hub import errors as hub

    try:
        yield
    except hub.HfHubHTTPError as error:
        raise _meaning(error) from error
    except hub.OfflineModeIsEnabled as error:
        raise PushFault("HF_HUB_OFFLINE is set", "Unset it for a job that pushes") from error
    except hub.HFValidationError as error:
        raise PushFault(str(error), "Mend the repository's name") from error
    except hub.LocalTokenNotFoundError as error:
        raise PushFault("there is no token of the hub here", _TOKEN) from error
    except (httpx2.TransportError, ConnectionError, TimeoutError) as error:
        raise PushFault(f"not in reach: {error}", _LATER, retry=True) from error


def _meaning(error: Any) -> PushFault:
    status = _status(error)
    if status == 401:
        return PushFault("the hub does not know the token", _TOKEN)
    if status in {402, 413}:
        return PushFault(f"the hub has no room for it: {error}", "See its owner's plan on the hub")
    if status == 403:
        return PushFault("the token may not write there", _RIGHTS)
    if status == 404:
        return PushFault("the hub shows no such repository to this token", _RIGHTS)
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    retry = status >= 500 or status in {0, 408, 409, 412, 429}
    return PushFault(f"HTTP {status}: {first}", _LATER if retry else "", retry=retry)


def _status(error: Any) -> int:
    return int(getattr(getattr(error, "response", None), "status_code", 0) or 0)
