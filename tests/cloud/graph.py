"""The GraphQL face: parsed for real, answered with HTTP 200 and `errors`, fields as they are asked.

Without a schema: the root fields are few, each has a function here, and what it returns is cut to
the selection. A field that nobody knows is an error, as it is at RunPod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphql import GraphQLError, parse
from graphql.language import ast
from graphql.utilities import value_from_ast_untyped

from tests.cloud import catalog, rest
from tests.cloud.answers import NO_CAPACITY, Answer, Refused
from tests.cloud.clock import iso
from tests.cloud.pod import Pod
from tests.cloud.rest import Request
from tests.cloud.world import World

WRONG = "Something went wrong. Please try again later or contact support."
HOST_FULL = "There are not enough free GPUs on the host machine to start this pod."
NOT_FOUND = "pod not found to terminate"
MINUTES_TO_KEEP = frozenset({"stopAfter", "terminateAfter"})  # accepted, never acted upon
INPUTS = frozenset(
    {"name", "imageName", "cloudType", "startSsh", "startJupyter", "gpuTypeId", "supportPublicIp",
     "gpuCount", "volumeInGb", "minVcpuCount", "minMemoryInGb", "allowedCudaVersions",
     "minCudaVersion", "dataCenterId", "countryCode", "dockerArgs", "containerDiskInGb", "ports",
     "volumeMountPath", "networkVolumeId", "env", "templateId", "minDownload", "minUpload",
     "containerRegistryAuthId", "compliance", "deployCost", "bidPerGpu"}
) | MINUTES_TO_KEEP  # fmt: skip
PUBLIC = frozenset({"gpuTypes"})  # answered without any key


class Failed(Exception):  # noqa: N818 - an answer, carried up
    def __init__(self, message: str, code: str = "BAD_USER_INPUT") -> None:
        super().__init__(message)
        self.code = code


def answer(world: World, request: Request) -> Answer:
    """Return the answer to POST /graphql."""
    body = request.body if isinstance(request.body, dict) else {}
    try:
        operation = parsed(str(body.get("query", "")))
    except GraphQLError as error:
        return errors(str(error.message), "GRAPHQL_PARSE_FAILED", 400)
    variables = body.get("variables") or {}
    data: dict[str, Any] = {}
    try:
        for field in operation.selection_set.selections:
            assert isinstance(field, ast.FieldNode)
            name = field.name.value
            scope = None if name in PUBLIC else authorise(world, request, operation)
            found = roots()[name](world, arguments(field, variables), scope)
            data[field.alias.value if field.alias else name] = cut(found, field, variables)
    except KeyError as error:
        return errors(f'Cannot query field "{error.args[0]}".', "GRAPHQL_VALIDATION_FAILED", 400)
    except Failed as error:
        return errors(str(error), error.code, data=data or None)
    except Refused as refused:
        return refused_in_words(refused)
    return Answer(200, {"data": data})


def parsed(query: str) -> ast.OperationDefinitionNode:
    for definition in parse(query).definitions:
        if isinstance(definition, ast.OperationDefinitionNode):
            return definition
    raise GraphQLError("Must provide an operation.")


def errors(message: str, code: str, status: int = 200, data: Any = None) -> Answer:
    return Answer(
        status, {"errors": [{"message": message, "extensions": {"code": code}}], "data": data}
    )


def refused_in_words(refused: Refused) -> Answer:
    """Return v2's refusal in GraphQL's form: HTTP 200 but for a bad key."""
    body = refused.answer.body
    if body["status"] == 401:
        return errors("Unauthorized", "UNAUTHENTICATED", 401)
    code = "INTERNAL_SERVER_ERROR" if body["status"] >= 500 else "RUNPOD"
    return errors(WRONG if body["status"] >= 500 else body["detail"], code)


def authorise(world: World, request: Request, operation: ast.OperationDefinitionNode) -> str:
    """Return the scope of the key, as REST does; a read-only key may query."""
    if request.key == world.settings.read_key and operation.operation.value == "query":
        return "read"
    return rest.authorise(world, request)


def arguments(field: ast.FieldNode, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the `input` of a field."""
    given = {
        a.name.value: value_from_ast_untyped(a.value, variables) for a in field.arguments or ()
    }
    found = given.get("input") or {}
    assert isinstance(found, dict)
    return found


def cut(value: Any, field: ast.FieldNode, variables: dict[str, Any]) -> Any:
    """Return the value cut to what is asked of it; raises KeyError on a field that it has not."""
    if isinstance(value, list):
        return [cut(each, field, variables) for each in value]
    if value is None or field.selection_set is None:
        return None if isinstance(value, dict) else value
    found = {}
    for asked in field.selection_set.selections:
        assert isinstance(asked, ast.FieldNode)
        inner = value[asked.name.value]
        inner = inner(arguments(asked, variables)) if callable(inner) else inner
        found[asked.name.value] = cut(inner, asked, variables)
    return found


