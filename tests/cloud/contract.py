"""The part of RunPod's REST v2 that gpujob uses, as a table of names, types and enumerations.

A type is written so: `str` (`str+` is not empty), `int` (`int>=1`), `num`, `bool`, `time`, `X?` may
be null, `[X]` a list, `{X}` a map of names to X, `a|b` one of these words, `X` a shape of this
table. A field whose name ends in `!` is required. `closed` shapes refuse fields they do not name.
`scripts/check_runpod_contract.py` compares this table with RunPod's OpenAPI file.
"""

from __future__ import annotations

import re
from typing import Any

Shape = dict[str, str]

SHAPES: dict[str, Shape] = {
    "Mounts": {"persistent": "PersistentMount", "network": "[NetworkMount]"},
    "PersistentMount": {"size!": "int>=10", "path!": "str"},
    "NetworkMount": {"volumeId!": "str", "path!": "str"},
    "GpuConfig": {"id!": "str", "count": "int>=1"},
    "CreateGpuConfig": {
        "id!": "str",
        "count": "int>=1",
        "allowedCudaVersions": "[str]",
        "minCudaVersion": "str",
    },
    "CreateCpuConfig": {"id!": "str+", "vcpuCount!": "int>=2"},
    "Utilization": {"util": "int"},
    "PodGpuUtilization": {"util": "int", "memoryUtil": "int"},
    "PodRuntimePort": {"private": "int", "public": "int?", "type": "str", "ip": "str?"},
    "PodRuntime": {
        "uptime": "int",
        "gpus": "[PodGpuUtilization]",
        "cpu": "Utilization",
        "memory": "Utilization",
        "ports": "[PodRuntimePort]",
    },
    "PodGlobalNetworking": {"enabled!": "bool", "ip": "str", "internalDns": "str"},
    "PodSshEndpoint": {"host!": "str", "port!": "int", "username!": "str", "command!": "str"},
    "PodSsh": {"proxy!": "PodSshEndpoint?", "direct!": "PodSshEndpoint?"},
    "Pod": {
        "id!": "str",
        "name!": "str",
        "status!": "PodStatus",
        "actions!": "[PodAction]",
        "image!": "str",
        "args!": "str",
        "disk!": "int>=1",
        "mounts!": "Mounts",
        "ports!": "[str]",
        "env!": "{str}",
        "registry!": "str?",
        "gpu": "GpuConfig",
        "cloud!": "Cloud",
        "dataCenterId!": "str?",
        "cudaVersion!": "str?",
        "ssh!": "PodSsh",
        "template!": "str?",
        "cost!": "num",
        "locked!": "bool",
        "globalNetworking!": "PodGlobalNetworking",
        "runtime!": "PodRuntime?",
        "createdAt!": "time",
        "startedAt!": "time?",
    },
    "CreatePodRequest": {
        "name!": "str+",
        "image": "str",
        "args": "str",
        "disk": "int>=1",
        "env": "{str}",
        "ports": "[str]",
        "registry": "str?",
        "cloud": "Cloud",
        "cpu": "CreateCpuConfig",
        "dataCenterIds": "[str]",
        "globalNetworking": "bool",
        "gpu": "CreateGpuConfig",
        "mounts": "Mounts",
        "startJupyter": "bool",
        "startSsh": "bool",
        "templateId": "str+",
    },
    "UpdatePodRequest": {
        "name": "str+",
        "image": "str",
        "args": "str",
        "disk": "int>=1",
        "env": "{str}",
        "ports": "[str]",
        "registry": "str?",
        "globalNetworking": "bool",
        "locked": "bool",
        "mounts": "Mounts",
        "templateId": "str",
    },
    "PodActionRequest": {"action!": "PodAction"},
    "ListPodsResponse": {"pods!": "[Pod]"},
    "Prices": {"secure!": "num", "community!": "num", "serverless": "num"},
    "MaxCount": {"secure!": "int", "community!": "int"},
    "GpuType": {
        "id!": "str",
        "name!": "str",
        "pool!": "str?",
        "manufacturer!": "GpuManufacturer",
        "memory!": "int",
        "secure!": "bool",
        "community!": "bool",
        "price!": "Prices",
        "maxCount!": "MaxCount",
        "availability": "AvailabilityLevel",
        "dataCenters": "[DataCenterAvailability]",
        "cudaVersions": "[CudaVersionAvailability]",
    },
    "DataCenterAvailability": {"id!": "str", "name!": "str", "availability!": "AvailabilityLevel"},
    "CudaVersionAvailability": {"version!": "str", "available!": "bool"},
    "ListGpuTypesResponse": {"gpus!": "[GpuType]"},
    "DataCenter": {
        "id!": "str",
        "name!": "str",
        "region!": "DataCenterRegion",
        "globalNetwork!": "bool",
        "networkVolumeTypes!": "[str]",
        "compliance!": "[str]",
    },
    "ListDataCentersResponse": {"dataCenters!": "[DataCenter]"},
    "PodBillingAmounts": {
        "totalAmount!": "num",
        "gpuAmount!": "num",
        "cpuAmount!": "num",
        "diskAmount!": "num",
    },
    "PodBillingRecord": {
        "podId!": "str",
        "startTime!": "time",
        "endTime!": "time",
        "totalAmount!": "num",
        "gpuAmount!": "num",
        "cpuAmount!": "num",
        "diskAmount!": "num",
    },
    "PodBillingQuery": {
        "startTime!": "time",
        "endTime!": "time",
        "bucketSize!": "BillingBucketSize",
        "podId": "str?",
    },
    "PodBillingMetadata": {
        "query!": "PodBillingQuery",
        "recordCount!": "int",
        "uniquePodCount!": "int",
        "totals!": "PodBillingAmounts",
    },
    "ListPodBillingResponse": {"records!": "[PodBillingRecord]", "metadata!": "PodBillingMetadata"},
    "SshKeys": {"keys!": "[str]"},
    "ErrorResponse": {"title!": "str", "status!": "int", "detail!": "str", "errors": "[str]"},
}

