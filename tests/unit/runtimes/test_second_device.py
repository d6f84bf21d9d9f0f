"""A draft on a device beside the processor: real ones, where this machine has one.

``plugin``: an ONNX Runtime provider from a package of its own. ``vulkan``: a card, or software
in its place, that llama.cpp's layers can go to, with whatever interface it has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedec.decoding import acceptance, drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Model
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.testing import decoding

PROMPT = [3, 14, 15, 9, 26, 5, 35]
NEW_TOKENS = 40
SAMPLED = SamplingParams(temperature=1.0, seed=5)
Load = Callable[..., Model]


class Believing:
    """The broken twin of a rule: what was drafted is kept unseen."""

    def __init__(self, rule: Any) -> None:
        self._rule = rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rule, name)

    def accept(self, draft: Any, rows: Any, streams: Any) -> Verdict:
        path, node = [0], 0
        while draft.tree.children(node):
            node = draft.tree.children(node)[0]
            path.append(node)
        return Verdict(path, self._rule.accept(draft, rows, streams).next_token)


def decode(
    target: Model, draft: Model | None, *, broken: bool = False
) -> tuple[list[int], Metrics]:
    """A sampled text, with speculation or without."""
    rule = acceptance.rule("coupling")
    vocab = target.info.vocab_size
    drafter = drafting.create(
        "none" if draft is None else "model",
        DrafterParts(vocab, None if draft is None else draft.open(128)),
    )
    asked, metrics = decoding.request(SAMPLED, vocab, PROMPT, max_new_tokens=NEW_TOKENS), Metrics()
    chosen: Any = Believing(rule) if broken else rule
    engine = Engine(target.open(128), drafter, Fixed(4), chosen)
    return decoding.decode(engine, asked, metrics).tokens, metrics


def drafts_rightly(target: Model, draft: Model, other: Model) -> None:
    """The target's own text; ``other`` drafts worse, so that a broken rule would show."""
    plain, _ = decode(target, None)
    text, metrics = decode(target, draft)
    assert text == plain
    assert metrics.drafted_tokens >= 10
    assert metrics.acceptance_rate > 0.5  # its numbers are right, or nothing would be accepted
    assert decode(target, other)[0] == plain
    assert decode(target, other)[1].acceptance_rate < metrics.acceptance_rate
    assert decode(target, other, broken=True)[0] != plain


def rows(model: Model) -> FloatArray:
    """Logits after a prompt that is read at once, token by token, and after a step back."""
    with_prompt = model.open(64)
    with_prompt.prefill(PROMPT)
    found = []
    for token in (7, 8, 9):
        found.append(np.array(with_prompt.forward(TokenTree(token)).logits)[0])
        with_prompt.commit([0])
    with_prompt.rollback(len(PROMPT) + 1)
    found.append(np.array(with_prompt.forward(TokenTree(8)).logits)[0])
    return np.array(found)


def near(one: FloatArray, other: FloatArray) -> bool:
    """Within what half-precision arithmetic rounds."""
    return bool(np.linalg.norm(one - other) < 0.1 * np.linalg.norm(one))


# -- ONNX Runtime -------------------------------------------------------------------------------


@pytest.fixture
def optimum(tmp_path: Path) -> Load:
    pytest.importorskip("onnx", reason="onnx is not installed: extra export")
    from tiny_optimum import write_tiny_graph

    def load(seed: int = 0, **options: Any) -> Model:
        folder = tmp_path / str(seed)
        if not folder.exists():
            folder.mkdir()
            write_tiny_graph(folder, seed=seed)
        return registry.adapter("onnx-hub").load(folder, LoadOptions(threads=1, **options))

    return load


