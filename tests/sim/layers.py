"""The layers of the guarantee, each switched off in turn: how many worlds then leak.

A layer whose absence no world notices would be needless. Most worlds are saved by another layer,
which is the point of having several; so each is also switched off with the instances' own dead-man
switch (L2) off everywhere, where less is left to save them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orchestrator.policy import ALL_RULES, Rules
from tests.sim.run import SimStore, run_seed

LEAKS = frozenset(
    {"no_leak", "comes_to_rest", "not_past_its_deadline", "nothing_waits_for_ever",
     "one_machine_per_attempt", "one_machine_per_job"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layer:
    """rules: those that make it up. dead_man: it is the instances' own."""

    what: str
    rules: tuple[str, ...] = ()
    dead_man: bool = False


LAYERS: dict[str, Layer] = {
    "none": Layer("nothing is switched off"),
    "L0": Layer("intent journal", ("intent_before_launch",)),
    "L1": Layer("create guard", ("settle_unclear_launch", "keep_suspects", "end_doubles")),
    "L2": Layer("dead-man switch on the instance", dead_man=True),
    "L3": Layer(
        "watchdog: boot, preparation, agent, machine, collecting",
        ("boot_timeout", "prepare_timeout", "collect_timeout", "agent_watch", "notice_loss"),
    ),
    "L4": Layer(
        "supervisor that never gives up, and proves",
        ("never_give_up", "prove_absence", "two_reads", "ask_again", "errors_are_unknown",
         "stopped_is_billed"),
    ),
    "L5": Layer("sweep", ("sweep",)),
    "L7": Layer("money stop: deadline, budget, price", ("deadline", "budget", "check_price")),
}  # fmt: skip
# L6, a lifetime that the provider itself enforces, has no rule: this cloud sells none.


def without(layer: Layer) -> Rules:
    """Return the rules with the layer's own off."""
    return replace(ALL_RULES, **dict.fromkeys(layer.rules, False))


def count(name: str, *, seeds: int, first: int, dead_man_off: bool) -> dict[str, Any]:
    """Return how many worlds of these seeds leak, and how many have any finding, without `name`."""
    layer, sim = LAYERS[name], SimStore()
    leaking = wrong = living = 0
    for seed in range(first, first + seeds):
        world, findings, _ = run_seed(
            sim, seed, rules=without(layer), dead_man_off=dead_man_off or layer.dead_man
        )
        found = {finding.checker for finding in findings}
        leaking += bool(found & LEAKS)
        wrong += bool(found)
        living += any(
            m.deleted_at is None for m in world.cloud.machines.values() if m.id not in world.foreign
        )
    return {
        "seeds": seeds,
        "leaking_worlds": leaking,
        "wrong_worlds": wrong,
        "living_worlds": living,
    }