# ---------------------------------------------------------------- the root fields
def roots() -> dict[str, Callable[[World, dict[str, Any], str | None], Any]]:
    return {
        "gpuTypes": gpu_types,
        "myself": myself,
        "pod": one_pod,
        "podFindAndDeployOnDemand": deploy,
        "podRentInterruptable": rent,
        "deployCpuPod": deploy,
        "podTerminate": terminate,
        "podStop": stop,
        "podResume": resume,
        "podBidResume": resume,
        "updateUserSettings": settings,
    }


def gpu_types(world: World, given: dict[str, Any], _scope: str | None) -> list[dict[str, Any]]:
    chosen = [g for g in catalog.GPUS.values() if given.get("id") in (None, g.id)]
    return [gpu_words(world, gpu) for gpu in chosen]


def gpu_words(world: World, gpu: catalog.GpuType) -> dict[str, Any]:
    spot = float(gpu.spot_usd) or None

    def lowest(given: dict[str, Any]) -> dict[str, Any]:
        secure = given.get("secureCloud", True)
        price = gpu.secure_usd if secure else gpu.community_usd
        stock = {"HIGH": "High", "MEDIUM": "Medium", "LOW": "Low"}.get(world.settings.stock)
        return {
            "minimumBidPrice": spot,
            "uninterruptablePrice": float(price) or None,
            "minVcpu": 8,
            "minMemory": 30,
            "stockStatus": stock if price else None,
            "availableGpuCounts": list(range(1, gpu.max_count + 1)),
            "maxUnreservedGpuCount": gpu.max_count,
        }

    secure, community = gpu.secure_usd > 0, gpu.community_usd > 0
    return {
        "id": gpu.id,
        "displayName": gpu.name,
        "memoryInGb": gpu.memory_gb,
        "manufacturer": gpu.manufacturer,
        "cudaCores": 0,
        "maxGpuCount": gpu.max_count,
        "maxGpuCountSecureCloud": gpu.max_count * secure,
        "maxGpuCountCommunityCloud": gpu.max_count * community,
        "secureCloud": secure,
        "communityCloud": community,
        "securePrice": float(gpu.secure_usd) if secure else 0.5,
        "communityPrice": float(gpu.community_usd) if community else 0.5,
        "secureSpotPrice": spot,
        "communitySpotPrice": spot,
        **dict.fromkeys(("oneMonthPrice", "threeMonthPrice", "sixMonthPrice", "oneWeekPrice")),
        "lowestPrice": lowest,
    }


def myself(world: World, _given: dict[str, Any], scope: str | None) -> dict[str, Any] | None:
    if scope not in ("account", "read"):
        return None
    return {
        "id": "user_simulated",
        "email": "nobody@example.org",
        "pubKey": "\n".join(world.ssh_keys),
        "networkVolumes": [],
        "clientBalance": float(world.balance()),
        "currentSpendPerHr": float(world.rate()),
        "spendLimit": 80,
        "pods": lambda _: [pod_words(world, pod) for pod in world.listed()],
    }


def one_pod(world: World, given: dict[str, Any], scope: str | None) -> dict[str, Any] | None:
    pod = world.seen(str(given.get("podId")))
    return pod_words(world, pod) if pod and scope in ("account", "read", pod.id) else None


def pod_words(world: World, pod: Pod) -> dict[str, Any]:
    """Return a pod in GraphQL's words: `desiredStatus` is the wish, not the state."""
    asked, now = pod.asked, world.clock.now()
    gpu = asked.get("gpu") or {}
    wish = {"EXITED": "EXITED", "TERMINATED": "TERMINATED", "ERROR": "DEAD"}
    up = pod.status == "RUNNING" and "boot_no_runtime" not in pod.faults
    runtime = {"uptimeInSeconds": pod.uptime(now), "ports": pod.ports(), "gpus": []}
    kind = catalog.GPUS[gpu["id"]].name if gpu else None
    mount = asked["mounts"].get("persistent") or {}
    return {
        "id": pod.id,
        "name": pod.name,
        "imageName": asked["image"],
        "containerDiskInGb": asked["disk"],
        "costPerHr": float(pod.gpu_usd_per_hour),
        "desiredStatus": wish.get(pod.status, "RUNNING"),
        "dockerArgs": asked["args"],
        "dockerId": None,
        "env": [f"{name}={value}" for name, value in asked["env"].items()],
        "gpuCount": gpu.get("count", 0),
        "lastStatusChange": f"Rented by User: {iso(pod.created_at)}",
        "lastStartedAt": iso(pod.started_at) if pod.started_at else None,
        "createdAt": iso(pod.created_at),
        "machineId": pod.host_id,
        "memoryInGb": 30,
        "podType": "INTERRUPTABLE" if pod.interruptible else "RESERVED",
        "port": None,
        "ports": ",".join(asked["ports"]),
        "uptimeSeconds": pod.uptime(now),
        "vcpuCount": 8,
        "volumeInGb": mount.get("size", 0),
        "volumeMountPath": mount.get("path", "/workspace"),
        "runtime": runtime if up else None,
        "machine": {"gpuDisplayName": kind, "podHostId": f"{pod.id}-{pod.host_id}"},
    }


