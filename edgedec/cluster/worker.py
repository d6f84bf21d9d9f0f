"""One process on a node of the cluster: holds a pipeline and decodes one prompt at a time.

Everything that arrives and leaves is plain data, so that a node with another version of edgedec
can say so instead of failing to unpickle its classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec._support import telemetry
from edgedec._support.fields import one_line
from edgedec._version import __version__
from edgedec.errors import EdgedecError

Answer = dict[str, Any]


class Worker:
    """Ray makes an actor of this class; its methods run one after the other.

    Args:
        cores: that Ray has reserved for it.

    """

    def __init__(self, cores: int) -> None:
        telemetry.switch_off()
        self._cores = cores

    def open(self, run: Mapping[str, Any], sent: Mapping[str, Any]) -> Answer:
        """Find the models and open the pipeline.

        Args:
            run: what all workers have in common, see ``edgedec.cluster.common``.
            sent: chunks of models by ``target`` and ``draft``; empty at first.

        Returns:
            ``refused`` (why this node cannot take part), ``missing`` (models to be sent) or
            ``opened``.

        """
        if run["version"] != __version__:
            return {"refused": f"has edgedec {__version__}, this machine has {run['version']}:"
                    f" install the same on both"}  # fmt: skip
        try:
            return self._open(run, sent)
        except EdgedecError as error:
            return {"refused": one_line(str(error))}

    def _open(self, run: Mapping[str, Any], sent: Mapping[str, Any]) -> Answer:
        from edgedec.cluster import models, node
        from edgedec.cluster.common import generate_options, open_options
        from edgedec.pipeline import Pipeline

        # One process of a node at a time: the others find the model that the first one has
        # received, and a plan that was measured without a neighbour at work.
        with node.turn():
            paths = {}
            for role, model in run["models"].items():
                found = models.find(model)
                if found is None and role in sent:
                    others = run["models"].values()
                    found = models.receive(model, sent[role], _fetched, others)
                paths[role] = found
            if missing := [role for role, found in paths.items() if found is None]:
                return {"missing": missing}
            options = open_options(run, self._cores, paths.get("draft"))
            self._pipeline = Pipeline.open(str(paths["target"]), options)
        if refused := node.differs(self._pipeline, run):
            self._pipeline.close()
            return {"refused": refused}
        self._text, self._answer = generate_options(run["text"]), generate_options(run["answer"])
        return {"opened": True}

    def decode(self, job: Mapping[str, Any]) -> Answer:
        """Decode one prompt.

        Args:
            job: the fields of a ``Job``.

        Returns:
            ``fields`` (of its line) or ``again`` (why it must be done by another process).

        """
        from edgedec.batch.jobs import Job
        from edgedec.batch.run import decoded
        from edgedec.cluster import node

        asked = Job(**job)
        own = self._text if isinstance(asked.prompt, str) else self._answer
        try:
            fields, _ = decoded(self._pipeline, asked, own, node.to_end)
        except EdgedecError as error:
            return {"again": one_line(str(error))}
        return {"fields": fields | {"kernels": node.kernels(self._pipeline)}}


def _fetched(reference: Any) -> bytes:
    import ray

    data: bytes = ray.get(reference)
    return data
