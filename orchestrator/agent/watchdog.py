"""Whether a training still comes to something: Busy, Idle, Stalled or Unknown. Pure.

One module for both watchmen: the agent on the instance, which acts though nobody is there, and the
orchestrator beside it. `take` folds one sample into what is remembered, `verdict` reads it.

Idle: nothing at all is done, by anybody, for idle_s. Any use of a GPU vetoes it, and so does
memory held on one while the heartbeat is fresh. Stalled: it runs, but comes to nothing: no step and
no line of the log for stall_s, a loss that is no number, a loss that explodes, no disk left. What
is not known counts as busy; the deadline is another's business and asks nobody here.
"""

from __future__ import annotations

from typing import NamedTuple

BUSY, IDLE, STALLED, UNKNOWN = "busy", "idle", "stalled", "unknown"

EVERY_S = 15.0  # between two samples; nvidia-smi is asked as often
STRIKES = 3  # so many samples in a row must say the same
FRESH_S = 60.0  # a heartbeat older than this vouches for nothing
HELD_MIB = 1024.0  # of GPU memory: a model is loaded, somebody may be about to use it
CPU_SHARE = 0.05  # of one core: what an idle Python with its threads stays well below
MOVED_BYTES_PER_S = 65_536.0  # a transfer, not the chatter of an idle process
BLIND_SAMPLES = 4.0  # a pause so many samples long: asleep or stopped, it proves nothing
LOGGING_FACTOR = 8.0  # a log that grows without a step is believed so much longer: an evaluation
STEP_FACTOR = 4.0  # a pause is no stall while it is shorter than so many of the longest step
DEAD_WORKER_PART = 1.0 / 3.0  # of stall_s, where a worker is dead and nothing whatever moves
SPINNING_PERCENT = 90.0  # all GPUs of a hung collective show this, and no step
FULL_DISK_LEFT = 16 << 20
BAD_RECORDS = 3  # of a loss or gradient that is no number, in a row
BAD_RECORDS_FP16 = 20  # its scaler skips such steps while it looks for a scale
EXPLODED_RECORDS = 10
EXPLODED_FACTOR, EXPLODED_MORE = 3.0, 3.0  # above 3 x its beginning + 3: worse than guessing
FIRST_RECORDS = 5  # whose median is the loss's beginning

SETUP, TRAIN, AFTER = "setup", "train", "after"


class Watch(NamedTuple):
    """The limits in force, in seconds; None: never."""

    idle_s: float | None = 1800.0
    stall_s: float | None = 1800.0
    every_s: float = EVERY_S


class Sample(NamedTuple):
    """One look. Counters only grow; None is not known. Plain values, so that it goes into JSON."""

    at: float
    phase: str = SETUP  # setup, train (from the first record to the last), after
    step: int | None = None
    marks: int = 0  # evaluations, checkpoints, records of any kind
    log_bytes: int = 0
    has_gpu: bool = False
    gpu_percent: float | None = None  # of the busiest
    gpu_idlest_percent: float | None = None
    gpu_used_mib: float | None = None  # of the fullest
    gpu_count: int = 0
    cpu_s: float | None = None  # of the trainer and all that it started
    moved_bytes: int | None = None  # read and written by them, files and sockets
    dead_workers: int = 0  # of its processes, ended and never asked after
    free_bytes: int | None = None
    heartbeat_age_s: float = 0.0
    bad_records: int = 0  # in a row, up to the newest
    high_records: int = 0  # the same, of an exploded loss
    fp16: bool = False


class Memory(NamedTuple):
    """What is remembered between samples. Times are the samples' own."""

    last: Sample
    active_at: float  # anything was done
    alive_at: float  # a step, a record, a line of the log; outside the training: any activity
    step_at: float  # a step or a record; outside the training: any activity
    longest_s: float = 0.0  # between two steps
    unknown: bool = False
    idle_strikes: int = 0
    stall_strikes: int = 0
    full_strikes: int = 0


class Finding(NamedTuple):
    """busy | idle | stalled | unknown; a reason and its words where the run is to end."""

    kind: str
    reason: str = ""
    evidence: str = ""


