"""Makes a bundle of a decoder that others exported to ONNX: its files as they are, and a manifest.

Three layouts are known: that of transformers.js (``onnx/model_q4.onnx`` and kin beside
config.json), that of onnxruntime-genai (``genai_config.json`` beside the graph) and that of optimum
(``model.onnx`` beside config.json). Nothing is converted; what the graph computes is tried before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec._support.atomic import write_json
from edgedec._support.fields import one_line
from edgedec._support.files import linked
from edgedec._support.model_path import is_hub_name
from edgedec._support.ready_path import GENAI, GENAI_LABEL, first_graph, ready_graphs
from edgedec._version import __version__
from edgedec.bundle import ready_onnx
from edgedec.bundle.manifest import MANIFEST, SCHEMA_VERSION
from edgedec.bundle.onnx_file import read_graph
from edgedec.bundle.onnx_wires import Value, Wires, read_wires
from edgedec.bundle.ready_onnx import CACHES, IDS, LOGITS, MASK, POSITIONS, ReadyFacts
from edgedec.errors import CheckpointError
from edgedec.export import describing, links
from edgedec.export import tokenizer as tok
from edgedec.export.checkpoint import eos_ids, of_card, read_json, stated_licence
from edgedec.export.tokenizer import TokenizerContent
from edgedec.runtimes import registry

FORMAT = "onnx-hub"
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_ANY_CONTEXT = 2048
_KV = {1: "fp32", 10: "fp16"}
# Inputs and outputs of genai_config.json, by the names that most exporters give them.
_INPUTS = {"input_ids": IDS, "attention_mask": MASK, "position_ids": POSITIONS,
           "past_sequence_length": "past_sequence_length",
           "total_sequence_length": "total_sequence_length"}  # fmt: skip
_SEARCH = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class Ready:
    """A decoder in ONNX, as a folder holds it.

    Attributes:
        folder: with its tokenizer and configuration.
        layout: the program that it was made for.
        label: which of the folder's graphs it is, as ``q4``.
        graph: its file, relative to the folder.
        weights: files that the graph names, relative to the graph.
        config: ``config.json``; empty if there is none.
        genai: the ``model`` of ``genai_config.json``; empty if there is none.
        generation: what the folder states for generating.
        chosen: whether this graph was named.

    """

    folder: Path
    layout: str
    label: str
    graph: PurePosixPath
    weights: tuple[str, ...]
    config: Mapping[str, Any]
    genai: Mapping[str, Any]
    generation: Mapping[str, Any]
    chosen: bool

    @property
    def files(self) -> list[Path]:
        """All files that the model depends on, sorted."""
        names = {"config.json", "generation_config.json", GENAI, *tok.FILES, str(self.graph)}
        names |= {str(self.graph.parent / name) for name in self.weights}
        return [self.folder / name for name in sorted(names) if (self.folder / name).is_file()]

    @property
    def described(self) -> str:
        """What was found, in a line."""
        return f"{self.folder.name}: ONNX as for {self.layout}, {self.graph}"

    @property
    def better(self) -> str:
        """What to do for a faster and closer model."""
        base = of_card(self.folder, "base_model") or ""
        original = base if is_hub_name(base) else "its original checkpoint"
        return f"`edgedec run` of {original} exports it, which may decode faster and rounds less"


def find(folder: Path, which: str | None = None) -> Ready | None:
    """Return the decoder in ONNX that a folder holds; None if it holds something else.

    Args:
        folder: as a user names it.
        which: one of its graphs, by label or file name; None prefers what is quick here.

    Raises:
        CheckpointError: there is none of this name, or the folder is damaged.

    """
    graphs = ready_graphs(folder)
    if not graphs:
        return None
    links.check(folder)
    label = _chosen(folder, graphs, which)
    config, generation = (
        _optional(folder, name) for name in ("config.json", "generation_config.json")
    )
    genai = _optional(folder, GENAI)
    graph = PurePosixPath(graphs[label])
    layout = "transformers.js" if len(graph.parts) > 1 else "optimum"
    if genai:  # its folder has one graph, which several folders of a repository tell apart
        layout, generation = "onnxruntime-genai", {**_stated(genai), **generation}
        label = which or label
    file = links.own_file(folder, str(graph))
    stored = sorted({name for name, _, _ in read_graph(file).stored})
    for name in stored:
        _check_name(folder, graph, name)
    weights = dict.fromkeys(str(PurePosixPath(name)) for name in stored)
    model = genai.get("model")
    inner = model if isinstance(model, dict) else {}
    return Ready(
        folder, layout, label, graph, tuple(weights), config, inner, generation, which is not None
    )


def _chosen(folder: Path, graphs: Mapping[str, str], which: str | None) -> str:
    for label, name in graphs.items():
        if which in (label, name, PurePosixPath(name).name):
            return label
        if label == GENAI_LABEL and which and which.rpartition("/")[2] == folder.name:
            return label
    if which is not None:
        there = ", ".join(graphs)
        raise CheckpointError(f"{folder} has no ONNX model {one_line(which)}: it has {there}")
    return first_graph(graphs) or next(iter(graphs))


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return read_json(folder / name) if os.path.lexists(folder / name) else {}


def _stated(genai: Mapping[str, Any]) -> dict[str, Any]:
    """Return what genai_config.json states for generating, as generation_config.json does."""
    search = genai.get("search")
    found = search if isinstance(search, dict) else {}
    return {name: found[name] for name in _SEARCH if name in found}


def _check_name(folder: Path, graph: PurePosixPath, name: str) -> None:
    """Check that a file which a graph names is one of the folder's."""
    pure = PurePosixPath(name)
    place = folder / graph.parent / name
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
        raise CheckpointError(
            f"{folder / graph}: its weights lead out of its folder: {one_line(name)!r}: refused"
        )
    if str(pure) == ready_onnx.READY:
        raise CheckpointError(
            f"{folder / graph}: its weights are in {name}, the name of a file that edgedec writes"
            " beside them: export the model again with another name for these"
        )
    if not links.own_file(folder, str(graph.parent / name)).is_file():
        shown = one_line(str(place))
        raise CheckpointError(f"{shown}: the model's weights are missing: get them as well")


