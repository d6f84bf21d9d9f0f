"""The checks that hold a written program to its source, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgedec.coreml import Package, package_files
from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter
from edgedec.coreml.package import check_listed
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export.coreml.parity import as_stored, layer_error
from edgedec.export.reference import Reference
from edgedec.export.tensors import TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.runtimes.coreml.model import CoremlModel

TOKENS = np.random.default_rng(3).integers(0, 90, 100).tolist()
Check = Callable[[Path, DecoderSpec, TensorReader], None]


def files(folder: Path, spec: DecoderSpec, tensors: TensorReader) -> None:
    """Every file is there, and every constant lies in the blob file."""
    model = package_files(folder)[0]
    check_listed(model, package_files(folder))


def types(folder: Path, spec: DecoderSpec, tensors: TensorReader) -> None:
    """Every function is one that the interpreter knows, with types that agree."""
    package = Package.open(folder)
    for name in package.names:
        Interpreter(Constants(package, exact=True), name)


def layers(folder: Path, spec: DecoderSpec, tensors: TensorReader) -> None:
    """Every layer computes what the reference does over the weights that are stored."""
    package = Package.open(folder)
    layer_error(spec, package, Constants(package, exact=True), TOKENS[:16])


def source(folder: Path, spec: DecoderSpec, tensors: TensorReader, most: float = 1e-4) -> None:
    """The logits of one pass are those of the checkpoint."""
    model = CoremlModel.load(folder, device="reference")
    session = model.open(64)
    got = session.forward(TokenTree.chain(TOKENS[:16]), want=Want.LOGITS).logits
    assert got is not None
    expected = wanted(model, spec, tensors, TOKENS[:16])
    assert difference(got, expected, spec) < most


def states(folder: Path, spec: DecoderSpec, tensors: TensorReader) -> None:
    """Over 100 tokens the functions share one cache: prompt, chain, tree, commit, rollback."""
    model = CoremlModel.load(folder, device="reference")
    session = model.open(128)

    def scores(tree: TokenTree, before: list[int]) -> None:
        got = session.forward(tree, want=Want.LOGITS).logits
        assert got is not None
        for node in range(len(tree)):
            text = before + tree.tokens_on(tree.path_to(node))
            expected = wanted(model, spec, tensors, text)[-1]
            assert difference(got[node], expected, spec) < 1e-4

    held = TOKENS[:70]
    session.prefill(held)
    scores(TokenTree.chain(TOKENS[70:73]), held)
    session.commit([0, 1])
    held = held + TOKENS[70:72]
    tree = TokenTree(TOKENS[72])
    for token, parent in zip(TOKENS[73:79], (0, 0, 1, 2, 2, 4), strict=True):
        tree.add(token, parent)
    scores(tree, held)
    session.commit([0, 2, 5])
    held = held + tree.tokens_on([0, 2, 5])
    scores(TokenTree.chain(TOKENS[80:96]), held)
    session.rollback(len(held) - 2)
    held = held[:-2]
    top = session.forward(TokenTree(TOKENS[99]), want=Want.TOP)
    expected = wanted(model, spec, tensors, [*held, TOKENS[99]])[-1]
    assert top.top_ids[0, 0] == expected[: spec.vocab_used].argmax()
    assert abs(top.top_logits[0, 0] - expected.max()) < 1e-4


def difference(got: FloatArray, expected: FloatArray, spec: DecoderSpec) -> float:
    """The largest difference of any logit; those that are no tokens are minus infinity in both."""
    assert (got[..., spec.vocab_used :] == -np.inf).all()
    used = slice(0, spec.vocab_used)
    return float(np.abs(got[..., used] - expected[..., used]).max())


def wanted(
    model: CoremlModel, spec: DecoderSpec, tensors: TensorReader, tokens: list[int]
) -> FloatArray:
    """What the checkpoint says, with constants in fp16 where a program has them so."""
    decoder = as_stored(spec, model.facts.form)

    scales = dataclasses.replace(decoder.scales, logits=spec.scales.logits)
    return Reference(dataclasses.replace(decoder, scales=scales), tensors).logits(tokens)


CHECKS: dict[str, Check] = {
    "files": files,
    "types": types,
    "layers": layers,
    "source": source,
    "states": states,
}
