"""Planted bugs: each protective rule off, and wrong code that no rule covers. Each must be caught.

A rule whose absence nothing notices is either needless or untested. To see the difference soon, the
seeds are chosen in which the rule has work: those whose swarm has the faults that it is there for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.policy import ALL_RULES, Rules
from tests.sim.faults import CONDITIONS, draw_swarm
from tests.sim.world import SWARM_SEED


@dataclass(frozen=True, slots=True)
class Bug:
    """needs: faults a seed must have for the bug to matter. caught_by: any of these."""

    needs: tuple[str, ...]
    caught_by: frozenset[str]
    rule: str | None = None
    world: tuple[tuple[str, Any], ...] = ()

    @property
    def rules(self) -> Rules:
        """Return the rules with this one off."""
        return ALL_RULES if self.rule is None else replace(ALL_RULES, **{self.rule: False})

    @property
    def plant(self) -> dict[str, Any]:
        """Return what is wrong in the world."""
        return dict(self.world)


FEW = 9  # faults in a world, the needed ones among them
LEAK = frozenset({"no_leak", "comes_to_rest", "not_past_its_deadline"})
WAITS = frozenset({"nothing_waits_for_ever"}) | LEAK
PROOF = frozenset({"closed_with_proof"})
DOUBLE = frozenset({"one_machine_per_attempt"})
MONEY = frozenset({"bill_is_covered"})

# The name says what the code then does.
BUGS: dict[str, Bug] = {
    "record the intent after the launch": Bug(
        ("crash_at_effect",), DOUBLE | {"intent_comes_first"}, "intent_before_launch"
    ),
    "launch again after a lost reply": Bug(("launch_lost_reply",), DOUBLE, "settle_unclear_launch"),
    "forget suspects": Bug(("launch_late", "no_dead_man"), LEAK, "keep_suspects"),
    "stop by recorded id only": Bug(("launch_twice",), LEAK | DOUBLE | MONEY, "end_doubles"),
    "give up after 15 minutes": Bug(("terminate_window",), LEAK | PROOF, "never_give_up"),
    "trust terminate's return": Bug(("terminate_swallowed",), LEAK | PROOF, "prove_absence"),
    "prove absence by one look": Bug(("list_lags",), PROOF, "two_reads"),
    "take an error as gone": Bug(("outage_window",), PROOF | LEAK, "errors_are_unknown"),
    "take a 404 after the create as gone": Bug(
        ("list_lags",), PROOF | LEAK, "fresh_404_is_unknown"
    ),
    "count stopped as gone": Bug(
        ("instance_stopped", "terminate_5xx"), PROOF | LEAK, "stopped_is_billed"
    ),
    "ask terminate once": Bug(("terminate_swallowed", "no_dead_man"), LEAK, "ask_again"),
    "wait for ever for a boot": Bug(("boot_never",), WAITS, "boot_timeout"),
    "wait for ever for a preparation": Bug(("prepare_hangs",), WAITS, "prepare_timeout"),
    "wait for ever for the adapter": Bug(("collect_never",), WAITS, "collect_timeout"),
    "have no deadline": Bug(("trainer_hangs", "no_dead_man"), LEAK, "deadline"),
    "train on the reserve": Bug(
        ("trainer_hangs", "small_budget"), frozenset({"budget_is_kept"}), "budget"
    ),
    "pay any price": Bug(("dearer",), frozenset({"dearer_is_ended"}), "check_price"),
    "ignore a cancel": Bug(("cancel_early",), frozenset({"cancel_is_heeded"}), "heed_cancel"),
    "not see that a machine is gone": Bug(("instance_dies",), WAITS, "notice_loss"),
    "not see that the agent is dead": Bug(("agent_dies",), WAITS, "agent_watch"),
    "write without a fence": Bug(
        ("pause", "two_supervisors"), frozenset({"events_tell_the_state"}) | DOUBLE, "fence_writes"
    ),
    "call without a fence": Bug(
        ("pause_at_effect", "two_supervisors"), DOUBLE | {"calls_are_fenced"}, "fence_calls"
    ),
    "never sweep": Bug(("orphan", "no_dead_man"), LEAK, "sweep"),
    "end foreign machines": Bug(
        ("foreign_machines",), frozenset({"foreign_untouched"}), "own_label_only"
    ),
    "open the next attempt too soon": Bug(
        ("boot_never", "list_lags"), frozenset({"one_machine_per_job"}), "one_at_a_time"
    ),
    "stop the ledger at the terminate call": Bug(
        ("terminate_swallowed",), MONEY, "bill_until_proof"
    ),
    "take a dead trainer for a finished one": Bug(
        ("agent_dies",),
        frozenset({"outcome_is_true"}),
        "trust_only_verdict",
        (("collect_is_blind", True),),  # else the check of what came home saves the day
    ),
    "RunPod: post a create again after a 5xx": Bug(
        ("runpod", "launch_lost_reply"), DOUBLE, None, (("adapter_bug", "create_twice"),)
    ),
    "RunPod: take EXITED for gone": Bug(
        ("runpod", "instance_stopped"), PROOF | LEAK, None, (("adapter_bug", "exited_is_gone"),)
    ),
    "RunPod: read the first page alone": Bug(
        ("runpod", "list_pages", "foreign_machines", "launch_lost_reply"),
        LEAK | MONEY | DOUBLE,
        None,
        (("adapter_bug", "one_page"),),
    ),
    "RunPod: take any error for gone": Bug(
        ("runpod", "outage_window"), PROOF | LEAK, None, (("adapter_bug", "any_error_is_gone"),)
    ),
    "RunPod: leave the disks out of the bill": Bug(
        ("runpod", "trainer_hangs"),
        frozenset({"billed_is_the_bill"}),
        None,
        (("adapter_bug", "bill_without_disks"),),
    ),
    "start the trainer again": Bug(
        ("pause_at_effect", "two_supervisors"),
        frozenset({"trains_once"}),
        None,
        (("agent_has_no_claim", True),),
    ),
}


def seeds_for(bug: Bug, *, first: int = 1) -> Iterator[int]:
    """Yield the seeds, from `first` on, in which the bug has something to spoil.

    Worlds with few other faults: where everything fails at once, jobs end before a bug can show.
    """
    seed = first
    while True:
        swarm = draw_swarm(random.Random(seed + SWARM_SEED))
        faults = swarm.rates.keys() - CONDITIONS.keys()
        if all(name in swarm.rates for name in bug.needs) and len(faults) <= FEW:
            yield seed
        seed += 1
