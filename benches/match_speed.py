"""Prints the CPU time of matching 10,000 offers of 1 to 8 GPUs, and of planning on 5,000 above one.

    python benches/match_speed.py

Offers are every card of the table with 1 to 8 GPUs, repeated with other prices; the match is of a
sized job, fresh each time, so nothing is remembered from the run before.
"""

import sys
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import count, islice
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs.architectures import find
from jobs.sizing import Tokens
from jobs.spec import JobSpec
from jobs.workload import Workload
from orchestrator.match import Requirement, match
from orchestrator.planning import Need
from orchestrator.report_json import dumps
from orchestrator.report_plan import plan_document, plan_lines
from orchestrator.report_text import Screen
from orchestrator.sized import Sized
from orchestrator.submit import Plan
from providers.base import Offer, OfferKey
from providers.gpus import GPUS

ROUNDS = 5


def offers(number: int) -> list[Offer]:
    """Return so many offers, no two alike."""
    names = sorted(GPUS)
    kinds = ((turn, gpu, gpus) for turn in count() for gpu in names for gpus in range(1, 9))
    return [
        Offer(
            "bench",
            OfferKey(f"{gpu}-{gpus}-{turn}"),
            gpu,
            gpus,
            GPUS[gpu].vram_gib,
            Decimal(20 + (turn * 7 + gpus * 13) % 400) / 100 * gpus,
            interruptible=turn % 2 == 1,
            region=f"r{turn}",
        )
        for turn, gpu, gpus in islice(kinds, number)
    ]


def requirement() -> Requirement:
    """Return a sized job that has never been matched."""
    work = Workload(find("Llama-3.1-8B"), micro_batch_size=2, gradient_accumulation_steps=8)
    tokens = Tokens(30_000_000, 1_000_000, 29_000_000, 900, "bench")
    return Requirement(count=None, spot=True, sized=Sized(work, tokens))


def best_ms(call: Callable[[], object]) -> float:
    """Return the lowest CPU time of some calls, milliseconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1000 * min(times)


def plan_on(found: list[Offer]) -> None:
    """Match and write both answers, as `gpujob plan` does."""
    spec = JobSpec.model_validate({"name": "x", "model": "Llama-3.1-8B", "method": "qlora"})
    need = requirement()
    planned = Plan(spec, match(need, found), {}, (), need=Need(need, ("bench",)))
    plan_lines(planned, Screen(width=120))
    dumps(plan_document(planned, None, 0.0))


def main() -> None:
    """Print both figures."""
    many = offers(10_000)
    print(
        f"match on 10,000 offers x 1-8 GPUs: {best_ms(lambda: match(requirement(), many)):.0f} ms"
    )
    some, one = offers(5_000), offers(1)
    above = best_ms(lambda: plan_on(some)) - best_ms(lambda: plan_on(one))
    print(f"plan on 5,000 offers above one, text and JSON: {above:.0f} ms")


if __name__ == "__main__":
    main()
