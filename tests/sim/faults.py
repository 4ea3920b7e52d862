"""What goes wrong, and how often: each seed draws the probabilities themselves (swarm testing).

A world in which everything fails a little finds less than one in which some things fail often
and others never. A fault counts as drawn when it took effect; a run of many seeds in which one
was drawn fewer than 20 times proves nothing about it, and fails.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

# Per call, while the safety phase lasts. The rate of an enabled fault is drawn between the two.
CALL_FAULTS: dict[str, tuple[float, float]] = {
    "launch_no_capacity": (0.4, 0.9),
    "launch_quota": (0.6, 1.0),
    "launch_auth": (0.6, 1.0),
    "launch_invalid": (0.6, 1.0),
    "launch_rate_limited": (0.1, 0.6),
    "launch_5xx": (0.4, 0.9),
    "launch_lost_reply": (0.2, 0.9),
    "launch_timeout": (0.3, 0.9),
    "launch_late": (0.2, 0.7),
    "launch_twice": (0.3, 0.9),
    "describe_5xx": (0.05, 0.6),
    "describe_hang": (0.02, 0.1),
    "describe_404": (0.02, 0.15),
    "describe_rate_limited": (0.02, 0.3),
    "find_5xx": (0.05, 0.6),
    "find_hang": (0.02, 0.1),
    "find_omit": (0.05, 0.4),
    "find_empty": (0.05, 0.3),  # a well-formed list without anything (RunPod's face only)
    "find_rate_limited": (0.02, 0.3),
    "terminate_5xx": (0.1, 0.9),
    "terminate_lost_reply": (0.1, 0.6),
    "terminate_swallowed": (0.1, 0.6),
    "terminate_late": (0.1, 0.6),
    "terminate_rate_limited": (0.1, 0.5),
    "terminate_404": (0.2, 0.7),  # not found, while it lives (RunPod's face only)
    "terminate_forbidden": (0.1, 0.4),
    "ssh_error": (0.02, 0.5),
    "ssh_hang": (0.01, 0.05),
    "prepare_refused": (0.1, 0.5),
    "collect_error": (0.4, 0.9),
    "collect_refused": (0.9, 1.0),
    "crash": (0.002, 0.03),  # at any point
    "crash_at_effect": (0.05, 0.4),  # around a launch or terminate: where it hurts most
    "pause": (0.001, 0.01),  # at any point, up to three leases long
    "pause_at_effect": (0.1, 0.6),
}

# Per machine: drawn when it is created.
MACHINE_FAULTS: dict[str, tuple[float, float]] = {
    "boot_never": (0.5, 1.0),
    "ssh_never": (0.5, 1.0),
    "prepare_hangs": (0.1, 0.3),
    "trainer_fails": (0.1, 0.5),
    "trainer_hangs": (0.1, 0.4),
    "agent_dies": (0.1, 0.4),
    "collect_never": (0.1, 0.3),
    "instance_dies": (0.1, 0.5),
    "instance_stopped": (0.1, 0.4),
    "dearer": (0.2, 0.6),  # than quoted
    "log_silent": (0.3, 0.8),  # nobody vouches for the host key (RunPod's face only)
}

# A job that meets one of these is over before most others can strike: rarer, to go deep.
DEADLY = frozenset(
    {"launch_auth", "launch_invalid", "launch_quota", "launch_no_capacity", "prepare_refused",
     "dearer", "boot_never", "ssh_never"}
)  # fmt: skip

# Per seed too, and no fault: what the cloud is like. The last four are RunPod's alone.
CONDITIONS: dict[str, float] = {
    "runpod": 0.5,  # seen through the real RunPod adapter, over its API as documents
    "billing_off": 0.5,
    "rate_limit": 0.25,
    "list_pages": 0.3,
    "cost_with_disks": 0.3,
}

# Per seed: probability that the world has it.
WORLD_FAULTS: dict[str, float] = {
    "cancel_early": 0.15,  # within 90 s of the submit
    "cancel_any_time": 0.2,
    "auth_window": 0.15,  # every verb refuses the key for a while
    "outage_window": 0.2,  # every verb is unavailable for a while
    "ssh_window": 0.15,
    "terminate_window": 0.15,  # terminate alone fails, for longer than others would try
    "two_supervisors": 0.4,
    "left_alone": 0.1,  # the supervisor dies for good; only commands come by
    "no_dead_man": 0.4,  # the instance does not end itself: L2 is off
    "list_lags": 0.5,
    "foreign_machines": 0.5,
    "orphan": 0.25,  # a machine of ours that no record explains
    "small_budget": 0.15,
    "tight_deadline": 0.25,
}


@dataclass(slots=True)
class Swarm:
    """The rates of one seed, and the count of what was really drawn."""

    rng: random.Random
    rates: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    calm: bool = False  # the liveness phase: no fault begins any more

    def hits(self, name: str) -> bool:
        """Return whether the fault happens now, and count it."""
        rate = self.rates.get(name, 0.0)
        if self.calm or rate == 0.0 or self.rng.random() >= rate:
            return False
        self.counts[name] += 1
        return True

    def first(self, *names: str) -> str | None:
        """Return the first of these faults that happens."""
        return next((name for name in names if self.hits(name)), None)


def draw_swarm(rng: random.Random) -> Swarm:
    """Return a seed's swarm: a few chosen faults, and a share of all others, each at its rate."""
    swarm = Swarm(rng)
    share = rng.choice((0.0, 0.0, 0.1, 0.25, 0.5))
    rates = {**CALL_FAULTS, **MACHINE_FAULTS}
    chosen = set(rng.sample(sorted(rates), 3))  # these strike often, whatever else is calm
    for name, (low, high) in rates.items():
        among = rng.random() < share * (0.35 if name in DEADLY else 1.0)
        level = max(rng.random(), 0.7) if name in chosen else rng.random()
        if among or name in chosen:
            swarm.rates[name] = low * (high / low) ** level
    for name, chance in {**CONDITIONS, **WORLD_FAULTS}.items():
        if rng.random() < chance:
            swarm.rates[name] = 1.0
            swarm.counts[name] += 1
    return swarm


ALL_FAULTS = (*CALL_FAULTS, *MACHINE_FAULTS, *CONDITIONS, *WORLD_FAULTS)
