"""Measures published models beside other runtimes on the same weights, by category of text.

``make peers`` measures: every way decodes a prompt in turn, each time in a new process; a run that
was stopped goes on. ``--prompts 1`` takes one prompt of each category, with which both models take
about half an hour on two cores once environments and models are made.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bundles import Bundles, Suite, Unusable
from benchmarks.models import published as models
from benchmarks.race import driver, texts
from benchmarks.race.choice import Choice
from benchmarks.race.entrants import Entrant, Gathering
from benchmarks.race.environment import ModelMaker
from benchmarks.race.protocol import known
from benchmarks.race.report import Report
from benchmarks.race.sampling import Sampling
from edgedec._support.fields import to_json
from edgedec._support.model_path import is_gguf
from edgedec.compare.records import Recorder, Row
from edgedec.errors import InputError
from edgedec.gguf import GgufHeader
from edgedec.gguf.tokenizer import load_tokenizer
from edgedec.hardware.device import available_cores
from edgedec.text.tokenizer import Tokenizer

TOKENS = 64
_CONTEXT, _LONGEST = 1536, 1280
_LIMIT_S = 300.0
_PERPLEXITY_TOKENS = 256
# transformers decodes no GGUF file without unpacking it.
PEERS = ("edgedec", "llama.cpp", "llama-cpp-python", "onnxruntime-genai", "openvino")
# Of each peer its plain way, and what it drafts without a draft model.
WAYS = re.compile(
    r"^edgedec "
    r"|^llama\.cpp file (plain|ngram length=(8|16)) flash=on$"
    r"|^llama-cpp-python file (plain|lookup length=4)$"
    r"|^onnxruntime-genai int4-32 (plain$|ngram .*(max_draft_tokens=4|cooldown))"
    r"|^openvino int8 (plain$|lookup length=4)"
)
# Of a model whose makers are not known here.
_SAMPLING = (0.7, 0.95)
_WARM = "List three things that float on water, and say why each of them does."


class _Model(NamedTuple):
    """A file to measure, and the temperature and top-p that its makers recommend."""

    name: str
    file: Path
    sampling: tuple[float, float]


def published(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure published models, plain and drafted, beside other runtimes, by category of text."""
    return _run(suite, recorder, [])


class RESUMED:
    """The same, continued."""

    @staticmethod
    def settings(suite: Suite) -> Mapping[str, Any]:
        """Return what must be equal for a run to be continued."""
        target = suite.bundles.folders.get("target")
        return {
            "target": None if target is None else target.name, "tokens": TOKENS,
            "threads": suite.threads or available_cores(), "context": _CONTEXT,
            "file": None if suite.file is None else suite.file.name,
        }  # fmt: skip

    @staticmethod
    def run(suite: Suite, recorder: Recorder, earlier: Sequence[Row]) -> list[Row]:
        """Run what has no record yet."""
        return _run(suite, recorder, earlier)


def _run(suite: Suite, recorder: Recorder, earlier: Sequence[Row]) -> list[Row]:
    session = sum(one.get("kind") == "machine" for one in earlier) + 1
    found = []
    for model in _models(suite, recorder):
        own = [one for one in earlier if one.get("model") == model.name]
        found += _measured(suite, _tagged(recorder, model.name), model, own, session)
    if not found:
        raise Unusable("no published model could be measured: see above why")
    return found


def _models(suite: Suite, recorder: Recorder) -> Iterator[_Model]:
    """Yield the given file, or the published ones that can be had."""
    if suite.bundles.folders:
        file = suite.bundles.source("target")
        if not is_gguf(file):
            raise Unusable(f"compares with runtimes that read GGUF, and {file} is none")
        name, sampling = file.stem, _SAMPLING
        for one in models.MODELS.values():
            if one.file == file.name:
                name, sampling = one.name, one.sampling
        yield _Model(name, file, sampling)
        return
    for model in models.MODELS.values():
        try:
            file = models.fetch(model, suite.bundles.work / "published")
        except models.NotToBeHad as reason:
            recorder.add(kind="skipped", name=model.title, reason=str(reason))
            _say(f"{model.title}: skipped: {reason}")
            continue
        yield _Model(model.name, file, model.sampling)


def _tagged(recorder: Recorder, model: str) -> Recorder:
    """Return a recorder that adds the model's name to each record."""
    return Recorder(lambda row: recorder.add(**{**row, "model": model}), published.__name__)


def _measured(
    suite: Suite, recorder: Recorder, model: _Model, earlier: Sequence[Row], session: int
) -> list[Row]:
    folders = {"target": model.file}
    bundles = Bundles(suite.bundles.checkpoints, suite.bundles.work, folders, grows=False)
    maker = ModelMaker(bundles, None, bundles.work, known())
    tokenizer = load_tokenizer(GgufHeader.read(model.file))
    try:
        prompts = texts.categories(suite.prompts, tokenizer, suite.file, _LONGEST)
    except texts.NoTexts as reason:
        raise Unusable(str(reason)) from None
    gathering = Gathering(maker, bundles.work, recorder, earlier, _say)
    maker.environments = gathering.environments
    ids = tokenizer.encode(" ".join(text.text for text in prompts))[:_PERPLEXITY_TOKENS]
    choice = Choice(PEERS, pattern=WAYS, file=True, drafts=False)
    entrants = list(gathering.entrants(choice, suite.threads or available_cores(), ids))
    if not entrants:
        raise InputError("no runtime takes part: see above why")
    results = _earlier(earlier, session)
    rows = []
    for sampling in (Sampling(), Sampling(model.sampling[0], 1, model.sampling[1])):
        driver.race(entrants, prompts, _rules(sampling, tokenizer), results, recorder, _say)
        rows += _rows(model, entrants, prompts, (gathering, results), sampling, tokenizer)
    return recorder.table(rows)


def _rules(sampling: Sampling, tokenizer: Tokenizer) -> driver.Rules:
    warm = texts.Text("warm", "warm", _WARM, tuple(tokenizer.encode(_WARM)))
    return driver.Rules(TOKENS, sampling, _CONTEXT, 1, _LIMIT_S, tokenizer.vocab_size, warm)


def _earlier(records: Sequence[Row], session: int) -> driver.Results:
    results = driver.Results(session=session)
    for record in records:
        if record.get("kind") == "run":
            results.add(record)
    return results


def _rows(
    model: _Model,
    entrants: Sequence[Entrant],
    prompts: Sequence[texts.Text],
    found: tuple[Gathering, driver.Results],
    sampling: Sampling,
    tokenizer: Tokenizer,
) -> list[Row]:
    """Return the figures of each category and way."""
    gathering, results = found
    report = Report(entrants, results, gathering.models, tokenizer.encode, sampling.temperature)
    kinds = dict.fromkeys(text.kind for text in prompts)
    return [{"model": model.name, **to_json(row)} for kind in kinds for row in report.rows(kind)]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
