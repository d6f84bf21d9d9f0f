"""``edgedec verify``: checks that speculative decoding gives plain decoding's text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _help, _library, _model, _options, _output, _progress, _prompts, _sampling
from edgedec.cli._flags import flag
from edgedec.cli._output import table
from edgedec.generation.keywords import TEXTS

if TYPE_CHECKING:
    from edgedec.pipeline import GenerateOptions, Prompt
    from edgedec.verify.results import Verification

# Divergences that are printed; all are in the JSON.
_SHOWN = 20
# Most characters of a value in a printed divergence.
_VALUE = 20


@click.command(cls=_help.LoadCommand)
@_model.model
@_options.options(_options.texts(count=20, least_tokens=1))
@click.option(
    "--temperature",
    type=float,
    default=0.8,
    show_default=True,
    help="Temperature of the sampled texts; 0 is greedy.",
)
@click.option(
    "-s", "--seed", type=int, default=0, show_default=True, help="Seed of the sampled texts."
)
@_options.options(_sampling.SHAPE, [_sampling.STOP])
@flag(
    TEXTS["logprobs"],
    help="Compare log-probabilities as well, including those of the N most likely tokens.",
)
@click.option(
    "--ignore-eos/--respect-eos",
    default=True,
    show_default=True,
    help="Continue texts past an end-of-text token, so that more is compared.",
)
@click.option(
    "--vectors",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Instead compare the target's logits with recorded ones (docs/vectors.md says how).",
)
@click.option(
    "--max-divergence",
    type=click.FloatRange(0),
    default=0.1,
    show_default=True,
    metavar="NATS",
    help="Limit of --vectors: mean divergence of a place.",
)
@_options.options(_options.OPEN, _options.LOAD)
@_options.as_json
def command(
    bundle: str,
    prompts: Path | None,
    count: int,
    vectors: Path | None,
    max_divergence: float,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Check that speculative text equals that of plain decoding.

    MODEL is what `edgedec run` takes: a folder, a file or a name. Every prompt is decoded plainly
    and speculatively, both greedily and with the sampling options; tokens, text, finish reason and
    log-probabilities are compared. Without --prompts the prompts are Python: heads of functions
    from this interpreter's standard library that the demo pair was not trained on.

    Exit code 0: every text equals plain decoding's, or diverges at a near-tie, where two tokens are
    so close, at most 0.25 logits apart, that a pass over several tokens rounds to the other one.
    Near-ties are counted and listed; with --batch-invariant there are none, and with fp32 weights
    hardly any. Exit code 1: some text differs by more, or nothing was drafted. Where no draft is
    expected to pay, drafts of 3 are compared, and a note says so, unless --memory or --plan is
    given. --respect-eos ends texts at an end of text.

    With --vectors the target is held to logits that its makers, or somebody with the original
    weights, recorded: exit code 1 if it diverges from them by more than the limit.

    \b
    edgedec verify demo
    edgedec verify ./my-bundle --prompts prompts.jsonl --max-new-tokens 128 --json
    edgedec verify demo --temperature 1 --repetition-penalty 1.1 --stop "def "
    edgedec verify large.gguf --draft small.gguf
    edgedec verify ./my-bundle --vectors recorded.json
    """  # fmt: skip
    path = _library.path(bundle, chosen["format"])
    if vectors is not None:
        _held_to(path, vectors, max_divergence, chosen, as_json=as_json)
        return
    found = _verified(path, _prompts.named(prompts, count), chosen)
    conclude(found, _prompts.described(prompts, count), as_json=as_json)


def _held_to(
    bundle: str, file: Path, limit: float, chosen: dict[str, Any], *, as_json: bool
) -> None:
    """Compare with recorded vectors; the exit code is 1 if the model is too far from them."""
    from edgedec.verify.vectors import hold_to_vectors, read_vectors

    texts, options = read_vectors(file), _options.open_options(chosen, bundle)
    with _progress.progress("texts") as on_text:
        found = hold_to_vectors(bundle, texts, options=options, max_kl=limit, on_text=on_text)
    if as_json:
        _output.print_json(found.to_json())
    else:
        word = "holds" if found.holds else "DOES NOT HOLD"
        rows = [
            ("vectors", f"{file.name}: {found.places} places of {found.texts} texts"),
            ("same best token", f"{found.same_best:.1%}"),
            ("divergence", f"{found.kl_nats:.2g} nats a place, {found.worst_kl_nats:.2g} at worst"),
            ("log-probabilities", f"at most {found.largest_logprob_error:.2g} nats apart"),
            ("verdict", f"{word}: the limit is {limit:g} nats a place (--max-divergence)"),
        ]
        _output.table(rows)
    if not found.holds:
        raise click.exceptions.Exit(1)


