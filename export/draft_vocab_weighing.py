"""Weighs how many tokens a draft's head should keep, by what is measured here.

A round drafts k tokens and gives ``E = 1 + the sum of the chances that the first 1 .. k of them are
accepted``, in the seconds of a target pass over k + 1 rows and of k draft passes (2211.17192). With
fewer tokens to draft, a draft pass is shorter and fewer tokens are accepted.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.decoding.pass_times import Budget, time_pass, time_passes
from edgedec.decoding.session import Model, Session, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export.describing import GivenModel
from edgedec.export.draft_vocab import FORMAT, Texts, keeping, ranking
from edgedec.export.formats.onnx import onnx_options
from edgedec.export.job import ExportJob
from edgedec.export.onnx import write_model
from edgedec.export.options import AUTO, Progress
from edgedec.export.target_texts import TargetTexts
from edgedec.export.weighed import head_bits
from edgedec.runtimes.onnx.model import OnnxModel

DoubleArray = npt.NDArray[np.float64]

# Numbers in a head that is worth the measuring; smaller ones take a fraction of a millisecond.
LEAST_NUMBERS = 1 << 22
_LENGTHS = range(1, 9)
_FIRST, _MOST_SHARE = 1024, 0.75
# Fewer tokens must be this much faster than all, and as few as are not yet this much slower.
_WORTH, _EQUAL = 1.01, 0.995
_TOKENS, _ROWS = 256, 32
_BUDGET = Budget(1.0, passes=30, fewest=3)
# Of the drafts' passes: turns at most, passes in each, and how long their shortest time has to stay
# the same.
_TURNS, _IN_A_ROW, _STAYED, _STAYS = 60, 25, 8, 0.98
# Whole, or so many tokens: what is measured.
_WHOLE = 0


def weighed(
    job: ExportJob,
    sources: Sequence[GivenModel],
    texts: TargetTexts,
    bundle: Path,
    progress: Progress,
) -> ExportJob:
    """Return the job of a draft with as many tokens as pay, if that is asked for.

    It is weighed where the target wrote texts: it can be run here, and its share of time is known.

    Args:
        job: of a target, which is returned as it is, or a draft.
        sources: target and draft.
        texts: what the target writes.
        bundle: with the target's graph.
        progress: called as measuring goes on.

    """
    target, source = sources[0], sources[-1]
    options, spec = job.options, job.spec
    if (
        (job.role, job.format, options.draft_vocab) != ("draft", FORMAT, AUTO)
        or source.tokenizer != target.tokenizer
        or not texts.made
        or options.calibration_text is not None
        or source.checkpoint.mask_token is not None  # the formula is not that of one pass for all
        or spec.vocab_used * spec.hidden < LEAST_NUMBERS
    ):
        return job
    ranks = ranking(sources, source, texts.of(source))
    counts = candidates(len(ranks.always), len(ranks))
    if not counts:
        return job
    chances, target_s, steps = _measured(job, sources, texts, bundle, counts, progress)
    speeds = {count: speed(chances[count], target_s, steps[count]) for count in chances}
    count, gain = best(speeds)
    said = f"{gain:.2f} times as fast as all by what was measured here"
    if count == _WHOLE:
        note = f"drafts all of its {len(ranks)} tokens; fewer would be at best {said}"
        return dataclasses.replace(job, notes=(*job.notes, note))
    taken, whole = (f"{1e3 * steps[n]:.2f} ms" for n in (count, _WHOLE))
    accepted, of_all = (f"{chances[n].mean():.1%}" for n in (count, _WHOLE))
    why = f"{said}: {taken} a pass instead of {whole}, {accepted} accepted instead of {of_all}"
    return keeping(job, ranks, count, why)


def candidates(least: int, most: int) -> list[int]:
    """Return the numbers of tokens to weigh, ascending: powers of two and halfway between."""
    found, count = [], _FIRST
    while count <= _MOST_SHARE * most:
        found += [one for one in (count, count * 3 // 2) if least <= one <= _MOST_SHARE * most]
        count *= 2
    return found


def speed(chances: DoubleArray, target_s: Mapping[int, float], draft_s: float) -> float:
    """Return the tokens per second of the best draft length.

    Args:
        chances: of accepting a token at successive places of a text, ``[places]``.
        target_s: seconds of a target pass by rows.
        draft_s: seconds of a draft pass.

    """
    found, survives, tokens = [], np.ones(len(chances)), 1.0
    for length in _LENGTHS:
        if length + 1 not in target_s or length > len(chances):
            break
        survives = survives[: len(chances) - length + 1] * chances[length - 1 :]
        tokens += float(survives.mean())
        found.append(tokens / (target_s[length + 1] + length * draft_s))
    return max(found)


def best(speeds: Mapping[int, float]) -> tuple[int, float]:
    """Return how many tokens to keep, 0 for all, and the speed relative to that of all.

    Of nearly equal ones the most tokens, which suit more kinds of texts.
    """
    whole = speeds[_WHOLE]
    fewer = {count: one / whole for count, one in speeds.items() if count != _WHOLE}
    count = max(n for n, gain in fewer.items() if gain >= _EQUAL * max(fewer.values()))
    return (count, fewer[count]) if fewer[count] >= _WORTH else (_WHOLE, max(fewer.values()))


# -- measuring ----------------------------------------------------------------------------------


def _measured(
    job: ExportJob,
    sources: Sequence[GivenModel],
    texts: TargetTexts,
    bundle: Path,
    counts: Sequence[int],
    progress: Progress,
) -> tuple[dict[int, DoubleArray], dict[int, float], dict[int, float]]:
    """Return chances by number of tokens, and the seconds of target and draft passes."""
    stage, steps = "draft vocabulary", 3
    source, written = sources[-1], texts.of(sources[-1])
    ranks, folds = ranking(sources, source, written), _folds(written)
    progress(stage, 0, steps)
    with ExitStack() as stack:
        target = stack.enter_context(
            closing(OnnxModel.load(bundle / "target", batch_invariant=False))
        )
        ends = sorted({_WHOLE, counts[0], counts[-1]})
        drafts = {
            count: stack.enter_context(_plain(job, bundle, ranks.first(count))) for count in ends
        }
        progress(stage, 1, steps)
        target_s = _pass_seconds(target, folds[0][0])
        draft_s = _step_seconds(drafts, folds[0][0])
        progress(stage, 2, steps)
        parts = []
        for text, others in folds:
            order = ranking(sources, source, others).order
            parts.append(chances_on(target, drafts[_WHOLE], text, order, counts))
    chances = {count: np.concatenate([part[count] for part in parts]) for count in parts[0]}
    # A row of the head costs the same, wherever it is.
    some_s = [draft_s[count] for count in ends[1:]]
    draft_s |= {count: float(np.interp(count, ends[1:], some_s)) for count in counts}
    progress(stage, steps, steps)
    return chances, target_s, draft_s


def _folds(texts: Texts) -> list[tuple[list[int], Texts]]:
    """Return texts to compare the models on, and to count the tokens of, which must be others."""
    return [(list(texts[at][:_TOKENS]), texts[1 - at :: 2]) for at in (0, 1)]


@contextmanager
def _plain(job: ExportJob, bundle: Path, drafted: tuple[int, ...]) -> Iterator[OnnxModel]:
    """Load the draft with rounding to nearest, which takes seconds; its passes cost the same."""
    job = dataclasses.replace(job, drafted=drafted)
    (spec, tensors), options = job.padded(), onnx_options(job)
    bits = head_bits(spec, options.form) if job.texts else None
    options = dataclasses.replace(options, kv="fp32", head_bits=bits)
    with tempfile.TemporaryDirectory(dir=bundle) as name:
        write_model(spec, tensors, Path(name), options)
        with closing(OnnxModel.load(name, batch_invariant=False)) as model:
            yield model


def _pass_seconds(target: Model, text: Sequence[int]) -> dict[int, float]:
    """Return the seconds of the target's undisturbed passes, by their rows."""
    rows = [1 + length for length in _LENGTHS]
    with closing(_opened(target, text, max(rows))) as session:
        times = time_passes(session, rows, _BUDGET, lambda times: False, text)
    least = {width: min(each.seconds for each in passes) for width, passes in times.items()}
    return undisturbed(least, sorted(least, reverse=True))


