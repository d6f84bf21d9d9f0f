"""What the self-check computes: every function, over one cache that they share.

The script runs once with the interpreter in exact mode, whose numbers are expected, and once on
each device. Tokens are drawn from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgedec._support.fields import one_line
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import EdgedecError
from edgedec.runtimes.coreml.model import CoremlModel

_SEED = 0
# Least number of tokens left for the steps after the prompt.
_AFTER = 8
# Tokens that a text is cut to: among few tokens a single wrong one shows, among many it would not.
_FEW = 3


@dataclass(slots=True)
class Scores:
    """The numbers of a run.

    Attributes:
        logits: by step, ``[rows, vocab_used]``.
        top: by step, the largest logits ``[rows, k]`` and their ids.
        problems: why a step failed, in one line.

    """

    logits: dict[str, FloatArray] = field(default_factory=dict)
    top: dict[str, tuple[FloatArray, IntArray]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


class Script:
    """The steps for one program.

    Args:
        model: computes them.
        top: also run the functions ``top_n``, whose numbers are those of ``logits_n``.

    """

    def __init__(self, model: CoremlModel, *, top: bool) -> None:
        facts = self._facts = model.facts
        self._model, self._used = model, facts.vocab_used
        self._room = min(facts.max_context, facts.slots)
        # A prompt that one call reads, unless the context is too short for it.
        prompt = min(facts.read_rows, self._room - facts.rows[-1] - _AFTER)
        self._prompt = max(prompt, 1)
        ids = np.random.default_rng(_SEED).integers(0, self._used, self._room)
        self._tokens: list[int] = ids.tolist()
        self.steps: dict[str, Callable[[Session, Scores, str], None]] = {}
        for rows in facts.rows:
            self.steps[f"logits_{rows}"] = self._logits
            if top:
                self.steps[f"top_{rows}"] = self._top
        self.steps |= {"fork": self._fork, "rollback": self._rollback, "branch": self._branch}

    def run(self) -> Scores:
        """Run all steps; failures are recorded, and the next step runs.

        Raises:
            EdgedecError: not even the prompt can be read.

        """
        scores, session = Scores(), self._model.open(self._room)
        session.prefill(self._tokens[: self._prompt])
        for name, step in self.steps.items():
            try:
                step(session, scores, name)
            except Exception as error:  # any error of a device is a result to report
                kind = "" if isinstance(error, EdgedecError) else f"{type(error).__name__}: "
                scores.problems[name] = kind + one_line(str(error))
        session.close()
        return scores

    def _chain(self, name: str) -> TokenTree:
        rows = min(int(name.rsplit("_", 1)[1]), self._room - self._prompt)
        return TokenTree.chain(self._tokens[self._prompt : self._prompt + rows])

    def _logits(self, session: Session, scores: Scores, name: str) -> None:
        session.rollback(self._prompt)
        scores.logits[name] = self._scored(session, self._chain(name))

    def _top(self, session: Session, scores: Scores, name: str) -> None:
        session.rollback(self._prompt)
        found = session.forward(self._chain(name), want=Want.TOP)
        scores.top[name] = found.top_logits, found.top_ids

    def _fork(self, session: Session, scores: Scores, name: str) -> None:
        """Read the state, and write it into another session."""
        session.rollback(self._prompt)
        other = session.fork(self._prompt)
        scores.logits[name] = self._scored(other, TokenTree(self._tokens[self._prompt]))
        other.close()

    def _rollback(self, session: Session, scores: Scores, name: str) -> None:
        """Cut the text, and continue it with other tokens."""
        session.rollback(min(self._prompt, _FEW + 1))
        scores.logits[name] = self._scored(session, TokenTree.chain(self._tokens[-2:]))

    def _branch(self, session: Session, scores: Scores, name: str) -> None:
        """Accept a branch whose tokens are not adjacent, so that they are moved."""
        session.rollback(min(self._prompt, _FEW))
        tokens = self._tokens[-6:]
        tree = TokenTree(tokens[0])
        for token, parent in zip(tokens[1:5], (0, 0, 1, 2), strict=True):
            tree.add(token, parent)
        session.forward(tree, want=Want.LOGITS)
        session.commit([0, 2, 4])
        scores.logits[name] = self._scored(session, TokenTree(tokens[5]))

    def _scored(self, session: Session, tree: TokenTree) -> FloatArray:
        logits = session.forward(tree, want=Want.LOGITS).logits
        assert logits is not None
        return logits[:, : self._used]


def differences(found: Scores, expected: Mapping[str, FloatArray]) -> dict[str, float]:
    """Return each step's difference, relative to the spread of the expected logits.

    The numbers of ``top_n`` are compared with the expected logits of the tokens that they name, and
    with the largest ones.
    """
    every = np.concatenate([np.asarray(each) for each in expected.values()])
    spread = float(np.std(every)) or 1.0
    result = {name: _rms(logits - expected[name]) / spread for name, logits in found.logits.items()}
    for name, (logits, ids) in found.top.items():
        wanted = expected[name.replace("top", "logits")]
        largest = -np.sort(-wanted, axis=-1)[:, : ids.shape[1]]
        named = np.take_along_axis(wanted, ids, axis=-1)
        result[name] = max(_rms(logits - largest), _rms(logits - named)) / spread
    return result


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