CLOSED = frozenset(
    {
        "Mounts",
        "PersistentMount",
        "NetworkMount",
        "CreateGpuConfig",
        "CreateCpuConfig",
        "CreatePodRequest",
        "UpdatePodRequest",
        "PodActionRequest",
    }
)

WORDS: dict[str, str] = {
    "PodStatus": "PROVISIONING|STARTING|RUNNING|EXITED|ERROR|TERMINATED",
    "PodAction": "start|stop|restart|terminate",
    "LogSource": "container|system",
    "Cloud": "SECURE|COMMUNITY",
    "GpuManufacturer": "NVIDIA|AMD|UNKNOWN",
    "AvailabilityLevel": "NONE|LOW|MEDIUM|HIGH",
    "DataCenterRegion": "NORTH_AMERICA|SOUTH_AMERICA|EUROPE|ASIA|MIDDLE_EAST|AFRICA|OCEANIA|"
    "ANTARCTICA|UNKNOWN",
    "BillingBucketSize": "hour|day|week|month|year",
}

# (method, path) -> (shape of the request, status of success, shape of its answer).
CALLS: dict[tuple[str, str], tuple[str | None, int, str | None]] = {
    ("GET", "/v2/pods"): (None, 200, "ListPodsResponse"),
    ("POST", "/v2/pods"): ("CreatePodRequest", 201, "Pod"),
    ("GET", "/v2/pods/{id}"): (None, 200, "Pod"),
    ("PATCH", "/v2/pods/{id}"): ("UpdatePodRequest", 200, "Pod"),
    ("DELETE", "/v2/pods/{id}"): (None, 204, None),
    ("POST", "/v2/pods/{id}/action"): ("PodActionRequest", 200, "Pod"),
    ("GET", "/v2/catalog/gpus"): (None, 200, "ListGpuTypesResponse"),
    ("GET", "/v2/catalog/gpus/{id}"): (None, 200, "GpuType"),
    ("GET", "/v2/catalog/datacenters"): (None, 200, "ListDataCentersResponse"),
    ("GET", "/v2/billing/pods"): (None, 200, "ListPodBillingResponse"),
    ("GET", "/v2/account/ssh-keys"): (None, 200, "SshKeys"),
}
# In no OpenAPI file we have seen, but sent by another client or by a later server: accepted here.
BEYOND = {
    "CreateGpuConfig": {"minVcpuCountPerGpu": "int>=1", "minRamPerGpu": "int>=1"},
    "ListPodsResponse": {"pagination": "Pagination"},
    "Pagination": {"hasNextPage!": "bool", "nextCursor": "str?"},
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def check(value: Any, kind: str, at: str = "$") -> list[str]:
    """Return what is wrong with `value` as a `kind`, in the words of RunPod's 422."""
    if kind.endswith("?"):
        return [] if value is None else check(value, kind[:-1], at)
    if kind.startswith("["):
        if not isinstance(value, list):
            return [f"{at}: got {word(value)}, want array"]
        return [e for i, v in enumerate(value) for e in check(v, kind[1:-1], f"{at}[{i}]")]
    if kind.startswith("{"):
        if not isinstance(value, dict):
            return [f"{at}: got {word(value)}, want object"]
        return [e for k, v in value.items() for e in check(v, kind[1:-1], f"{at}.{k}")]
    if kind in WORDS:
        allowed = WORDS[kind].split("|")
        return [] if value in allowed else [f"{at}: value must be one of {', '.join(allowed)}"]
    if kind in SHAPES or kind in BEYOND:
        return check_shape(value, kind, at)
    return check_plain(value, kind, at)


def check_shape(value: Any, kind: str, at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at}: got {word(value)}, want object"]
    fields = SHAPES.get(kind, {}) | BEYOND.get(kind, {})
    plain = {name.removesuffix("!"): wanted for name, wanted in fields.items()}
    wrong = [
        f"{at}: missing property '{name[:-1]}'"
        for name in fields
        if name.endswith("!") and name[:-1] not in value
    ]
    if kind in CLOSED:
        extra = ", ".join(f"'{name}'" for name in value if name not in plain)
        wrong += [f"{at}: additional properties {extra} not allowed"] if extra else []
    for name, wanted in plain.items():
        if name in value:
            wrong += check(value[name], wanted, f"{at}.{name}")
    return wrong


def check_plain(value: Any, kind: str, at: str) -> list[str]:
    base = re.split(r"[+>]", kind)[0]
    right = {
        "str": isinstance(value, str),
        "time": isinstance(value, str) and TIME.fullmatch(value) is not None,
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "num": isinstance(value, int | float) and not isinstance(value, bool),
    }[base]
    if not right:
        return [f"{at}: got {word(value)}, want {base}"]
    if kind == "str+" and not value:
        return [f"{at}: minLength: got 0, want 1"]
    if ">=" in kind and value < int(kind.split(">=")[1]):
        return [f"{at}: minimum: got {value}, want {kind.split('>=')[1]}"]
    return []


def word(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")