# ---------------------------------------------------------------- mutations
def deploy(world: World, given: dict[str, Any], scope: str | None) -> dict[str, Any] | None:
    return create(world, given, scope, interruptible=False)


def rent(world: World, given: dict[str, Any], scope: str | None) -> dict[str, Any] | None:
    return create(world, given, scope, interruptible=True)


def create(
    world: World, given: dict[str, Any], scope: str | None, *, interruptible: bool
) -> dict[str, Any] | None:
    """Make a pod of GraphQL's input: cloudType ALL tries the secure tier first."""
    if scope != "account":
        raise Refused(403)
    unknown = sorted(given.keys() - INPUTS)
    if unknown:
        raise Failed(
            f'Field "{unknown[0]}" is not defined by type "PodFindAndDeployOnDemandInput".'
        )
    tiers = {"ALL": ("SECURE", "COMMUNITY")}.get(given.get("cloudType", "ALL"))
    pod = None
    for tier in tiers or (given["cloudType"],):
        asked = rest.with_defaults(in_v2_words(given, tier)) | {"interruptible": interruptible}
        if interruptible and not catalog.GPUS[given["gpuTypeId"]].spot_usd:
            raise Failed(NO_CAPACITY)
        try:
            pod = rest.make(world, asked)
            break
        except Refused as refused:
            if refused.answer.body["detail"] != NO_CAPACITY or tier == "COMMUNITY":
                raise
    if pod is None:
        raise Failed(NO_CAPACITY)
    return pod_words(world, pod)


def in_v2_words(given: dict[str, Any], tier: str) -> dict[str, Any]:
    """Return the input as REST v2's create would say it."""
    pairs = {pair["key"]: pair["value"] for pair in given.get("env") or []}
    mounts: dict[str, Any] = {}
    path = given.get("volumeMountPath", "/workspace")
    if given.get("networkVolumeId"):
        mounts["network"] = [{"volumeId": given["networkVolumeId"], "path": path}]
    elif given.get("volumeInGb"):
        mounts["persistent"] = {"size": given["volumeInGb"], "path": path}
    cuda = {k: given[k] for k in ("allowedCudaVersions", "minCudaVersion") if given.get(k)}
    gpu = {"id": given.get("gpuTypeId"), "count": given.get("gpuCount", 1)} | cuda
    place = [given["dataCenterId"]] if given.get("dataCenterId") else []
    return {
        "name": given["name"],
        "image": given.get("imageName", ""),
        "args": given.get("dockerArgs") or "",
        "disk": given.get("containerDiskInGb", 10),
        "env": pairs,
        "ports": [part for part in (given.get("ports") or "").split(",") if part],
        "cloud": tier,
        "mounts": mounts,
        "dataCenterIds": place,
        "startSsh": bool(given.get("startSsh")),
    } | ({"gpu": gpu} if given.get("gpuTypeId") else {})


def mine(world: World, given: dict[str, Any], scope: str | None, want: str, words: str) -> Pod:
    try:
        return rest.owned(world, str(given.get("podId")), str(scope), want)
    except Refused as refused:
        if refused.answer.status == 404:
            raise Failed(words, "RUNPOD") from None
        raise


def terminate(world: World, given: dict[str, Any], scope: str | None) -> None:
    pod = mine(world, given, scope, "end", NOT_FOUND)
    if not world.switches.take("delete_lie"):
        world.lives.end(pod, rest.cause_of(str(scope)))


def stop(world: World, given: dict[str, Any], scope: str | None) -> dict[str, Any]:
    pod = mine(world, given, scope, "stop", "pod not found")
    world.lives.stop(pod, rest.cause_of(str(scope)))
    return pod_words(world, pod)


def resume(world: World, given: dict[str, Any], scope: str | None) -> dict[str, Any]:
    unknown = sorted(given.keys() - {"podId", "gpuCount", "bidPerGpu"})
    if unknown:
        raise Failed(f'Field "{unknown[0]}" is not defined by type "PodResumeInput".')
    pod = mine(world, given, scope, "stop", "pod not found")
    if pod.interruptible and "bidPerGpu" not in given:
        raise Failed("Cannot resume a spot pod as an on demand pod.")
    if world.settings.stock == "NONE":
        raise Failed(HOST_FULL)
    if pod.status == "EXITED":
        world.lives.start(pod)
    return pod_words(world, pod)


def settings(world: World, given: dict[str, Any], scope: str | None) -> dict[str, Any] | None:
    if scope != "account":
        raise Refused(403)
    world.ssh_keys = [line for line in str(given.get("pubKey", "")).splitlines() if line]
    return myself(world, {}, scope)
