"""``python -m benchmarks.race``: the comparison behind ``make peers``."""

from __future__ import annotations

import itertools
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.bundles import Bundles, digest
from benchmarks.models.grow import PRESETS
from benchmarks.race import driver, texts
from benchmarks.race.choice import Choice
from benchmarks.race.entrants import Gathering
from benchmarks.race.environment import ModelMaker
from benchmarks.race.protocol import known
from benchmarks.race.report import Report, table
from benchmarks.race.sampling import TOP_P, Sampling
from benchmarks.records import resuming_alone
from benchmarks.workloads import heldout_tokens
from edgedec._support.fields import to_json
from edgedec._support.locks import alone
from edgedec.compare.records import Recorder
from edgedec.errors import EdgedecError, InputError
from edgedec.hardware.device import available_cores
from edgedec.text.tokenizer import Tokenizer

_FOLDER = click.Path(path_type=Path, file_okay=False)
_GROWN, _AS_IT_IS = "target-0.5b", "none"
_CONTEXT = 1024
_PERPLEXITY_TOKENS = 4096
_OURS = (
    "edgedec int4 auto", "edgedec int4-openvino auto",
    "edgedec int4 auto accept=speculative", "edgedec int4-openvino auto accept=speculative",
)  # fmt: skip
# Plain decoding at its fastest.
_PLAIN = "edgedec int4 plain"
_GREEDY_SEEDS, _SAMPLED_SEEDS = 1, 3
_WARM = "import os\n\n\ndef list_files(folder):\n    "


def _pattern(context: Any, option: Any, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is not a regular expression: {error}") from None


def _listed(context: Any, option: Any, value: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in value.split(","))))


@click.command()
@click.option("--peers", callback=_listed, default="", help="Names, with commas; default: all.")
@click.option(
    "--installed", callback=_listed, default="",
    help="Peers to run as this interpreter has them, in place of making their environments.",
)  # fmt: skip
@click.option("--weights", callback=_listed, default="", help="As int4,q4_0; default: all.")
@click.option(
    "--ways", "pattern", callback=_pattern, default="",
    help="Those whose name contains this regular expression, as 'plain|auto|length=3'.",
)  # fmt: skip
@click.option(
    "--temperature",
    type=click.FloatRange(0, 100),
    default=0,
    show_default=True,
    help=f"0 is greedy; above it, tokens are sampled with top-p {TOP_P}.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help=f"Runs of each prompt; default: {_GREEDY_SEEDS} greedy, {_SAMPLED_SEEDS} sampled.",
)
@click.option(
    "--texts", "kinds", callback=_listed, default=",".join(texts.KINDS), show_default=True
)
@click.option(
    "--prompt-file", type=click.Path(path_type=Path), help="JSON lines, in place of --texts."
)
@click.option(
    "--prompts", type=click.IntRange(1), default=16, show_default=True, help="Of each kind."
)
@click.option("--tokens", type=click.IntRange(8, 384), default=128, show_default=True)
@click.option(
    "--trial",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Prompts of each kind that all ways decode; of rivals the best goes on.",
)
@click.option("--threads", type=click.IntRange(1), help="Of each model; default: all cores.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(1),
    default=300,
    show_default=True,
    help="Seconds after which a run has hung.",
)
@click.option(
    "--preset",
    type=click.Choice([_AS_IT_IS, *PRESETS]),
    help=(f"What the target is grown to; default: {_GROWN}, or {_AS_IT_IS} with --target."),
)
@click.option("--target", type=_FOLDER, help="A Hugging Face folder; default: the shipped pair.")
@click.option("--draft", type=_FOLDER, help="Another, with the target's vocabulary.")
@click.option("--checkpoints", type=_FOLDER, default="models/demo", show_default=True)
@click.option("--out", type=_FOLDER, default="bench-out", show_default=True)
@click.option(
    "--work",
    type=_FOLDER,
    default="build/bench",
    show_default=True,
    help="Environments and models; may be deleted at any time.",
)
@click.option("--retry", is_flag=True, help="Run again what crashed, hung or answered garbage.")
@click.option("--prepare", is_flag=True, help="Make environments and models, race nothing.")
def main(**chosen: Any) -> None:
    """Compare edgedec with other runtimes on the same weights and prompts, interleaved."""
    try:
        _run(chosen)
    except EdgedecError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted: the same command goes on where this one stopped", err=True)
        sys.exit(130)