def _step_seconds(drafts: Mapping[int, Model], text: Sequence[int]) -> dict[int, float]:
    """Return the seconds of each draft's undisturbed pass of one row, measured in turns.

    Turns end when the shortest passes have long stayed the same.
    """
    with ExitStack() as stack:
        sessions = {
            count: stack.enter_context(closing(_opened(draft, text, 1)))
            for count, draft in drafts.items()
        }
        least, same = dict.fromkeys(drafts, inf), 0
        for _ in range(_TURNS):
            before = dict(least)
            for count, session in sessions.items():
                # Threads of the one before keep a core busy for a while, so some in a row.
                times = [time_pass(session, text[-1:]) for _ in range(_IN_A_ROW)]
                least[count] = min(least[count], *times)
            shorter = any(least[count] < _STAYS * before[count] for count in least)
            same = 0 if shorter else same + 1
            if same == _STAYED:
                break
    return undisturbed(least, [_WHOLE, *sorted(least.keys() - {_WHOLE}, reverse=True)])


def undisturbed(least: Mapping[int, float], by_work: Sequence[int]) -> dict[int, float]:
    """Return seconds that do not grow with less work, as only disturbed ones can.

    Args:
        least: the shortest seconds that were measured.
        by_work: its keys, the most work first.

    """
    found, seconds = {}, inf
    for key in by_work:
        seconds = found[key] = min(seconds, least[key])
    return found