@pytest.fixture
def plugin(optimum: Load) -> Device:
    """A device of a provider that loads a model here."""
    reasons = []
    for device in registry.adapter("onnx-hub").devices():
        if device.provider == "CPUExecutionProvider":
            continue
        try:
            optimum(device=device.name).close()
        except RuntimeUnavailable as error:
            reasons.append(str(error))
        else:
            return device
    pytest.skip("; ".join(reasons) or "no provider beside the CPU's")


@pytest.mark.plugin
def test_a_providers_numbers(plugin: Device, optimum: Load) -> None:
    expected = rows(optimum())
    assert near(rows(optimum(device=plugin.name)), expected)
    if plugin.kind == "cpu":
        assert near(rows(optimum(providers=(plugin.provider,))), expected)
    assert not near(rows(optimum(seed=1, device=plugin.name)), expected)


@pytest.mark.plugin
def test_a_draft_on_a_providers_device(plugin: Device, optimum: Load) -> None:
    drafts_rightly(optimum(), optimum(device=plugin.name), optimum(seed=1, device=plugin.name))


@pytest.mark.plugin
def test_a_provider_that_loses_the_cache_is_refused(plugin: Device, tmp_path: Path) -> None:
    """Where its numbers are right instead, they are the CPU's."""
    from tiny_models import write_tiny_model

    write_tiny_model(tmp_path)
    adapter = registry.adapter("onnx")
    options = LoadOptions(threads=1, device=plugin.name, batch_invariant=False)
    try:
        model = adapter.load(tmp_path, options)
    except RuntimeUnavailable as error:
        refusal = str(error)
    else:
        refusal = ""
        assert near(rows(model), rows(adapter.load(tmp_path, LoadOptions(threads=1))))
    known = ("does not handle this graph's cache", "cannot load it")
    assert not refusal or any(words in refusal for words in known)


# -- llama.cpp ----------------------------------------------------------------------------------


@pytest.fixture
def card() -> Device:
    """A device of llama.cpp that takes layers."""
    pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")
    try:
        devices = registry.adapter("llamacpp").devices()
    except RuntimeUnavailable as error:
        pytest.skip(str(error))
    for device in devices:
        if device.kind != "cpu":
            return device
    pytest.skip("this llama.cpp has no device beside the processor")


@pytest.fixture
def gguf(tmp_path: Path) -> Load:
    from tiny_gguf import write_tiny_gguf

    def load(noise: float = 0.0, **options: Any) -> Model:
        file = tmp_path / f"{noise}.gguf"
        if not file.exists():
            write_tiny_gguf(file, noise=noise)
        chosen = LoadOptions(threads=1, kv="f32", flash_attention=False, **options)
        return registry.adapter("llamacpp").load(file, chosen)

    return load


@pytest.mark.vulkan
@pytest.mark.timeout(900)  # a driver compiles its kernels at their first use
def test_a_cards_numbers(card: Device, gguf: Load) -> None:
    expected = rows(gguf(device="cpu"))
    assert near(rows(gguf(device=card.name, gpu_layers=-1)), expected)
    assert not near(rows(gguf(noise=1.0, device=card.name, gpu_layers=-1)), expected)


@pytest.mark.vulkan
@pytest.mark.timeout(900)  # a driver compiles its kernels at their first use
def test_a_draft_on_a_card(card: Device, gguf: Load) -> None:
    """The llama.cpp draft runs on a device beside the processor."""
    on_card = {"device": card.name, "gpu_layers": -1}
    drafts_rightly(gguf(device="cpu"), gguf(**on_card), gguf(noise=1.0, **on_card))


# -- without any --------------------------------------------------------------------------------


def test_the_control_on_the_processor(optimum: Load) -> None:
    """What the tests above ask of a device holds on the processor, and fails as it should."""
    drafts_rightly(optimum(), optimum(), optimum(seed=1))
    with pytest.raises(AssertionError):
        drafts_rightly(optimum(), optimum(seed=1), optimum(seed=2))
    assert near(rows(optimum()), rows(optimum()))
    assert not near(rows(optimum()), rows(optimum(seed=1)))
