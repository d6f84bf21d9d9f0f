"""Finds the peers that take part: their environments, models and perplexities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.race.children import Failed, ask
from benchmarks.race.choice import Choice
from benchmarks.race.environment import Environment, ModelMaker, here, make, size
from benchmarks.race.protocol import Models, Peer, Way, file_of, label
from edgedec.compare.records import Recorder
from edgedec.errors import EdgedecError

_LIMIT_S = 1800.0
# What a user of these kinds would not choose among.
_ALONE = ("plain", "auto")
Record = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A way of a peer whose environment and models are there.

    Attributes:
        peer, way: as the peer's file has them.
        environment, models: to run in and with.
        threads: of each model.
        log: gets the output of its latest run.

    """

    peer: Peer
    way: Way
    environment: Environment
    models: Models
    threads: int
    log: Path

    @property
    def name(self) -> str:
        """Return the peer's name and the way's."""
        return f"{self.peer.NAME} {label(self.way)}"

    @property
    def rivals(self) -> tuple[str, ...]:
        """Return a key shared by the ways it competes with."""
        kind = self.way["kind"]
        own = (label(self.way),) if kind in _ALONE else ()
        return (self.peer.NAME, self.way["weights"], kind, *own)

    def request(self, fields: Record) -> tuple[Path, Path, Record, Path]:
        """Return what ``children.ask`` takes for a task of this entrant."""
        return (
            self.environment.python,
            file_of(self.peer),
            {
                **self.environment.common,
                **self.way,
                "models": dict(self.models),
                "threads": self.threads,
                **fields,
            },
            self.log,
        )


class Gathering:
    """Finds entrants, and records each model and what is skipped.

    ``maker.environments`` is filled here; ``known`` are the records of earlier sessions.
    Peers named in ``installed`` run as this interpreter has them.
    """

    def __init__(
        self,
        maker: ModelMaker,
        work: Path,
        recorder: Recorder,
        known: Sequence[Record],
        say: Say,
        installed: Sequence[str] = (),
    ) -> None:
        self._maker, self._work, self._recorder, self._say = maker, work, recorder, say
        self._installed = installed
        self.environments: dict[str, Environment] = {}
        self.models = {
            (found["peer"], found["weights"]): found
            for found in known
            if found.get("kind") == "model" and found.get("perplexity") is not None
        }
        self.skipped: dict[str, str] = {}

    def entrants(self, choice: Choice, threads: int, ids: Sequence[int]) -> Iterator[Entrant]:
        """Yield the ways that take part.

        ``ids`` are the tokens to measure perplexity on.
        """
        for name in choice.peers:
            peer = self._maker.peers[name]
            environment = self._environment(peer)
            if environment is None:
                continue
            for kind, reason in choice.unable(peer).items():
                self._skip(f"{name} {kind}, sampled", reason)
            for weights in choice.weights_of(peer):
                if found := choice.ways(peer, weights):
                    yield from self._with_models(peer, environment, found, threads, ids)

    def _environment(self, peer: Peer) -> Environment | None:
        own = peer.NAME in self._installed
        home = peer if own else self._maker.peers[peer.ENVIRONMENT]
        if home.NAME in self.skipped:
            self._skip(peer.NAME, self.skipped[home.NAME])
            return None
        if home.NAME not in self.environments:
            self._say(f"{peer.NAME}: environment")
            try:
                self.environments[home.NAME] = here(home) if own else make(home, self._work)
            except Failed as error:
                self._skip(home.NAME, f"its environment cannot be made: {error}")
                return self._environment(peer) if peer is not home else None
        found = self.environments[peer.NAME] = self.environments[home.NAME]
        self._recorder.add(
            kind="environment", peer=peer.NAME, title=peer.TITLE, versions=found.versions
        )
        return found

    def _with_models(
        self,
        peer: Peer,
        environment: Environment,
        ways: Sequence[Way],
        threads: int,
        ids: Sequence[int],
    ) -> Iterator[Entrant]:
        weights = ways[0]["weights"]
        self._say(f"{peer.NAME}: {weights}")
        log = self._work / "logs" / f"{peer.NAME}-{weights}.log"
        try:
            models = peer.models(self._maker, weights)
        except (Failed, EdgedecError) as error:
            self._skip(f"{peer.NAME} {weights}", f"its models cannot be made: {error}")
            return
        found = [Entrant(peer, way, environment, models, threads, log) for way in ways]
        if (peer.NAME, weights) not in self.models:
            record = self._measured(found[0], ids)
            self.models[peer.NAME, weights] = record
            self._recorder.add(kind="model", **record)
        yield from found

    def _measured(self, entrant: Entrant, ids: Sequence[int]) -> Record:
        """Return a model's size and perplexity."""
        models = entrant.models
        record: Record = {
            "peer": entrant.peer.NAME,
            "weights": entrant.way["weights"],
            "weight_bytes": size(Path(models["target"])),
            "draft_bytes": size(Path(models["draft"])) if "draft" in models else None,
            "perplexity": None,
        }
        request = {"task": "perplexity", "ids": list(ids)}
        try:
            answer = ask(*entrant.request(request), _LIMIT_S)
            record.update(answer)
        except Failed as error:
            record["reason"] = f"{error.kind}: {error}"
            self._say(f"{entrant.name}: no perplexity: {error}")
        return record

    def _skip(self, name: str, reason: str) -> None:
        self.skipped[name] = reason
        self._recorder.add(kind="skipped", name=name, reason=reason)
        self._say(f"{name}: skipped: {reason}")