def conclude(found: Verification, prompts: str, *, as_json: bool) -> None:
    """Print a verification; the exit code is 1 if it does not hold."""
    if as_json:
        _output.print_json({"prompts": prompts, **found.to_json()})
    else:
        _print(found, prompts)
    if not found.holds:
        raise click.exceptions.Exit(1)


def _verified(bundle: str, texts: list[tuple[str, Prompt]], chosen: dict[str, Any]) -> Verification:
    from edgedec.verify.same_texts import verify

    options = _options.open_options(chosen, bundle)
    with _progress.progress("texts") as on_text:
        return verify(bundle, texts, _asked(chosen), options=options, on_text=on_text)


def _asked(chosen: dict[str, Any]) -> GenerateOptions:
    from edgedec.pipeline import GenerateOptions

    return GenerateOptions(
        max_new_tokens=chosen["max_new_tokens"],
        sampling=_sampling.sampling_params(chosen),
        stop=tuple(chosen["stop"]),
        logprobs=chosen["logprobs"],
        ignore_eos=chosen["ignore_eos"],
    )


def _print(found: Verification, prompts: str) -> None:
    way = ""
    for row in found.rows:
        if row.way != way or row is found.rows[0]:
            way = row.way
            head = f"{way or found.plan['drafter']:27}"
            click.secho(
                f"{head}{'texts':>6}{'same':>6}{'near-ties':>11}{'differ':>8}{'drafted':>9}"
                f"{'accepted':>10}",
                bold=True,
            )
        rate = row.accepted_tokens / row.drafted_tokens if row.drafted_tokens else 0.0
        click.echo(
            f"  {row.case:25}{row.texts:>6}{row.identical:>6}{row.near_ties:>11}{row.differ:>8}"
            f"{row.drafted_tokens:>9}{rate:>10.0%}"
        )
    click.echo()
    table([("prompts", prompts), ("verdict", _verdict(found))])
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    _print_divergences(found)
    if not found.total("drafted_tokens"):
        advice = "try --draft-length 3, or more --max-new-tokens"
        click.echo(f"nothing was drafted, so nothing was compared: {advice}", err=True)


def _verdict(found: Verification) -> str:
    texts, same, near = (found.total(name) for name in ("texts", "identical", "near_ties"))
    differ = sum(not one.near_tie for one in found.divergences)
    if differ:
        return f"DOES NOT HOLD: {differ} of {texts} texts differ by more than a near-tie"
    if not found.holds:
        return "INCONCLUSIVE: nothing was drafted"
    if near:
        plan = found.plan
        elsewhere = plan.get("format") != "onnx" or plan.get("provider") or plan.get("device")
        return (
            f"holds up to near-ties: {same} of {texts} texts are plain decoding's; where two "
            f"tokens are nearly tied, {near} took the other one"
            + ("" if elsewhere else " (--batch-invariant avoids that)")
        )
    return f"holds: all {texts} texts are plain decoding's"


def _print_divergences(found: Verification) -> None:
    worst_first = sorted(found.divergences, key=lambda one: one.near_tie)
    for one in worst_first[:_SHOWN]:
        click.echo(f"  {', '.join(filter(None, (one.way, one.case)))}: {one.prompt}")
        what = f"{one.what} at {one.position}"
        click.echo(f"    {what}: {_value(one.plain)} plain, {_value(one.speculative)} speculative")
        if one.gap is None:
            click.echo("    not a near-tie")
        else:
            verdict = "a near-tie" if one.near_tie else "not a near-tie"
            click.echo(f"    {verdict}: gap {one.gap:.2g}, arithmetic changes {one.tolerance:.2g}")
    if len(worst_first) > _SHOWN:
        click.echo(f"  and {len(worst_first) - _SHOWN} more: --json lists them all")


def _value(value: object) -> str:
    """Format a token id, a number or a text briefly."""
    shown = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return shown if len(shown) <= _VALUE else shown[: _VALUE - 3] + "..."
