"""The agent: a keeper and its only child, which owns the trainer.

    start (a command, soon gone)
    `- keeper        own session; waits for the agent, and takes its place should it die
       `- agent      claims, starts the trainer, watches the deadline, judges, writes exit.json
          `- trainer own session; killed by the kernel if the agent dies

Agent and keeper are both subreapers (Linux): whatever the trainer forks, into whatever session,
stays among their descendants. If the agent is killed, the keeper ends the tree and writes the
verdict; if the keeper is killed, the agent goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import subprocess
import time
from functools import partial
from typing import Any, NoReturn

from orchestrator.agent.files import (
    CLAIM,
    LOG,
    METRICS,
    STOP,
    Document,
    claim_once,
    count_start,
    free_bytes,
    publish_exit,
    read_document,
    reserve_exit,
    size_of,
    write_heartbeat,
)
from orchestrator.agent.gauge import Gauge
from orchestrator.agent.keeper import (
    LEFTOVER_GRACE_S,
    TICK_MAX_S,
    exit_document,
    keep,
    linger,
)
from orchestrator.agent.logs import read_log
from orchestrator.agent.metrics import GpuSampler, read_metrics
from orchestrator.agent.notice import save_first
from orchestrator.agent.order import Order, seconds_left
from orchestrator.agent.procs import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    end_tree,
    identity,
    oom_kills,
    prctl,
    steady_s,
)
from orchestrator.agent.verdict import Case, Stopped, judge, stamp_of, steps_of
from orchestrator.agent.watchdog import Memory, is_end, take, verdict
from orchestrator.agent.weights import BadWeights, Weights, check_weights

HEARTBEAT_S = 5.0
MOST_FDS = 4096


def launch(order: Order, answer_fd: int, secrets: dict[str, str]) -> NoReturn:
    """Become the keeper of one agent, in a process that was just forked; never returns.

    Nothing inherited stays open but `answer_fd`, on which the agent says once how it began.
    secrets: for the trainer's environment alone.
    """
    os.setsid()
    os.umask(0o077)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, answer_fd)
    os.closerange(answer_fd + 1, MOST_FDS)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.chdir("/")
    deadline = steady_s() + seconds_left(order, time.time())
    agent = os.fork()
    if agent == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            Agent(order, deadline, answer_fd, secrets).run()
        os._exit(0)
    secrets.clear()
    os.close(answer_fd)  # the agent's alone: the command waits for its end
    with contextlib.suppress(BaseException):
        keep(order, deadline, agent)
    os._exit(0)


class Agent:
    """The owner of one trainer."""

    def __init__(
        self, order: Order, deadline: float, answer_fd: int, secrets: dict[str, str]
    ) -> None:
        self.order = order
        self.secrets = secrets  # let go of once the trainer has them
        self.deadline = deadline
        self.answer_fd = answer_fd
        self.grace_s = order.stop_grace_s
        self.phase = "claimed"
        self.beat_at = 0.0
        self.trainer: subprocess.Popen[bytes] | None = None
        self.rc: int | None = None
        self.stopped: Stopped | None = None
        self.terminated_by = 0
        self.started_at = self.ended_at = time.time()
        self.sampler = GpuSampler(self.path(METRICS))
        self.gauge = Gauge(order.folder, self.path(LOG), self.path(METRICS), self.sampler)
        self.memory: Memory | None = None
        self.look_at = 0.0
        self.suspected = False  # the watchdog would end it: looked at once more, then ended
        self.oom_before = oom_kills()
        self.before = stamp_of(order.out, adapter=order.expect_adapter)

    def path(self, name: str) -> str:
        """Return where a file of the attempt stands."""
        return os.path.join(self.order.folder, name)

    def run(self) -> None:
        """Claim, train, judge, and write the verdict."""
        claim = {
            "token": self.order.token,
            "pid": os.getpid(),
            "pid_started": identity(os.getpid()),
            "keeper": os.getppid(),
            "keeper_started": identity(os.getppid()),
            "at": self.started_at,
            "deadline_in_s": round(self.deadline - steady_s(), 3),
        }
        if not claim_once(self.path(CLAIM), json.dumps(claim).encode()):
            self._answer({"refused": True})
            return
        wakeup = self._listen()
        try:
            reserve_exit(self.order.folder)
            self._start()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            full = getattr(error, "errno", None) == errno.ENOSPC
            reason = "DISK_FULL" if full else "PREPARE_FAILED"
            document = exit_document(self.order.folder, "failed", reason, str(error))
            publish_exit(self.order.folder, document)
            self._answer({"started": False, "already": False, "error": str(error)})
            return
        self._answer({"started": True, "already": False, "pid": os.getpid()})
        try:
            self._watch(wakeup)
            self.phase = "checking"
            self._beat(force=True)
            document = self._judge()
        except Exception as error:  # noqa: BLE001 - a verdict must come whatever is wrong with us
            self._end(0.0)
            words = "the agent failed: %s: %s" % (type(error).__name__, error)
            document = exit_document(self.order.folder, "failed", "INTERNAL", words)
        publish_exit(self.order.folder, document)
        self.phase = "done"
        self._beat(force=True)
        linger(self.order, self.deadline, self._beat)

    def _answer(self, document: Document) -> None:
        """Tell the command, if it is still there, how it began."""
        with contextlib.suppress(OSError):
            os.write(self.answer_fd, json.dumps(document).encode())
        os.close(self.answer_fd)

    def _listen(self) -> int:
        """Return a descriptor that becomes readable with every signal; TERM asks us to stop."""
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        os.set_blocking(readable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminated)
        return readable

    def _terminated(self, signum: int, _: Any) -> None:
        self.terminated_by = signum

    def _start(self) -> None:
        """Start the trainer; that it was started is on disk before it is true."""
        order = self.order
        env = dict(os.environ, **order.env, **self.secrets)
        self.secrets = {}
        env["GPUJOB_FOLDER"] = order.folder
        earlier = env.get("PYTHONPATH")
        env["PYTHONPATH"] = order.folder + (os.pathsep + earlier if earlier else "")
        log = os.open(self.path(LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if count_start(order.folder) != 1:
                raise OSError("a trainer was started in this folder before")
            agent = os.getpid()
            self.trainer = subprocess.Popen(
                order.argv,
                cwd=order.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: _before_exec(agent),
            )
        finally:
            os.close(log)
        self.phase = "training"
        self._beat(force=True)

    def _watch(self, wakeup: int) -> None:
        """Return when the trainer has ended, by itself or by us."""
        while self.rc is None:
            select.select([wakeup], [], [], self._patience_s())
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup, 4096)
            self._reap()
            if self.rc is not None:
                return
            if self.stopped is None:
                self.stopped = self._asked_to_stop()
                if self.stopped is not None:
                    if self.stopped.reason == "INTERRUPTED":
                        wait = partial(self._still_wait, wakeup)
                        save_first(self.order.out, self.path(METRICS), wait)
                    self._end(self.grace_s)
                    return
                self.stopped = self._watchdog()
                if self.stopped is not None:
                    self._end(self.grace_s)
                    return
            self._beat()
            self.sampler.tick()

    def _watchdog(self) -> Stopped | None:
        """Return why the trainer comes to nothing; the verdict is taken anew before it counts."""
        watch, now = self.order.watch, steady_s()
        if watch is None or now < self.look_at:
            return None
        self.look_at = now + watch.every_s
        self.memory = take(self.memory, self.gauge.look(os.getpid(), now), watch)
        found = verdict(self.memory, watch)
        if not is_end(found):
            self.suspected = False
            return None
        if not self.suspected:
            self.suspected, self.look_at = True, now + min(TICK_MAX_S, watch.every_s)
            return None
        return Stopped(found.reason, found.evidence)

    def _patience_s(self) -> float:
        watch = self.order.watch
        tick_s = TICK_MAX_S if watch is None else min(TICK_MAX_S, watch.every_s)
        return max(0.0, min(tick_s, self.deadline - steady_s()))

    def _asked_to_stop(self) -> Stopped | None:
        """Return why the trainer must end now, None while it need not."""
        if steady_s() >= self.deadline:
            return Stopped("DEADLINE", "the deadline passed")
        asked = read_document(self.path(STOP))
        if asked is not None:
            if asked.get("now") is True:
                self.grace_s = 0.0
            return Stopped(str(asked.get("reason") or "CANCELLED"), "stopped as asked")
        if self.terminated_by:
            return Stopped("INTERRUPTED", "the agent got signal %d" % self.terminated_by)
        return None

    def _still_wait(self, wakeup: int) -> bool:
        """Pass a moment of a notice; return whether the trainer lives and need not end at once."""
        select.select([wakeup], [], [], 0.1)
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)
        self._reap_and_beat()
        asked = read_document(self.path(STOP)) or {}
        if asked.get("now") is True:
            self.grace_s = 0.0
        return self.rc is None and self.grace_s > 0

    def _end(self, grace_s: float) -> None:
        """End the trainer and whatever it started."""
        spare = self.sampler.pids()
        group = self.trainer.pid if self.trainer else 0
        left = end_tree(
            os.getpid(), grace_s=grace_s, spare=spare, reap=self._reap_and_beat, group=group
        )
        if left and self.stopped is not None:
            words = "; %d processes could not be killed" % len(left)
            self.stopped = self.stopped._replace(evidence=self.stopped.evidence + words)

    def _reap_and_beat(self) -> None:
        self._reap()
        self._beat()

    def _reap(self) -> None:
        """Collect ended children: the trainer, a sample, orphans that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if self.trainer is not None and pid == self.trainer.pid:
                self.rc = self.trainer.returncode = code
                self.ended_at = time.time()
            else:
                self.sampler.ended(pid, code)

    def _judge(self) -> Document:
        """Return the verdict; what the trainer left behind is ended meanwhile."""
        order = self.order
        free = free_bytes(order.folder)
        self._end(LEFTOVER_GRACE_S)
        weights: Weights | None = None
        error = ""
        if self.rc == 0:
            try:
                weights = check_weights(order.out, adapter=order.expect_adapter, tick=self._beat)
            except BadWeights as bad:
                error = str(bad)
        after = oom_kills()
        killed = None not in (self.oom_before, after) and (after or 0) > (self.oom_before or 0)
        fresh = stamp_of(order.out, adapter=order.expect_adapter) != self.before
        case = Case(
            self.rc,
            self.stopped,
            read_log(self.path(LOG)),
            read_metrics(self.path(METRICS)),
            weights,
            error,
            fresh,
            killed,
            order.may_stop_early,
            free,
        )
        verdict = judge(case)
        step, steps = steps_of(case)
        document = exit_document(order.folder, verdict.verdict, verdict.reason, verdict.evidence)
        document.update(
            ended_at=self.ended_at,
            rc=self.rc,
            signal=-self.rc if self.rc is not None and self.rc < 0 else None,
            last_step=step,
            max_steps=steps,
            adapter=weights and {"tensors": weights.tensors, "finite": weights.finite},
        )
        return document

    def _beat(self, *, force: bool = False) -> None:
        """Write the heartbeat when it is due."""
        now = steady_s()
        if not force and now < self.beat_at:
            return
        self.beat_at = now + HEARTBEAT_S
        write_heartbeat(
            self.order.folder,
            {
                "at": time.time(),
                "steady_s": now,
                "phase": self.phase,
                "agent_pid": os.getpid(),
                "trainer_pid": self.trainer.pid if self.trainer else None,
                "log_bytes": size_of(self.path(LOG)),
                "metrics_bytes": size_of(self.path(METRICS)),
                "sample": list(self.memory.last) if self.memory else None,
            },
        )


def _before_exec(agent: int) -> None:
    """Run in the trainer's process before it becomes the trainer."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        os._exit(1)  # the agent died before the kernel knew that we care
    for signum in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core of 100 GB fills the disk
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("300")  # of all that is ours the kernel shall take the trainer
