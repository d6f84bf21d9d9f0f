"""Graphs of static shape on ONNX Runtime, loaded once and shared by all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgedec.bundle.onnx_file import ModelFile, read_model_file
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.runtimes._ort.agreement import agree, probe_tokens
from edgedec.runtimes._ort.devices import CPU
from edgedec.runtimes._ort.metadata import METADATA_KEY
from edgedec.runtimes._ort.opening import default_threads, model_file, open_inference
from edgedec.runtimes._ort.saved import fingerprint, locations
from edgedec.runtimes._static.executor import Array
from edgedec.runtimes._static.model import StaticShapeModel
from edgedec.runtimes._static.session import FreeSlots
from edgedec.runtimes.onnx_static.executor import SLOTS, StaticExecutor
from edgedec.runtimes.onnx_static.facts import MODEL_FILE, StaticFacts, check_graph


class StaticSession(FreeSlots):
    """Implements ``edgedec.decoding.session.Session``; made by ``StaticModel.open``.

    A graph reads the cache as it was before the pass, and its own rows separately.
    """

    runtime = "onnx-static"

    def _written(self, slots: Sequence[int], width: int) -> dict[str, Array]:
        return {SLOTS: np.array(slots, np.int64)}

    def _bias(self, mask: Array, slots: Sequence[int], width: int) -> Array:
        """Return what is added to scores, ``[1, width, slots + width]``."""
        own = np.zeros((len(slots), width), np.bool_)
        own[:, : len(slots)] = mask[:, slots]
        before = mask.copy()
        before[:, slots] = False
        return super()._bias(np.concatenate([before, own], axis=1), slots, width)


# It fuses the residual sum into the product before it, which is then no longer an integer product:
# the weights would be dequantised again in every pass.
_WITHOUT = ("MatMulAddFusion",)


class StaticModel(StaticShapeModel):
    """Implements ``edgedec.decoding.session.Model``; made by ``StaticModel.load``."""

    session = StaticSession

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        threads: int | None = None,
        providers: Sequence[str] = (),
        device: str | None = None,
    ) -> StaticModel:
        """Load graphs that ``edgedec export`` wrote.

        Args:
            path: ``static-1.onnx``, or its folder.
            threads: for one pass; None is one per core this process may use, fewer for a model of a
                few megabytes.
            providers: execution providers, most wanted first; none is the CPU's. The CPU runs
                operators that another one lacks.
            device: a device's name as ``edgedec devices`` lists it.

        Raises:
            BundleError: a file is missing, damaged, or not one of edgedec's.
            RuntimeUnavailable: a provider did not load or computes incorrectly.

        """
        file = model_file(path, MODEL_FILE)
        main = read_model_file(file)
        facts = StaticFacts.parse(main.metadata, str(file))
        files = facts.graph_files(file.parent)
        stored = {name: _read(each, main) for name, each in files.items()}
        threads = threads or default_threads(main.weight_bytes)

        def open_graph(name: str) -> ort.InferenceSession:
            rows = facts.read_rows if name == "read" else int(name)
            graph = open_inference(files[name], stored[name], threads, providers, device, _WITHOUT)
            check_graph(graph, facts, rows, name != "read", files[name])
            return graph

        executor = StaticExecutor(facts, open_graph)
        executor.graph("1")
        # Every graph that is opened holds a copy of its own, in the form its provider wants.
        model = cls(facts, executor, len(files) * main.weight_bytes, threads)
        model.fingerprint = fingerprint(file, main)
        foreign = [name for name in executor.graph("1").get_providers() if name != CPU]
        if foreign and not _agrees(model, file, threads):
            model.close()
            raise RuntimeUnavailable(
                f"{file}: {foreign[0]} computes other numbers than the processor: choose another"
                " provider, or export the model with --weights fp16"
            )
        return model


def _agrees(model: StaticModel, file: Path, threads: int) -> bool:
    reference = StaticModel.load(file, threads=threads)
    try:
        return computes(model, reference)
    finally:
        reference.close()


def computes(model: StaticModel, reference: StaticModel) -> bool:
    """Return whether a provider's logits are the processor's, in one pass and one by one."""
    facts = model.facts
    tokens = probe_tokens(facts.vocab_used, min(facts.rows[-1], model.info.max_context))
    expected = _logits(reference, [tokens])
    apart = [[token] for token in tokens]
    return all(agree(expected, _logits(model, passes)) for passes in ([tokens], apart))


def _logits(model: StaticModel, passes: Sequence[Sequence[int]]) -> FloatArray:
    """Return the logits of a text that is read in these passes."""
    session, found = model.open(sum(map(len, passes))), []
    try:
        for tokens in passes:
            scored = session.forward(TokenTree.chain(tokens), want=Want.LOGITS)
            assert scored.logits is not None
            found.append(scored.logits[:, : model.facts.vocab_used].copy())
            session.commit(range(len(tokens)))
    finally:
        session.close()
    return np.concatenate(found)


def _read(file: Path, main: ModelFile) -> ModelFile:
    """Read a graph in the main one's folder.

    Raises:
        BundleError: the file is missing or damaged, or belongs to another model.

    """
    stored = read_model_file(file)
    same = stored.metadata.get(METADATA_KEY) == main.metadata.get(METADATA_KEY)
    if not same or not set(locations(stored)) <= set(locations(main)):
        raise BundleError(f"{file}: it is not of the same model as the other graphs")
    return stored
