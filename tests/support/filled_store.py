"""A store with jobs in every condition that a person may meet, written through the real journal."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from orchestrator import events as ev
from orchestrator.attempt import Attempt, Endpoint
from orchestrator.fold import apply
from orchestrator.home import Home, open_home
from orchestrator.plan import Caps, LaunchSpec, NewJob
from orchestrator.states import Reason
from orchestrator.store import Store
from orchestrator.store_rows import Progress, Stray
from providers.base import InstanceId, Offer, OfferKey

T0 = 1_700_000_000.0  # long past on any machine: what is open here is past its deadline there
MACHINE = InstanceId("i-1")
OFFER = Offer(
    provider="runpod",
    key=OfferKey("4090"),
    gpu="RTX 4090",
    gpu_count=1,
    vram_gib=24.0,
    price_usd_per_hour=Decimal("0.74"),
    region="EU-RO-1",
)
TTL_S = 60.0


class Filler:
    """Writes one job after the other, each a little later than the last."""

    def __init__(self, store: Store, t0: float = T0) -> None:
        self.store = store
        self.t0 = t0
        self.count = 0

    def job(self, name: str, *steps: str, budget_usd: Decimal | None = None) -> str:
        """Return the id of a job that went through these steps; see `STEPS`."""
        self.count += 1
        job_id = f"{self.count:02x}aaaa"
        at = self.t0 + 100 * self.count
        new = NewJob(
            id=job_id,
            name=name,
            spec={"name": name, "model": "acme/base", "method": "qlora"},
            offers=(OFFER,),
            launch=LaunchSpec(public_key="ssh-ed25519 AAAA"),
            caps=Caps(budget_usd=budget_usd),
            output_folder=f"/home/ada/{name}",
        )
        self.store.create_job(new, now=at)
        lease = self.store.journal.acquire(job_id, "box/boot/1|4711|99|ff", TTL_S)
        assert lease is not None
        attempt: Attempt | None = None
        for step in steps:
            at += 1.0
            if step == "closed":
                assert attempt is not None
                closed = ev.JobClosed(at, attempt.reason or Reason.INTERNAL, attempt.evidence)
                self.store.journal.close_job(lease, closed, ttl_s=TTL_S)
                continue
            if step == "figures":
                figures = Progress(
                    at, step=88, max_steps=400, loss=1.25, eval_loss=1.3, tokens_per_s=2531.0
                )
                sizes = {"train.log": 120, "metrics.jsonl": 40}
                self.store.journal.pulled(lease, 1, sizes, figures, ttl_s=TTL_S)
                continue
            happened = _events(step, at, job_id, self.t0 + 90_000)
            for event in happened:
                attempt = apply(attempt, event)
            assert attempt is not None
            self.store.journal.append(lease, happened, attempt, ttl_s=TTL_S)
        if "released" not in steps:
            self.store.journal.release(lease)
        return job_id


def _events(step: str, at: float, job_id: str, deadline_at: float) -> list[ev.AttemptEvent]:
    opened = ev.Opened(
        at, job_id, 1, f"gpujob-ab12cd34-{job_id}-1-x9k2m4", "runpod", OFFER, 0, 1.0, 5.0,
        deadline_at,
    )  # fmt: skip
    endpoint = Endpoint("10.0.0.7", 22022, "root", None, None)
    steps: dict[str, list[ev.AttemptEvent]] = {
        "opened": [opened],
        "launched": [
            ev.LaunchAsked(at),
            ev.MachineSeen(at, MACHINE, "answered", OFFER.price_usd_per_hour, at),
            ev.Launched(at, MACHINE),
        ],
        "unclear": [ev.LaunchAsked(at), ev.LaunchUnclear(at, "timeout")],
        "ready": [ev.EndpointSeen(at, endpoint), ev.SshReady(at)],
        "prepared": [ev.StepDone(at, "config")],
        "trained": [ev.StartAsked(at), ev.TrainerStarted(at)],
        "exited": [ev.TrainerExited(at, Reason.SUCCEEDED, "ok", 0, 400, 400)],
        "failed": [ev.TrainerExited(at, Reason.OUT_OF_MEMORY, "CUDA out of memory", 1, 7, 400)],
        "home": [ev.ArtifactsPushed(at, (("adapter_model.safetensors", 9, "ab" * 32),))],
        "nothing": [ev.ArtifactsPushed(at)],
        "refused": [ev.Refused(at, Reason.NO_CAPACITY, "sold out")],
        "asked": [ev.TerminateAsked(at, MACHINE), ev.TerminateAccepted(at, MACHINE)],
        "unheard": [
            event
            for _ in range(4)
            for event in (
                ev.TerminateAsked(at, MACHINE),
                ev.TerminateFailed(at, MACHINE, "500 from runpod", retry_at=at + 60),
            )
        ],
        "gone": [
            ev.AbsenceRead(at, MACHINE),
            ev.AbsenceRead(at, MACHINE),
            ev.MachineGone(at, MACHINE),
            ev.InstanceGone(at, "reads"),
        ],
    }
    return steps[step]


RUNNING = ("opened", "launched", "ready", "prepared", "trained", "figures")
ENDING = (*RUNNING, "exited", "home")


def fill(home_folder: Path, *, t0: float = T0) -> tuple[Home, Store, dict[str, str]]:
    """Return a home, its open store, and the job ids by condition. t0: when the first came."""
    home = open_home(home_folder)
    store = Store.open(home.database_url)
    filler = Filler(store, t0)
    ids = {
        "refused": filler.job("legal-ar", "opened", "refused", "closed"),
        "failed": filler.job("intents", *RUNNING, "failed", "nothing", "asked", "gone", "closed"),
        "succeeded": filler.job(
            "support-tone", *ENDING, "asked", "gone", "closed", budget_usd=Decimal(8)
        ),
        "billing": filler.job("stuck", *ENDING, "unheard"),
        "running": filler.job("support-tone", *RUNNING, budget_usd=Decimal(8)),
        "booting": filler.job("fresh", "opened", "launched"),
        "unclear": filler.job("maybe", "opened", "unclear"),
        "queued": filler.job("waiting"),
    }
    stray = Stray("runpod", "i-9", "gpujob-ab12cd34-zz-1-q", "orphan", T0, "0.50")
    store.save_strays([stray], providers=["runpod"])
    return home, store, ids