def write(ready: Ready, out: Path, name: str, licence: str | None) -> str:
    """Write a bundle; its large files are the folder's own, by hard links where that can be.

    Args:
        out: a folder that does not exist.
        licence: where the folder does not state it.

    Returns:
        What the graph can be used for, in a line.

    Raises:
        CheckpointError, BundleError: the graph computes no decoder's rows, or does not fit to the
            tokenizer.

    """
    content = TokenizerContent(ready.folder)
    wires = read_wires(links.own_file(ready.folder, str(ready.graph)))
    facts = _facts(ready, name, wires, content.vocab_size)
    place = out / "target"
    place.mkdir(parents=True)
    files = dict.fromkeys(map(PurePosixPath, (ready.graph.name, *ready.weights)))
    for file in files:
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        linked(links.own_file(ready.folder, str(ready.graph.parent / file)), place / file)
    write_json(place / ready_onnx.READY, ready_onnx.as_json(facts), indent=1)
    tok.write(ready.folder, out / "tokenizer")
    graph = place / ready.graph.name
    names = [f"target/{one}" for one in (*files, ready_onnx.READY)]
    variant = {"file": names[0], "files": names, "weights": ready.label, "kv": _kv(facts, wires)}
    found = "".join(registry.describe(FORMAT, graph))  # which tries it
    variant["notes"] = [ready.described]
    role = {
        "architecture": _architecture(ready),
        "source": name,
        "licence": licence or stated_licence(ready.folder, ready.config),
        "dims": _dims(ready, facts, wires),
        "tokenizer": {"file": "tokenizer/tokenizer.json", "content_sha256": content.sha256},
        "variants": {FORMAT: variant},
    }
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "created_by": f"edgedec {__version__}",
        "roles": {"target": role},
        "generation": describing.generation_of(ready.generation),
        "files": describing.files(out, lambda stage, done, total: None),
    }
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    return found


