"""``python -m benchmarks certificate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks.certificate.job import Job
from benchmarks.certificate.run import JSON, PAGE, certify
from benchmarks.program import SAMPLED_SEED, SAMPLED_TEMPERATURE, LoadProgram
from edgedec.cli import _library, _model, _options, _output, _progress, _prompts
from edgedec.cli._terminal import note
from edgedec.models.demo.heldout import heldout_bodies
from edgedec.pipeline import Prompt

_SETS = {"draft_length", "drafter", "accept", "plan", "memory"}


@click.command(cls=LoadProgram)
@_model.model
@_options.options(_options.texts(count=500, least_tokens=1, tokens=64))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="certificate",
    show_default=True,
    metavar="DIR",
    help="Folder for the certificate, as JSON and Markdown.",
)
@SAMPLED_TEMPERATURE
@SAMPLED_SEED
@_options.options(_options.OPEN, _options.LOAD)
@_options.as_json
def command(
    bundle: str, prompts: Path | None, count: int, out: Path, as_json: bool, **chosen: Any
) -> None:
    """Compare all ways to decode a model with plain decoding, and write one page.

    Every drafter, rule, schedule and installed runtime (OpenVINO's kernels included, unless
    --device or --provider places the target) is compared on many prompts; then come the matrix of
    sampling options, a rule that is broken on purpose, and the test of distributions. An
    interrupted run can be continued.

    \b
    python -m benchmarks certificate demo
    python -m benchmarks certificate ./my-bundle --out ./certificate --count 100
    """
    context = click.get_current_context()
    given = [
        one.opts[0]
        for one in context.command.get_params(context)
        if one.name in _SETS
        and context.get_parameter_source(one.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"the certificate sets {', '.join(given)} itself: leave it out")
    bundle = _library.path(bundle, chosen["format"])
    options = _options.open_options(chosen, bundle)
    if options.drafter != "auto":
        raise click.UsageError("the certificate compares all drafters: leave --draft NAME out")
    texts, source = _texts(prompts, count)
    job = Job(
        bundle,
        texts,
        source,
        options.changed(plan="none"),
        tokens=chosen["max_new_tokens"],
        temperature=chosen["temperature"],
        seed=chosen["seed"],
    )
    with _progress.stages() as on_stage:
        found = certify(job, out, on_stage=on_stage, on_note=lambda line: note(f"note: {line}"))
    if as_json:
        _output.print_json(found)
    else:
        _print(found, out)
    if not found["verdict"]["holds"]:
        raise click.exceptions.Exit(1)


def _texts(path: Path | None, count: int) -> tuple[list[tuple[str, Prompt]], str]:
    """Return the prompts and their source; at most as many defaults as exist."""
    texts = _prompts.named(path, count)
    if path is not None:
        # Without the folders above it, since a certificate is published.
        return texts, path.name
    heads = len(texts)
    texts += [(one.name, one.text) for one in heldout_bodies(count - heads)]
    source = _prompts.described(None, heads)
    if len(texts) > heads:
        source += f", and {len(texts) - heads} functions cut in the middle"
    return texts, source


def _print(found: dict[str, Any], folder: Path) -> None:
    verdict = found["verdict"]
    counts = ", ".join(
        f"{verdict[name]} {what}"
        for name, what in (
            ("identical", "identical to plain decoding's"),
            ("near_ties", "leave them at a near-tie"),
            ("differ", "differ by more"),
        )
    )
    _output.table(
        [
            ("verdict", verdict["word"]),
            ("texts", f"{verdict['texts']}: {counts}"),
            ("prompts", f"{found['prompts']} ({found['prompts_from']})"),
            ("compared", ", ".join(found["compared"])),
            ("processors", found["machine"]["processors"]),
            ("written", f"{folder / PAGE} and {JSON} next to it"),
        ]
    )
    for reason in verdict["reasons"]:
        click.echo(f"  {reason}")
