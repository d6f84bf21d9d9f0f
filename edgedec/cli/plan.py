"""``edgedec plan``: decides from measurements where models run and how much to draft."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.fields import to_json
from edgedec.cli import (
    _flags,
    _help,
    _library,
    _model,
    _options,
    _progress,
    _remote,
    _terminal,
)
from edgedec.cli._terminal import note
from edgedec.records.function_options import PLAN

if TYPE_CHECKING:
    from edgedec.loading.sources import Models
    from edgedec.records.plan import Decision
    from edgedec.records.workload import Workload

# Said before minutes of measuring may find just that.
_WITHOUT_DRAFT = (
    "no draft model: texts gain whose words are in the text before them, as in edits, code, JSON"
    " and answers over documents; free prose does not, and a draft model helps there"
)


@click.command(cls=_help.GroupedCommand)
@_model.model
@_options.DRAFT_MODEL
@_options.options(_flags.flags(PLAN, ("memory", "max_context")), _remote.OPTIONS)
@_options.options(_options.WORKLOAD)
@_options.options(_flags.flags(PLAN, ("out", "prompts", "refresh")))
@click.option(
    "--forget", is_flag=True, help="Delete the plan stored for these models, and do nothing else."
)
@_options.as_json
def command(
    bundle: str,
    draft_model: Path | None,
    out: Path | None,
    prompts: Path | None,
    show_all: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Plan where MODEL runs, with which drafter and draft length.

    Measures every place first, as `edgedec profile` does, unless that was done before. Then the
    plans that should be fastest decode a few texts in turns with plain decoding. Shows the reasons
    and, in the last line, the choice; with --all, a table of all plans. From then on these models
    run here as planned by default (--plan none ignores the plan). A plan depends on the texts it is
    made from; use --prompts for texts like your own. A plan measured while other programs used more
    than a tenth of the processor says so, and does not replace one that was measured on a quiet
    machine; --refresh measures again. If none of the plans that draft could be measured, the plan
    is shown but never stored. MODEL is what `edgedec run` takes.

    \b
    edgedec plan demo
    edgedec plan ./my-bundle --memory 2GB --max-context 4096 --out plan.json
    edgedec plan ./my-bundle --prompts prompts.jsonl
    edgedec plan large.gguf --draft small.gguf --temperature 0.8 --json
    edgedec plan large.gguf --draft small.gguf --rpc 192.168.1.7:50052
    edgedec plan ./my-bundle --forget
    """  # fmt: skip
    from edgedec.planning import plan_files
    from edgedec.records.workload import Workload

    if chosen["forget"]:
        _forget(bundle, draft_model)
        return
    workload = Workload(**{each.name: chosen[each.name] for each in fields(Workload)})
    if out is not None:
        plan_files.check_out(out)  # before measuring for a minute
    models = _models(bundle, draft_model)
    alone = models.sources.keys() == {"target"} and not as_json
    decision = _decided(models, workload, prompts, chosen, _WITHOUT_DRAFT if alone else "")
    if out is not None:
        plan_files.save(decision, out)
    _show(decision, as_json=as_json, show_all=show_all)
    kept = _keep(decision, models)
    if kept and not as_json:
        _library.suggest(bundle, models.target, draft_model)


def _models(bundle: str, draft_model: Path | None) -> Models:
    """Return the pair that the words name."""
    from edgedec.loading.sources import Models

    target = _library.path(bundle)
    return Models.find(target, _library.draft_path(draft_model, target))


def _decided(
    models: Models, workload: Workload, prompts: Path | None, chosen: dict[str, Any], first: str
) -> Decision:
    """Measure, with a line of progress, and decide; ``first`` is said before the first step."""
    from edgedec.functions import profile_options
    from edgedec.planning import decisions
    from edgedec.profiling.places import PlaceFilter

    options = profile_options(prompts, PlaceFilter(rpc=chosen["rpc"]), refresh=chosen["refresh"])
    unsaid = iter([first] if first else [])
    with _progress.steps() as on_progress:

        def listen(step: str, done: int, total: int | None) -> None:
            for line in unsaid:
                note(line)
            on_progress(step, done, total)

        return decisions.plan(
            models, workload, memory=chosen["memory"], options=options, on_progress=listen
        )


def _show(decision: Decision, *, as_json: bool, show_all: bool) -> None:
    from edgedec.cli import _decision, _output

    if as_json:
        _output.print_json(to_json(decision))
        return
    if show_all:
        _decision.show(decision, show_all=True)
    else:
        _decision.explain(decision)
    click.echo()
    _decision.answer(decision)


def _keep(decision: Decision, models: Models) -> bool:
    """Store a decision, or report on stderr why not; return whether it is stored."""
    from edgedec.planning import remembered
    from edgedec.profiling.store import identity

    of = identity(models)
    why = remembered.keep(decision, of)
    if not why:
        return True
    before = " The plan stored before is kept." if remembered.is_kept(of) else ""
    more = " Without a plan, drafts are used where they pay." if decision.untried else ""
    _terminal.print_text(f"This plan is not stored: {why}.{more}{before}", err=True)
    return False


def _forget(bundle: str, draft_model: Path | None) -> None:
    from edgedec.planning import remembered
    from edgedec.profiling.store import identity

    _options.alone(
        "--forget", {"forget", "model", "named", "draft_model"}, "give MODEL and --draft only"
    )
    was_kept = remembered.forget(identity(_models(bundle, draft_model)))
    click.echo("the plan is deleted" if was_kept else "no plan was stored for this model")