def _facts(ready: Ready, name: str, wires: Wires, tokens: int) -> ReadyFacts:
    text = ready.config.get("text_config")
    config = {**ready.config, **(text if isinstance(text, dict) else {})}
    names, caches = _names(ready.genai)
    dims = wires.outputs.get(names.get(LOGITS, LOGITS), Value(0, ())).dims
    stated = ready.genai.get("vocab_size", config.get("vocab_size"))
    columns = dims[-1] if dims and dims[-1] else stated
    if type(columns) is not int or columns < tokens:
        raise CheckpointError(
            f"{ready.folder}: the tokenizer has {tokens} ids, the model {columns}: they are not of"
            " one model"
        )
    limits = [ready.genai.get("context_length"), *(config.get(one) for one in _CONTEXT)]
    decoder = ready.genai.get("decoder")
    heads, width = _head_sizes({**config, **(decoder if isinstance(decoder, dict) else {})})
    ends = {**ready.genai, **config} if ready.genai else config
    return ReadyFacts(
        name=name,
        vocab_size=columns,
        vocab_used=min(columns, tokens),
        max_context=next((one for one in limits if type(one) is int and one > 0), _ANY_CONTEXT),
        eos_ids=eos_ids(ready.folder, ready.folder, ends, ready.generation, min(columns, tokens)),
        kv_heads=heads,
        head_dim=width,
        names=names,
        caches=caches,
    ).check(str(ready.folder))


def _head_sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the heads of keys and values and their width, as configurations state them."""
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if type(hidden) is not int or type(heads) is not int or heads < 1:
        return 0, 0
    width = config.get("head_size", config.get("head_dim")) or hidden // heads
    kv_heads = config.get("num_key_value_heads", heads)
    return (kv_heads, width) if type(kv_heads) is type(width) is int else (0, 0)


def _names(genai: Mapping[str, Any]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the names of inputs and outputs that genai_config.json states, and of caches."""
    if not genai:
        return {}, CACHES
    decoder = genai.get("decoder")
    if not isinstance(decoder, dict) or "pipeline" in decoder:
        raise CheckpointError(
            f"{GENAI} describes a pipeline of several graphs, expected one decoder: export the"
            " model from its original checkpoint"
        )
    inputs, outputs = (_texts(decoder.get(name)) for name in ("inputs", "outputs"))
    names = {role: inputs[name] for name, role in _INPUTS.items() if name in inputs}
    names |= {LOGITS: outputs["logits"]} if "logits" in outputs else {}
    caches = tuple(
        (
            inputs.get(f"past_{part}_names", f"past_key_values.%d.{part}").replace("%d", "*"),
            outputs.get(f"present_{part}_names", f"present.%d.{part}").replace("%d", "*"),
        )
        for part in ("key", "value")
    )
    return names, caches


def _texts(raw: Any) -> dict[str, str]:
    pairs = raw.items() if isinstance(raw, dict) else ()
    return {key: text for key, text in pairs if isinstance(text, str)}


def _architecture(ready: Ready) -> str:
    found = ready.config.get("model_type", ready.genai.get("type"))
    return found if isinstance(found, str) and found else "unstated"


def _presents(facts: ReadyFacts, wires: Wires) -> list[Value]:
    fronts = tuple(present.partition("*")[0] for _, present in facts.caches)
    return [value for name, value in wires.outputs.items() if name.startswith(fronts)]


def _kv(facts: ReadyFacts, wires: Wires) -> str:
    return next((_KV.get(one.kind, "fp32") for one in _presents(facts, wires)), "fp32")


def _dims(ready: Ready, facts: ReadyFacts, wires: Wires) -> dict[str, int]:
    """Return the sizes that are known; those of caches if all are alike."""
    found: dict[str, Any] = {
        "hidden": ready.config.get("hidden_size", ready.genai.get("hidden_size")),
        "heads": ready.config.get("num_attention_heads"),
        "layers": ready.config.get("num_hidden_layers", ready.genai.get("num_hidden_layers")),
    }
    presents = _presents(facts, wires)
    shapes = {
        (one.dims[1] or facts.kv_heads, one.dims[3] or facts.head_dim)
        for one in presents
        if len(one.dims) == 4
    }
    if len(shapes) == 1:
        found["kv_heads"], found["head_dim"] = shapes.pop()
        found["layers"] = len(presents) // 2
    found |= {"vocab_size": facts.vocab_size, "vocab_used": facts.vocab_used}
    found |= {"max_context": facts.max_context, "parameters": wires.numbers}
    return {name: size for name, size in found.items() if type(size) is int and size >= 0}