def take(memory: Memory | None, sample: Sample, watch: Watch) -> Memory:
    """Return what is remembered after one more sample."""
    if memory is None:
        return Memory(sample, sample.at, sample.at, sample.at)
    last = memory.last
    passed_s = sample.at - last.at
    if passed_s <= 0:
        return memory
    if passed_s > BLIND_SAMPLES * watch.every_s:
        # Nobody looked: the machine slept, the watchman was stopped. That time counts for nothing.
        memory = memory._replace(
            active_at=memory.active_at + passed_s,
            alive_at=memory.alive_at + passed_s,
            step_at=memory.step_at + passed_s,
            idle_strikes=0,
            stall_strikes=0,
        )
    stepped = sample.step != last.step or sample.marks != last.marks or sample.phase != last.phase
    logged = sample.log_bytes != last.log_bytes
    moved = _rate(last.moved_bytes, sample.moved_bytes, passed_s) >= MOVED_BYTES_PER_S
    computed = _rate(last.cpu_s, sample.cpu_s, passed_s) >= CPU_SHARE
    on_gpu = (sample.gpu_percent or 0.0) > 0
    at = sample.at
    active = stepped or logged or moved or computed or on_gpu
    training = sample.phase == TRAIN
    progressed = stepped or (not training and active)
    living = progressed or logged or moved
    gap_s = at - memory.step_at if stepped and training and last.phase == TRAIN else 0.0
    unknown = _unknown(sample)
    memory = memory._replace(
        last=sample,
        active_at=at if active or unknown else memory.active_at,
        alive_at=at if living else memory.alive_at,
        step_at=at if progressed else memory.step_at,
        longest_s=max(memory.longest_s, gap_s),
        unknown=unknown,
    )
    full = sample.free_bytes is not None and sample.free_bytes < FULL_DISK_LEFT
    return memory._replace(
        idle_strikes=memory.idle_strikes + 1 if _is_idle(memory, watch) else 0,
        stall_strikes=memory.stall_strikes + 1 if _stall_of(memory, watch) else 0,
        full_strikes=memory.full_strikes + 1 if full else 0,
    )


def verdict(memory: Memory, watch: Watch) -> Finding:
    """Return what the samples so far come to. The same words every time."""
    sample = memory.last
    limit = BAD_RECORDS_FP16 if sample.fp16 else BAD_RECORDS
    if sample.bad_records >= limit:
        words = "loss or gradient was no number in %d records in a row, up to step %s"
        return Finding(STALLED, "DIVERGED", words % (sample.bad_records, sample.step))
    if sample.high_records >= EXPLODED_RECORDS:
        words = "the loss exploded: far above its beginning in %d records in a row, up to step %s"
        return Finding(STALLED, "DIVERGED", words % (sample.high_records, sample.step))
    if memory.full_strikes >= STRIKES:
        return Finding(STALLED, "DISK_FULL", "%s bytes are free on the disk" % sample.free_bytes)
    found = _idle_verdict(memory, watch), _stall_verdict(memory, watch)
    # In a training, "no step" says more than "nothing done"; elsewhere it is the other way round.
    for one in reversed(found) if sample.phase == TRAIN else found:
        if one is not None:
            return one
    return Finding(UNKNOWN if memory.unknown else BUSY)


def _idle_verdict(memory: Memory, watch: Watch) -> Finding | None:
    if memory.idle_strikes < STRIKES or not _is_idle(memory, watch):
        return None
    span = _span(memory.last.at - memory.active_at)
    return Finding(IDLE, "IDLE", "nothing was done for %s" % span)


def _stall_verdict(memory: Memory, watch: Watch) -> Finding | None:
    sample, words = memory.last, _stall_of(memory, watch)
    if not words or memory.stall_strikes < STRIKES:
        return None
    if sample.gpu_count > 1 and (sample.gpu_idlest_percent or 0.0) >= SPINNING_PERCENT:
        words += "; all %d GPUs spin, as in a hung collective" % sample.gpu_count
        return Finding(STALLED, "NCCL_TIMEOUT", words)
    return Finding(STALLED, "STALLED", words)


def _unknown(sample: Sample) -> bool:
    """Return whether too little is known for an idle verdict."""
    blind = sample.has_gpu and (sample.gpu_percent is None or sample.gpu_used_mib is None)
    return blind or sample.cpu_s is None or sample.moved_bytes is None


def _is_idle(memory: Memory, watch: Watch) -> bool:
    sample = memory.last
    if watch.idle_s is None or memory.unknown:
        return False
    held = (sample.gpu_used_mib or 0.0) >= HELD_MIB
    if held and sample.heartbeat_age_s <= FRESH_S:
        return False
    return sample.at - memory.active_at >= watch.idle_s


def _stall_of(memory: Memory, watch: Watch) -> str:
    """Return in which words it is stalled, "" where it is not."""
    if watch.stall_s is None:
        return ""
    sample = memory.last
    bound_s = max(watch.stall_s, STEP_FACTOR * memory.longest_s)
    silent_s, stuck_s = sample.at - memory.alive_at, sample.at - memory.step_at
    after = " after step %s" % sample.step if sample.step is not None else ""
    still = sample.at - memory.active_at
    if sample.dead_workers and still >= DEAD_WORKER_PART * watch.stall_s and not memory.unknown:
        words = "a process of the trainer died%s, and nothing has moved for %s"
        return words % (after, _span(still))
    if silent_s >= bound_s:
        return "no step and no line of the log for %s%s" % (_span(silent_s), after)
    if stuck_s >= LOGGING_FACTOR * bound_s:
        return "no step for %s%s, though the log grows" % (_span(stuck_s), after)
    return ""


def _rate(before: float | None, now: float | None, passed_s: float) -> float:
    if before is None or now is None:
        return 0.0
    return max(0.0, now - before) / passed_s


def _span(seconds: float) -> str:
    return "%.0f min" % (seconds / 60) if seconds >= 120 else "%.0f s" % seconds


def is_end(found: Finding) -> bool:
    """Return whether the run is to end for this verdict."""
    return found.reason != ""
