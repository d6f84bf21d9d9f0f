"""Sends prompts to the workers of a cluster and writes each result once, as it arrives.

A loop around ``ray.wait`` rather than Ray Data: a worker has two prompts in hand, the file of
results is the only state, and whatever a lost worker had in hand goes back to the front. Ray Data
would keep its own account of blocks of prompts, which neither knows what is on the disk nor
survives the driver.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

from edgedec._support.amounts import size
from edgedec._support.fields import one_line
from edgedec._version import __version__
from edgedec.batch.jobs import Job
from edgedec.batch.run import Sink
from edgedec.cluster import models
from edgedec.cluster.common import Run
from edgedec.cluster.connect import answers
from edgedec.cluster.worker import Worker
from edgedec.errors import RuntimeUnavailable


@dataclass(frozen=True, slots=True)
class Place:
    """Room for one worker.

    Attributes:
        node: Ray's id of the node.
        name: of the node, for people.
        cores: that Ray reserves there.
        bytes: of memory that Ray reserves there.

    """

    node: str
    name: str
    cores: int
    bytes: int


def places(
    nodes: Iterable[Mapping[str, Any]], threads: int | None, needed: int
) -> tuple[list[Place], list[str]]:
    """Return the places on the nodes that are alive, and a line for each node that has none.

    A node without cores, as a head that only directs, is passed over.

    Args:
        nodes: as ``ray.nodes()`` returns them.
        threads: cores of a worker, of which a node holds as many as fit; None is one worker with
            all cores of the node.
        needed: bytes of memory of a worker.

    """
    found, refused = [], []
    for node in nodes:
        cores, memory = (int(node["Resources"].get(one, 0)) for one in ("CPU", "memory"))
        if not node["Alive"] or not cores:
            continue
        name = named(node)
        own = threads or cores
        if own > cores:
            refused.append(f"{name} has {cores} cores for Ray, --threads {own} asks for more")
        elif needed > memory:
            refused.append(
                f"{name} has {size(memory)} of memory for Ray, the plan needs {size(needed)}:"
                " give a smaller --max-context, or start Ray there with more --memory"
            )
        count = min(cores // own, memory // max(needed, 1))
        found += [Place(node["NodeID"], name, own, needed)] * count
    return found, refused


def named(node: Mapping[str, Any]) -> str:
    """Return a node's name: its host's, with the address that tells two on one host apart."""
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


# Prompts that a worker has in hand: one that it decodes and one that it finds when that has ended.
IN_HAND = 2
# Processes that may be lost with a prompt in their hands before that prompt is given up.
MOST_TRIES = 3
# Processes that may be lost in a row, one in another's place, without a single result: as many as
# three prompts in a row can end. Those without a prompt in hand count for ``MOST_TRIES``.
MOST_LOSSES = 3 * MOST_TRIES
_LOOK_S, _LONG_S = 2.0, 30.0


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker, and what it has in hand.

    Attributes:
        actor: Ray's handle.
        losses: of those whose place it has taken, in a row.
        begun: when it was asked for, by the clock; None once that has been said to take long.
        calls: of its methods, in the order in which it answers them.
        jobs: in the order in which it decodes them, one for each call once it is ready.

    """

    place: Place
    actor: Any
    losses: int = 0
    ready: bool = False
    begun: float | None = field(default_factory=monotonic)
    calls: deque[Any] = field(default_factory=deque)
    jobs: deque[Job] = field(default_factory=deque)