def _opened(model: Model, text: Sequence[int], rows: int) -> Session:
    """Return a session that holds a text, with room for a pass."""
    held = list(text[: model.info.max_context - rows])
    session = model.open(len(held) + rows)
    session.prefill(held)
    return session


def chances_on(
    target: Model,
    draft: Model,
    text: Sequence[int],
    order: Sequence[int],
    counts: Sequence[int],
) -> dict[int, DoubleArray]:
    """Return the chance of accepting the draft's token after each token of a text.

    By speculative sampling at temperature 1 it is the sum of ``min(p, q)``, with the draft's
    distribution q over the tokens that are kept.

    Args:
        target, draft: with equal columns.
        text: tokens.
        order: of the draft's tokens, as they are kept.
        counts: numbers of tokens that are kept.

    Returns:
        Arrays ``[len(text)]`` by count; 0 is for all tokens.

    """
    found: dict[int, list[DoubleArray]] = {count: [] for count in (_WHOLE, *counts)}
    kept = np.array(order, np.int64)
    for p, q in zip(_shares(target, text), _shares(draft, text), strict=True):
        found[_WHOLE].append(np.minimum(p, q).sum(axis=1))
        p, q = p[:, kept], q[:, kept]
        for count in counts:
            own = q[:, :count] / q[:, :count].sum(axis=1, keepdims=True)
            found[count].append(np.minimum(p[:, :count], own).sum(axis=1))
    return {count: np.concatenate(parts) for count, parts in found.items()}


def _shares(model: Model, text: Sequence[int]) -> Iterator[FloatArray]:
    """Yield the probabilities after the tokens of a text, some rows at a time."""
    session: Session = model.open(len(text))
    try:
        for start in range(0, len(text), _ROWS):
            chain = TokenTree.chain(list(text[start : start + _ROWS]))
            logits = session.forward(chain, want=Want.LOGITS).logits
            assert logits is not None
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            yield weights / weights.sum(axis=1, keepdims=True)
            session.commit(range(len(chain)))
    finally:
        session.close()
