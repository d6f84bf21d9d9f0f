"""``edgedec plan``: where to run what, decided from measurements."""

from __future__ import annotations

from pathlib import Path

import click

from edgedec.cli import _options


@click.command()
@click.argument("bundle", default="demo")
@click.option(
    "--draft",
    "draft_model",
    metavar="FILE.gguf",
    type=click.Path(exists=True, path_type=Path),
    help="A draft model's file, or a bundle whose target drafts; default: the draft "
    "that comes with BUNDLE.",
)
@click.option(
    "--memory",
    type=_options.size,
    metavar="SIZE",
    help="For weights, caches and buffers together, as 2GB; default: all there is.",
)
@click.option(
    "--max-context",
    type=click.IntRange(min=16),
    metavar="TOKENS",
    help="Tokens a text may have, its prompt included; default: the model's limit, or "
    "what the memory holds.",
)
@_options.options(_options.WORKLOAD)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the plan to a file, for `edgedec generate --plan`.",
)
@click.option("--refresh", is_flag=True, help="Measure anew.")
@_options.as_json
def command(
    bundle: str,
    draft_model: Path | None,
    memory: int | None,
    max_context: int | None,
    temperature: float,
    prompt_tokens: int,
    new_tokens: int,
    out: Path | None,
    refresh: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    """Decide where BUNDLE's models run, who drafts and how much.

    Measures every place first, as `edgedec profile` does, where that was not done yet. Shows
    what each plan is predicted to give, the choice, and why. From then on these models are run
    here as decided, unless told otherwise (--plan none).

    \b
    edgedec plan demo
    edgedec plan ./my-bundle --memory 2GB --max-context 4096 --out plan.json
    edgedec plan large.gguf --draft small.gguf --temperature 0.8 --json
    """  # fmt: skip
    from edgedec import planning, remembered
    from edgedec.cli import _decision, _output
    from edgedec.pair import every_format
    from edgedec.placement.stored import to_json
    from edgedec.placement.workload import Workload
    from edgedec.profiling import ProfileOptions
    from edgedec.profiling.identity import identity

    workload = Workload(prompt_tokens, new_tokens, temperature, max_context)
    if out is not None:
        planning.check_out(out)  # before a minute of measuring
    with _output.stages() as on_progress:
        decision = planning.plan(
            bundle,
            workload,
            memory=memory,
            options=ProfileOptions(draft_model=draft_model, refresh=refresh),
            on_progress=on_progress,
        )
    if out is not None:
        planning.save(decision, out)
    remembered.remember(decision, identity(bundle, draft_model, every_format(bundle, draft_model)))
    if as_json:
        _output.print_json(to_json(decision))
    else:
        _decision.show(decision, show_all=show_all)
