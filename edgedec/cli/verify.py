"""``edgedec verify``: is the speculative text the plain text?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _options

if TYPE_CHECKING:
    from edgedec.bench.verify import Verification
    from edgedec.pipeline import Prompt


@click.command()
@click.argument("bundle", default="demo")
@_options.options(_options.texts(count=20, least_tokens=1))
@click.option(
    "--temperature", type=float, default=0.8, show_default=True, help="Of the sampled texts."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sampled texts.")
@_options.options(_options.OPEN, _options.LOAD)
@_options.as_json
def command(
    bundle: str,
    prompts: Path | None,
    count: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Check that speculative text is plain text.

    BUNDLE is a folder, the demo, or a GGUF file. Prompts are decoded both ways, greedily and
    sampled with a seed. Exit code 1 when a text differs by more than a near-tie of arithmetic.
    Where the runtime can, passes are padded so that quantised numbers do not depend on drafting;
    with --no-row-invariant near-ties show.

    \b
    edgedec verify demo
    edgedec verify ./my-bundle --prompts prompts.jsonl --max-new-tokens 128 --json
    edgedec verify demo --draft tree --no-row-invariant
    edgedec verify large.gguf --draft small.gguf
    """  # fmt: skip
    from edgedec.bench.verify import verify
    from edgedec.cli import _output
    from edgedec.decoding.sampling import SamplingParams

    with _output.progress("texts") as on_text:
        found = verify(
            bundle,
            default_or_read(prompts, count),
            max_new_tokens=max_new_tokens,
            sampling=SamplingParams(temperature=temperature, seed=seed),
            options=_options.open_options(chosen),
            on_text=on_text,
        )
    if as_json:
        _output.print_json(found.to_json())
    else:
        _print(found)
    if not found.holds:
        raise click.exceptions.Exit(1)


def default_or_read(path: Path | None, count: int) -> list[tuple[str, Prompt]]:
    """(name, prompt) pairs from a file, or function heads that the demo pair never saw."""
    from edgedec.bench.workloads import heldout_prompts
    from edgedec.errors import InputError
    from edgedec.jobs import read_jobs

    if path is None:
        return [(prompt.name, prompt.text) for prompt in heldout_prompts(count)]
    jobs = read_jobs(path)
    named: list[tuple[str, Prompt]] = [(j.id, j.prompt) for j in jobs if isinstance(j.prompt, str)]
    if len(named) < len(jobs):
        raise InputError(f"{path}: expected lines with a prompt here, not messages")
    return named


def _print(found: Verification) -> None:
    from edgedec.cli._output import table

    rate = found.accepted_tokens / found.drafted_tokens if found.drafted_tokens else 0.0
    table(
        [
            ("texts", f"{found.texts} pairs, {found.tokens} tokens"),
            ("identical", f"{found.identical} of {found.texts}"),
            ("near-ties", str(found.near_ties)),
            ("differ", str(len(found.divergences) - found.near_ties)),
            ("drafted", f"{found.drafted_tokens} tokens, {rate:.0%} accepted"),
            ("verdict", "holds" if found.holds else "DOES NOT HOLD"),
        ]
    )
    for d in found.divergences:
        gap = "one text had ended" if d.gap is None else f"gap {d.gap:.2g}"
        what = "near-tie" if d.near_tie else "not a near-tie"
        click.echo(
            f"  {d.mode} {d.prompt} at token {d.position}: {d.plain} plain, {d.speculative} "
            f"speculative; {gap}, tolerance {d.tolerance:.2g}: {what}"
        )
    if not found.drafted_tokens:
        click.echo("nothing was drafted, so nothing is shown: try --draft-length 3", err=True)
