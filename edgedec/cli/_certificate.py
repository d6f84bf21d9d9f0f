"""``edgedec verify --certificate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _options, _output, _progress, _prompts
from edgedec.cli._terminal import note

if TYPE_CHECKING:
    from edgedec.pipeline import Prompt


def issue(
    bundle: str,
    prompts: Path | None,
    count: int,
    folder: Path,
    as_json: bool,
    chosen: dict[str, Any],
) -> None:
    """Run all comparisons, write the certificate, print its verdict; exit code 1 if it fails."""
    from edgedec.verify.certificate.job import Job
    from edgedec.verify.certificate.run import certify

    options = _options.open_options(chosen, bundle)
    if options.drafter != "auto":
        raise click.UsageError("--certificate compares all drafters: leave --drafter NAME out")
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
        found = certify(job, folder, on_stage=on_stage, on_note=lambda line: note(f"note: {line}"))
    if as_json:
        _output.print_json(found)
    else:
        _print(found, folder)
    if not found["verdict"]["holds"]:
        raise click.exceptions.Exit(1)


def _texts(path: Path | None, count: int) -> tuple[list[tuple[str, Prompt]], str]:
    """Return the prompts and their source; at most as many defaults as exist."""
    from edgedec.models.demo.heldout import heldout_bodies

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
    from edgedec.verify.certificate.run import JSON, PAGE

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
