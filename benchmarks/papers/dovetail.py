"""Dovetail (2412.18934): the target on a processor, the draft on a small GPU.

Its draft is a tree of 16 nodes that grows 10 nodes a level, in 8 passes (its code: one pass over
what was accepted, then ``depth`` = 7 more). Here the engine drafts a chain of 8 and is charged for
the tree: each draft pass for 10 rows, each verification for all nodes of the tree. Acceptance
follows the paper's accepted length, which its code counts with the target's own token. Its speeds
include reading the prompt, so these do, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from edgedec.records.plan import Plan
from edgedec.records.profile import Measured, PassTimes
from edgedec.records.trace import Trace
from edgedec.replay.run import ReplaySetting, replay
from edgedec.simulation.cards import Card
from edgedec.simulation.roofline import ModelSize, Roofline, peak
from edgedec.simulation.synthetic import VOCAB, emitting, text

ACCEPTED = "accepted length"
DRAFT_LAYERS = "draft layers"
PROMPT = "prompt tokens, as if read at the processor's peak"
ANSWER = "tokens of an answer"
BASE = "plain, tokens/s"
ON_GPU = "target layers on the GPU"
OVERHEAD_S = 10e-3

_TOKENS = 1500
_CONTEXT = 256
_WIDTH = 10

# LLaMA-2-7B: parameters that a row is multiplied with; the embedding is only looked up.
_LAYER = 4 * 4096**2 + 3 * 4096 * 11008
_VOCABULARY = 32000 * 4096
_LAYERS = 32
# Gates of the draft: W1, W2 and Wz of its dynamic gating fusion.
_GATES = 2 * 4096**2 + 2 * 4096 * 4096


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and the settings of a run.

    Attributes:
        card: of the machine.
        precision: of the target: ``fp32`` or ``int8``.
        nodes: of the tree that is verified, its root included.
        passes: of the draft in a round.

    """

    card: Card
    precision: str
    nodes: int
    passes: int

    def corner(self, values: Mapping[str, float]) -> Card:
        """Return the card with these figures; bandwidth follows from plain decoding's speed."""
        known = self.card.figures()
        card = self.card.fixed({name: value for name, value in values.items() if name in known})
        if BASE not in values:
            return card
        moved = Roofline(card, "cpu", self._target()).seconds(1, _CONTEXT)
        cpu = card.device("cpu")
        launch_s, share = cpu.launch_s.middle, cpu.bandwidth_share.middle
        wanted = 1 / values[BASE] - self._prompt_s(card, values)
        # A single row is bound by memory, so seconds without the launch scale with the bandwidth.
        share *= (moved - launch_s) / (wanted - launch_s)
        return card.fixed({"devices.cpu.bandwidth_share": share})

    def plain(self, values: Mapping[str, float]) -> float:
        """Return tokens per second on the processor alone."""
        card = self.corner(values)
        one_s = Roofline(card, "cpu", self._target()).seconds(1, _CONTEXT)
        return 1 / (one_s + self._prompt_s(card, values))

    def speculative(self, values: Mapping[str, float]) -> float:
        """Return tokens per second with the draft."""
        card, on_gpu = self.corner(values), int(values.get(ON_GPU, 0))
        cpu = Roofline(card, "cpu", self._target(_LAYERS - on_gpu))
        one_s, tree_s = cpu.seconds(1, _CONTEXT), cpu.seconds(self.nodes, _CONTEXT)
        if on_gpu:
            offloaded = Roofline(card, "gpu", _size("offloaded", on_gpu, on_gpu * _LAYER))
            tree_s += offloaded.seconds(self.nodes, _CONTEXT)
        draft = Roofline(card, "gpu", draft_size(values[DRAFT_LAYERS]))
        level_s = draft.seconds(_WIDTH, _CONTEXT)
        setting = ReplaySetting(
            target=_flat(cpu.measured("target"), one_s, tree_s),
            draft=_flat(draft.measured("draft"), level_s, level_s),
            overhead_s=OVERHEAD_S,
        )
        place = setting.target.place
        plan = Plan(place, place, "model", self.passes)
        (metrics,) = replay(setting, plan, [_trace(values[ACCEPTED], self.passes)], _TOKENS)
        return 1 / (metrics.tpot_s + self._prompt_s(card, values))

    def _target(self, layers: int = _LAYERS) -> ModelSize:
        return _size("LLaMA-2-7B", layers, layers * _LAYER + _VOCABULARY, self.precision)

    def _prompt_s(self, card: Card, values: Mapping[str, float]) -> float:
        """Return the seconds of reading the prompt, per token of an answer."""
        flops = peak(card.device("cpu"), self.precision)
        return values[PROMPT] * 2 * self._target().parameters / flops / values[ANSWER]


def draft_size(layers: float) -> ModelSize:
    """Return the fp16 draft with this many decoder layers."""
    return _size("draft", layers, int(layers * _LAYER) + _GATES + _VOCABULARY)


def gpu_gigabytes(values: Mapping[str, float]) -> float:
    """Return the memory of the draft, its embedding and cache, and of offloaded target layers."""
    draft = draft_size(values[DRAFT_LAYERS])
    held = float(draft.weight_bytes + 2 * _VOCABULARY)
    held += draft.kv_bytes_per_token * values["tokens in the draft's cache"]
    layers = values.get(ON_GPU, 0.0)
    per_token = 2 * 4096 * 2
    held += layers * (2 * _LAYER + per_token * values.get("tokens in the target's cache", 0.0))
    return held / 1e9 + values["buffers, GB"]


def _size(name: str, layers: float, parameters: int, precision: str = "fp16") -> ModelSize:
    return ModelSize(
        name=f"{name} of {layers:g} layers",
        parameters=parameters,
        weight_bytes={"fp32": 4, "fp16": 2, "int8": 1}[precision] * parameters,
        # Keys and values stay in floating point.
        kv_bytes_per_token=int(2 * layers * 4096 * (2 if precision == "fp16" else 4)),
        layers=int(layers),
        hidden=4096,
        precision=precision,
        vocab_size=VOCAB,
    )


def _flat(measured: Measured, one_s: float, more_s: float) -> Measured:
    """Return passes with one cost for a single row and another for any more."""
    times = PassTimes(_CONTEXT, (1, 2, 64), (one_s, more_s, more_s), (0.0,) * 3)
    return replace(measured, times=(times,), prefill_s=0.0)


@cache
def _trace(per_round: float, draft_length: int) -> Trace:
    return text(emitting(per_round, draft_length, _TOKENS))
