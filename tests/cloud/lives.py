"""What happens to pods: making, booting, stopping, restarting, ending, and what goes wrong then.

Stages are planned on the world's clock. Each belongs to a `life` of its pod; a stop or an end makes
what an older life planned void.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cloud import bill, container, images
from tests.cloud.pod import Pod
from tests.cloud.switches import ON_RUNNING, SPECIAL, Armed

if TYPE_CHECKING:
    from tests.cloud.world import World

BOOT_FAULTS = tuple(name for name in SPECIAL if name.startswith("boot_"))
FOR_EVER = float("inf")


class Lives:
    """Acts on pods; `world` holds them."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder

    # ---------------------------------------------------------------- making and ending
    def make(self, asked: dict[str, Any], *, late_s: float = 0.0, factor: float = 1.0) -> Pod:
        """Return a new pod of a checked request, already billed."""
        world = self.world
        with world.lock:
            now = world.clock.now()
            gpu_price = container.price(asked) * Decimal(str(factor))
            disk, volume = asked["disk"], container.volume_gb(asked)
            pod = Pod(
                id=world.name(14),
                name=asked["name"],
                key="rpa_" + world.name(40).upper(),
                asked=asked,
                created_at=now,
                appears_at=now + late_s,
                host_id="644" + world.name(5, "0123456789abcdef"),
                data_center=container.data_center(asked),
                gpu_usd_per_hour=gpu_price,
                disk_usd_per_hour=bill.disk_usd_per_hour(disk, volume, running=True),
                stopped_disk_usd_per_hour=bill.disk_usd_per_hour(disk, volume, running=False),
                interruptible=bool(asked.get("interruptible")),
            )
            for name in BOOT_FAULTS:
                fault = world.switches.take(name)
                if fault:
                    pod.faults[name] = fault.options
            world.pods[pod.id] = pod
        world.log.write("created", pod=pod.id, name=pod.name, env=sorted(asked["env"]))
        world.charge(pod, pod.gpu_usd_per_hour, pod.disk_usd_per_hour)
        self._boot(pod)
        return pod

    def end(self, pod: Pod, cause: str) -> None:
        """Terminate: processes and disks are gone, and nothing is billed any more."""
        with self.world.lock:
            if not pod.living:
                return
            pod.life += 1
            pod.ended_at, pod.end_cause, pod.status = self.world.clock.now(), cause, "TERMINATED"
        self.world.charge(pod, Decimal(0), Decimal(0))
        self.world.log.write("ended", pod=pod.id, name=pod.name, cause=cause)
        self.world.clock.later(0, lambda: container.remove(pod))

    def stop(self, pod: Pod, cause: str) -> None:
        """Stop: GPU and container disk are gone, the volume is kept and costs double."""
        with self.world.lock:
            if not pod.living or pod.status == "EXITED":
                return
            pod.life += 1
            pod.status, pod.started_at = "EXITED", None
        self.world.charge(pod, Decimal(0), pod.stopped_disk_usd_per_hour)
        self.world.log.write("stopped", pod=pod.id, name=pod.name, cause=cause)
        self.world.clock.later(0, lambda: container.halt(pod))

    def start(self, pod: Pod) -> None:
        """Start a stopped pod."""
        self.world.charge(pod, pod.gpu_usd_per_hour, pod.disk_usd_per_hour)
        self._boot(pod)

    def restart(self, pod: Pod, cause: str) -> None:
        """Restart by the host: a new container disk and a new public port."""
        with self.world.lock:
            if pod.status != "RUNNING":
                return
            pod.life += 1
        self.world.log.write("restarted", pod=pod.id, name=pod.name, cause=cause)

        def again() -> None:
            container.halt(pod)
            self._boot(pod)

        self.world.clock.later(0, again)

    def out_of_money(self) -> None:
        """End every pod, as at a balance of 0; those with a network volume are stopped."""
        for pod in self.world.living():
            if pod.asked["mounts"].get("network"):
                self.stop(pod, "balance")
            else:
                self.end(pod, "balance")

    # ---------------------------------------------------------------- booting
    def _plan(self, pod: Pod, seconds: float, act: Callable[[Pod], None]) -> None:
        """Let `act` happen then, unless the pod's life has changed."""
        life = pod.life

        def due() -> None:
            if pod.living and pod.life == life:
                act(pod)

        if seconds != FOR_EVER:
            self.world.clock.later(seconds, due)

    def _boot(self, pod: Pod) -> None:
        pod.status, pod.started_at = "PROVISIONING", None
        seconds = self.world.settings.provisioning_s
        self._plan(pod, FOR_EVER if "boot_stuck" in pod.faults else seconds, self._pull)

    def _pull(self, pod: Pod) -> None:
        now = self.world.clock.now()
        pod.status = "STARTING"
        pod.say(now, "system", f"create pod {pod.id}")
        name = pod.asked["image"]
        if images.image(name) is None or "boot_pull_error" in pod.faults:
            pod.say(now, "system", images.PULL_ERROR.format(name=name))
            return
        pod.say(now, "system", f"{name} Pulling from registry")
        seconds = self.world.settings.pull_s
        if "boot_slow" in pod.faults:
            seconds += float(pod.faults["boot_slow"].get("seconds", 30))
        if "boot_error" in pod.faults:
            self._plan(pod, seconds, self._fail)
            return
        self._plan(pod, FOR_EVER if "boot_no_runtime" in pod.faults else seconds, self._run)

    def _fail(self, pod: Pod) -> None:
        pod.say(self.world.clock.now(), "system", "error creating container: device not ready")
        pod.status = "ERROR"
        self.world.log.write("failed", pod=pod.id, name=pod.name)

    def _run(self, pod: Pod) -> None:
        """RUNNING: the container starts, public ports open, armed faults of the run are planned."""
        world = self.world
        now = world.clock.now()
        hollow = "boot_uptime_zero" in pod.faults or world.settings.pods == "none"
        if not hollow:
            container.prepare(world, self.folder, pod)
        pod.say(now, "system", "start container")
        if not hollow:
            self._container(pod)
        delay = world.settings.sshd_delay_s
        if "boot_ssh_refused" in pod.faults:
            delay += float(pod.faults["boot_ssh_refused"].get("seconds", 90))
        self._plan(pod, delay, container.open_doors)
        # Last: whoever sees RUNNING may move the clock, and all must be planned by then.
        pod.status, pod.started_at = "RUNNING", now
        world.log.write("running", pod=pod.id, name=pod.name, boots=pod.boots, port=pod.ssh_port)
        for name in ON_RUNNING:
            fault = world.switches.take(name)
            if fault:
                self._plan(pod, fault.number("after_s", 0), self._event(fault))

    def _container(self, pod: Pod) -> None:
        """Start the first process; when it ends the host starts it again, for ever."""
        life = pod.life

        def ended(code: int) -> None:
            if pod.living and pod.life == life:
                now = self.world.clock.now()
                pod.say(now, "system", f"container exited with code {code}, restarting")
                self.world.log.write("container_exit", pod=pod.id, code=code)
                self._plan(pod, self.world.settings.restart_s, self._container)

        pod.boots += 1
        if pod.boots > 1:
            pod.say(self.world.clock.now(), "system", "start container")
        container.start(self.world, pod, ended)

    # ---------------------------------------------------------------- events of a run
    def _event(self, fault: Armed) -> Callable[[Pod], None]:
        return lambda pod: self.happen(pod, fault)

    def happen(self, pod: Pod, fault: Armed) -> None:
        """Let a `run_` fault befall a pod, now."""
        self.world.log.write("event", pod=pod.id, name=fault.name)
        seconds = fault.number("seconds", 0) or FOR_EVER
        act = fault.name.removeprefix("run_")
        if act == "spot_kill":
            container.send(pod, signal.SIGTERM)
            self._plan(pod, fault.number("notice_s", 5), lambda p: self.stop(p, "spot"))
        elif act == "vanish":
            pod.vanished = True
            self.end(pod, "vanished")
        elif act == "exited":
            self.stop(pod, "host")
        elif act == "port_change":
            self.restart(pod, "host")
        elif act == "container_restart":
            container.send(pod, signal.SIGKILL)
        elif act == "broke":
            self.world.lost += self.world.balance()
            self.out_of_money()
        else:
            undo = container.hurt(pod, act)
            self._plan(pod, seconds, lambda p: undo())