def _run(chosen: dict[str, Any]) -> None:
    maker = _maker(chosen)
    named = (("peers", maker.peers), ("installed", maker.peers), ("kinds", texts.KINDS))
    for option, found in named:
        for name in chosen[option]:
            if name not in found:
                raise InputError(f"{name!r}: expected one of {', '.join(found)}")
    tokenizer = Tokenizer.load(maker.checkpoint("target") / "tokenizer.json")
    prompts = _texts(chosen, tokenizer)
    threads, sampling = chosen["threads"] or available_cores(), _sampling(chosen)
    settings = {
        "target": digest(maker.checkpoint("target")),
        "draft": digest(maker.checkpoint("draft")) if maker.drafts else None,
        "tokens": chosen["tokens"], "threads": threads, "context": _CONTEXT,
    }  # fmt: skip
    work = chosen["work"].absolute()
    work.mkdir(parents=True, exist_ok=True)
    busy = "another run makes environments and models there: wait for its end, or give another"
    with (
        alone(work, f"{busy} --work"),
        resuming_alone(chosen["out"], "peers", settings) as (recorder, earlier),
    ):
        gathering = Gathering(maker, chosen["work"], recorder, earlier, _say, chosen["installed"])
        maker.environments = gathering.environments
        ids = heldout_tokens(tokenizer, _PERPLEXITY_TOKENS)
        choice = Choice(
            chosen["peers"] or list(maker.peers), chosen["weights"], chosen["pattern"],
            sampling.temperature > 0, drafts=maker.drafts,
        )  # fmt: skip
        entrants = list(gathering.entrants(choice, threads, ids))
        if not entrants:
            raise InputError("no peer takes part: see above why, or name others")
        if chosen["prepare"]:
            return
        results = _earlier(earlier, chosen["retry"])
        warm = texts.Text("warm", "warm", _WARM, tuple(tokenizer.encode(_WARM)))
        rules = driver.Rules(
            chosen["tokens"], sampling, _CONTEXT, chosen["trial"], chosen["limit_s"],
            tokenizer.vocab_size, warm,
        )  # fmt: skip
        driver.race(entrants, prompts, rules, results, recorder, _say)
        report = Report(entrants, results, gathering.models, tokenizer.encode, sampling.temperature)
        _show(report, dict.fromkeys(text.kind for text in prompts), recorder)
        for name, reason in gathering.skipped.items():
            click.echo(f"{name}: skipped: {reason}")
    click.echo(f"raw records in {chosen['out'] / 'peers.jsonl'}")


def _maker(chosen: dict[str, Any]) -> ModelMaker:
    folders = {role: chosen[role] for role in ("target", "draft") if chosen[role] is not None}
    if folders.keys() == {"draft"}:
        raise InputError("expected --target with --draft: it is that target's")
    preset = chosen["preset"] or (_AS_IT_IS if folders else _GROWN)
    bundles = Bundles(chosen["checkpoints"], chosen["work"], folders)
    return ModelMaker(bundles, None if preset == _AS_IT_IS else preset, chosen["work"], known())


def _texts(chosen: dict[str, Any], tokenizer: Tokenizer) -> list[texts.Text]:
    count = chosen["prompts"]
    if chosen["prompt_file"] is not None:
        return texts.from_file(chosen["prompt_file"], count, tokenizer)
    found = []
    for kind in chosen["kinds"]:
        try:
            found += texts.KINDS[kind](count, tokenizer)
        except texts.NoTexts as reason:
            _say(f"{kind}: skipped: {reason}")
    return found


def _earlier(records: Sequence[dict[str, Any]], retry: bool) -> driver.Results:
    """Return the runs of earlier sessions; without those that failed if they are to run again."""
    sessions = sum(record.get("kind") == "machine" for record in records)
    results = driver.Results(session=sessions + 1)
    for record in records:
        if record.get("kind") == "run" and not (retry and record["outcome"] != driver.OK):
            results.add({**record, "text": texts.FORMER.get(record["text"], record["text"])})
    return results


def _sampling(chosen: dict[str, Any]) -> Sampling:
    temperature = chosen["temperature"]
    return Sampling(
        temperature, chosen["seeds"] or (_SAMPLED_SEEDS if temperature else _GREEDY_SEEDS)
    )


def _show(report: Report, kinds: Iterable[str], recorder: Recorder) -> None:
    """Print and record the figures of each kind of text."""
    at = f", temperature {report.temperature:g}" if report.temperature else ""
    for kind in kinds:
        rows = report.rows(kind)
        click.echo(f"\n== {kind}{at}")
        click.echo("\n".join(table(rows)))
        others = dict.fromkeys([*(row["way"] for row in report.best(rows)), _PLAIN])
        compared = itertools.product(_OURS, [way for way in others if way not in _OURS])
        for ours, other in (*compared, *itertools.combinations(_OURS, 2)):
            ratio = report.ratio(kind, ours, other)
            if ratio is not None:
                click.echo(f"{ours} is {ratio} times as fast as {other}{at}")
        warning = report.disturbed(kind)
        if warning is not None:
            click.echo(f"warning: {warning}")
        for row in rows:
            recorder.add(kind="summary", **to_json(row))


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    # As Ctrl-C does, it ends the run in the child as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
