"""The container of a pod: what image, environment, GPUs and doors it gets, and how it is hurt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cloud import catalog, images, wires
from tests.cloud.jail import Jail
from tests.cloud.pod import Pod

if TYPE_CHECKING:
    from tests.cloud.world import World

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NVIDIA_SMI = Path(__file__).parent / "nvidia_smi.sh"
MIB_PER_GB = 1024
LOST = "Unable to determine the device handle for GPU0: GPU is lost. Reboot the system to recover"


def price(asked: dict[str, Any]) -> Decimal:
    """Return USD per hour of the pod's compute."""
    if not asked.get("gpu"):
        return Decimal("0.06")
    gpu, count = catalog.GPUS[asked["gpu"]["id"]], asked["gpu"].get("count", 1)
    each = gpu.secure_usd if asked["cloud"] == "SECURE" else gpu.community_usd
    return int(count) * (gpu.spot_usd if asked.get("interruptible") else each)


def volume_gb(asked: dict[str, Any]) -> int:
    return int((asked["mounts"].get("persistent") or {}).get("size", 0))


def data_center(asked: dict[str, Any]) -> str | None:
    if asked["cloud"] == "COMMUNITY":
        return None
    wanted = asked.get("dataCenterIds") or list(catalog.DATA_CENTERS)
    return str(wanted[0])


def prepare(world: World, folder: Path, pod: Pod) -> None:
    """Make the container disk from the image, and the public ports (which still refuse)."""
    asked = pod.asked
    persistent = asked["mounts"].get("persistent")
    network = (asked["mounts"].get("network") or [None])[0]
    place = (persistent or network or {}).get("path")
    volume = (f"{volume_gb(asked) or 50}g", str(place)) if place else None
    if pod.jail is None:
        mb = pod.faults.get("boot_small_disk", {}).get("mb", 64)
        size = f"{mb}m" if "boot_small_disk" in pod.faults else f"{asked['disk']}g"
        pod.jail = Jail(folder / pod.id, size, volume, world.settings.mounts)
    pod.jail.wipe()
    image = images.image(asked["image"])
    assert image is not None
    for name, text in images.COMMON_FILES.items():
        pod.jail.put(name, text)
    for name, text in image.files.items():
        pod.jail.put(name, text, 0o755)
    pod.jail.put("usr/bin/nvidia-smi", NVIDIA_SMI.read_text(), 0o755)
    jail = pod.jail
    for entry in asked["ports"]:
        number, _, kind = entry.partition("/")
        if kind == "tcp":
            port = int(number)
            door = wires.Proxy(wires.reserved_port(), lambda p=port: jail.connect(p))  # type: ignore[misc]
            pod.doors[port] = door


def open_doors(pod: Pod) -> None:
    for door in pod.doors.values():
        door.open()


def environment(world: World, pod: Pod) -> dict[str, str]:
    """Return the environment of PID 1."""
    gpu = pod.asked.get("gpu") or {}
    env = {
        "PATH": PATH,
        "HOME": "/root",
        "HOSTNAME": pod.id,
        "CUDA_VERSION": pod.cuda,
    }
    if pod.asked.get("startSsh") and world.ssh_keys:
        env["PUBLIC_KEY"] = "\n".join(world.ssh_keys)
    env |= pod.asked["env"]
    if "boot_ssh_denied" in pod.faults:
        env.pop("PUBLIC_KEY", None)
        env["SSH_KEY"] = (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINobodysKeyNobodysKeyNobodysKeyNobody00"
        )
    env |= {
        "RUNPOD_POD_ID": pod.id,
        "RUNPOD_API_KEY": pod.key,
        "RUNPOD_DC_ID": pod.data_center or "",
        "RUNPOD_POD_HOSTNAME": f"{pod.id}-{pod.host_id}",
        "RUNPOD_GPU_COUNT": str(gpu.get("count", 0)),
        "RUNPOD_CPU_COUNT": "8",
        "RUNPOD_PUBLIC_IP": wires.LOOPBACK,
    }
    ports = {f"RUNPOD_TCP_PORT_{inner}": str(door.port) for inner, door in pod.doors.items()}
    return env | ports


def gpu_table(pod: Pod) -> str:
    """Return the lines that the scripted nvidia-smi shows."""
    asked = pod.asked.get("gpu")
    if asked is None or "boot_zero_gpus" in pod.faults:
        return ""
    name = "NVIDIA RTX A4000" if "boot_other_gpu" in pod.faults else asked["id"]
    total = catalog.GPUS[name].memory_gb * MIB_PER_GB - 64 * 4
    cuda = "12.4" if "boot_old_driver" in pod.faults else catalog.HOST_CUDA
    return "".join(
        f"{name}|GPU-{pod.id}-{n}|{total}|4|0|45.00|38|{catalog.DRIVERS[cuda]}|{cuda}\n"
        for n in range(asked.get("count", 1))
    )


def start(world: World, pod: Pod, ended: Callable[[int], None]) -> None:
    """Start PID 1 with the pod's environment; `ended` gets its exit code."""
    jail = pod.jail
    assert jail is not None
    image = images.image(pod.asked["image"])
    assert image is not None
    try:
        argv = image.argv(pod.asked["args"])
    except ValueError as error:  # unbalanced quotes
        pod.say(world.clock.now(), "system", f"error creating container: {error}")
        return

    jail.put("run/gpus", gpu_table(pod))

    def ready() -> None:
        close_inner(pod)
        pod.inner = [
            wires.Proxy(jail.listener(port), lambda p=port: wires.to_host(p))  # type: ignore[misc]
            for port in dict.fromkeys((world.api_port, *world.settings.forwards))
        ]
        for door in pod.inner:
            door.open()

    jail.start(
        argv,
        environment(world, pod),
        on_ready=ready,
        on_line=lambda line: pod.say(world.clock.now(), "container", line),
        on_exit=ended,
    )


def close_inner(pod: Pod) -> None:
    for door in pod.inner:
        door.close()
    pod.inner = []


def halt(pod: Pod) -> None:
    """Kill the container's processes and close every way to it. On the clock's thread."""
    for door in pod.doors.values():
        door.close()
    pod.doors.clear()
    if pod.jail:
        pod.jail.stop()
    close_inner(pod)


def remove(pod: Pod) -> None:
    halt(pod)
    if pod.jail:
        pod.jail.remove()
        shutil.rmtree(pod.jail.folder, ignore_errors=True)


def send(pod: Pod, number: int) -> None:
    if pod.jail:
        pod.jail.send(number)


def hurt(pod: Pod, what: str) -> Callable[[], None]:
    """Do that harm to a running pod; return what ends it."""
    if what == "ssh_drop":
        for door in pod.doors.values():
            door.cut()
    elif what in ("ssh_freeze", "ssh_gone"):
        for door in pod.doors.values():
            door.freeze(on=True) if what == "ssh_freeze" else door.refuse(on=True)
        return lambda: heal(pod)
    elif what == "no_api":
        for door in pod.inner:
            door.refuse(on=True)
        return lambda: heal(pod)
    elif what == "disk_full" and pod.jail:
        pod.jail.fill()
    elif what == "gpu_lost" and pod.jail:
        pod.jail.put("run/gpu-fault", LOST + "\n")
    return lambda: None


def heal(pod: Pod) -> None:
    for door in (*pod.doors.values(), *pod.inner):
        door.freeze(on=False)
        door.refuse(on=False)