class Crew:
    """The workers of a run.

    Args:
        run: what all of them are given.
        results: where results go; what it has is not done again.
        threads: cores of a worker; None is all those of its node.
        note: takes a line about a node.
        arrived: called after each result.

    Attributes:
        made: texts by the name of the node.
        failed: lines with an error.

    """

    def __init__(
        self,
        run: Run,
        results: Sink,
        threads: int | None,
        note: Callable[[str], object],
        arrived: Callable[[], object],
        worker: type = Worker,
    ) -> None:
        self.made: Counter[str] = Counter()
        self.failed = 0
        self._run, self._results, self._threads = run, results, threads
        self._note, self._arrived = note, arrived
        self._waiting: deque[Job] = deque()
        self._tries: Counter[str] = Counter()
        self._workers: list[_Worker] = []
        self._looked = 0.0
        self._known: set[str] = set()
        self._sent: dict[str, models.Chunks] = {}
        import ray
        from ray.exceptions import RayError

        self._ray, self._error = ray, RayError
        self._actor = ray.remote(max_restarts=0, max_task_retries=0)(worker)

    def decode(self, jobs: Sequence[Job]) -> None:
        """Decode the jobs that have no result yet.

        Raises:
            RuntimeUnavailable: no node is left that can.
            InputError: the file of results cannot be written.

        """
        self._waiting = deque(job for job in jobs if job.id not in self._results.done)
        try:
            self._look()
            while self._waiting or any(worker.jobs for worker in self._workers):
                self._step()
        finally:
            self.close()

    def close(self) -> None:
        """End all workers, whatever they have in hand."""
        for worker in [*self._workers]:
            self._end(worker)

    def _step(self) -> None:
        """Take what has arrived, or look for new nodes."""
        done: list[Any] = []
        # The first of each: of a worker that is lost, what it had answered before is taken first.
        if first := {worker.calls[0]: worker for worker in self._workers if worker.calls}:
            done, _ = self._ray.wait(list(first), num_returns=1, timeout=_LOOK_S)
        if not first or monotonic() - self._looked > _LOOK_S:
            self._look()
        for call in done:
            worker = first[call]
            worker.calls.popleft()
            try:
                answer = self._ray.get(call)
            except self._error as error:
                self._failed(worker, str(error))
            else:
                self._take(worker, answer)

    # -- workers --------------------------------------------------------------------------------

    def _look(self) -> None:
        """Start workers on nodes that are new.

        Raises:
            RuntimeUnavailable: there is no worker, or no head any more.

        """
        self._looked = monotonic()
        new = [node for node in self._alive() if node["NodeID"] not in self._known]
        self._known |= {node["NodeID"] for node in new}
        found, refused = places(new, self._threads, self._run["bytes"])
        for line in refused:
            self._note(f"{line}: it takes no part")
        for place in found:
            self._start(place)
        if all(worker.ready for worker in self._workers):
            self._sent.clear()  # nobody fetches it any more: the object store may forget it
        for worker in self._workers:
            if (
                worker.begun is not None
                and monotonic() - worker.begun > _LONG_S
                and not worker.ready
            ):
                worker.begun = None
                self._note(f"{worker.place.name}: still waiting for its cores, memory and model")
        if not self._workers:
            raise RuntimeUnavailable(
                f"no node of the cluster can decode: {len(self._results.done)} results are there;"
                " run the same command again when one can"
            )

    def _alive(self) -> list[dict[str, Any]]:
        """Return the nodes that are alive; RuntimeUnavailable if the head has gone."""
        head = self._ray.get_runtime_context().gcs_address
        if not answers(head):  # Ray would wait for a minute, and then end this process
            raise RuntimeUnavailable(
                f"the head of the cluster, {head}, is gone: {len(self._results.done)} results are"
                " there; start the cluster and run the same command again"
            )
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _start(self, place: Place, losses: int = 0) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        wanted = {"num_cpus": place.cores, "memory": place.bytes, "scheduling_strategy": where}
        worker = _Worker(place, self._actor.options(**wanted).remote(place.cores), losses)
        self._workers.append(worker)
        worker.calls.append(worker.actor.open.remote(self._run, {}))

    def _failed(self, worker: _Worker, error: str) -> None:
        """Take Ray's error, which is a traceback if Python raised it on the node."""
        first, *others = error.strip().splitlines()
        if not worker.ready and (
            missing := re.search(r"No module named '(edgedec(?:\.\w+)*)'", error)
        ):
            self._refused(worker, f"has no {missing[1]}: it needs edgedec {__version__}")
        else:
            self._lost(worker, one_line(others[-1] if others and "Traceback" in error else first))

    def _refused(self, worker: _Worker, why: str) -> None:
        self._note(f"{worker.place.name} {why}: it takes no part")
        self._end(worker)

    def _take(self, worker: _Worker, answer: Mapping[str, Any]) -> None:
        """Take an answer of a worker, and give it more to do."""
        if "refused" in answer:
            self._refused(worker, answer["refused"])
        elif "missing" in answer:
            sent = {role: self._chunks(role) for role in answer["missing"]}
            worker.calls.append(worker.actor.open.remote(self._run, sent))
        elif "again" in answer:
            self._lost(worker, answer["again"])
        else:
            if "opened" in answer:
                worker.ready = True
            else:
                worker.losses = 0
                self._keep(worker.jobs.popleft(), answer["fields"], worker.place.name)
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        # Towards the end a slow node shall not hold a prompt that another could begin.
        most = IN_HAND if len(self._waiting) > len(self._workers) else 1
        while self._waiting and len(worker.jobs) < most:
            job = self._waiting.popleft()
            worker.jobs.append(job)
            worker.calls.append(worker.actor.decode.remote(asdict(job)))

    def _chunks(self, role: str) -> models.Chunks:
        """Return a model in Ray's object store; RuntimeUnavailable if it has no room for it."""
        if role not in self._sent:
            model = self._run["models"][role]
            self._note(f"sending {model['word']}, {models.size(model)}, to nodes that lack it")
            try:
                self._sent[role] = models.chunks(model, self._ray.put)
            except self._error as error:
                raise RuntimeUnavailable(
                    f"Ray's object store here has no room for {model['word']} ({_line(error)}):"
                    " make room on its disk, or copy the model to the same path on each node"
                ) from None
        return self._sent[role]

    def _end(self, worker: _Worker) -> None:
        """End a worker, whose calls are forgotten."""
        self._ray.kill(worker.actor, no_restart=True)
        self._workers.remove(worker)

    # -- results --------------------------------------------------------------------------------

    def _keep(self, job: Job, fields: Mapping[str, Any], name: str) -> None:
        self._results.add(job, {**fields, "node": name})
        self.made[name] += 1
        self.failed += "error" in fields
        self._arrived()

    def _lost(self, worker: _Worker, why: str) -> None:
        """Put back what a worker had in hand, and start another in its place if that may help."""
        self._end(worker)
        place, losses = worker.place, worker.losses + (1 if worker.jobs else MOST_TRIES)
        if worker.jobs:
            self._blame(worker.jobs[0], place, why)
        back = [job for job in worker.jobs if job.id not in self._results.done]
        self._waiting.extendleft(reversed(back))
        again = f"; to be done again: {', '.join(job.id for job in back)}" if back else ""
        alive = any(node["NodeID"] == place.node for node in self._alive())
        starts = alive and losses < MOST_LOSSES
        over = "; no other is started" if alive and not starts else ""
        self._note(f"{place.name} lost a worker ({why}){again}{over}")
        if starts:
            self._start(place, losses)
        for other in self._workers:
            if other.ready:
                self._give(other)

    def _blame(self, job: Job, place: Place, why: str) -> None:
        """Give a prompt up that was being decoded each time a process was lost."""
        self._tries[job.id] += 1
        if self._tries[job.id] >= MOST_TRIES:
            lost = f"given up: {MOST_TRIES} processes were lost while they decoded it, the last"
            self._keep(job, {"error": f"{lost} on {place.name}: {why}"}, place.name)


def _line(error: Exception) -> str:
    return one_line(str(error).strip().splitlines()[0])
