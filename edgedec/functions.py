"""What precedes a pipeline, as functions: convert a checkpoint, fetch a model, plan where it runs.

::

    import edgedec

    model = edgedec.pull("Qwen/Qwen3-0.6B", progress=print)
    edgedec.plan(model.path, memory="2GB")
    pipeline = edgedec.Pipeline.open(model.path)

Each does what the command of its name does (``convert``: ``edgedec export``), with the same names
and values. ``progress(stage, done, total)`` is called while work goes on, in units of the stage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedec._support.amounts import given_bytes
from edgedec._support.option_names import check_names
from edgedec._support.options import check_values, declared, takes
from edgedec.errors import InputError
from edgedec.export import ExportOptions, ExportReport, export_bundle
from edgedec.export.options import parse_draft_vocab, parse_rows
from edgedec.library import Form, Library, Model
from edgedec.records.function_options import PLAN, PULL, PlanOptions, PullOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from edgedec.pipeline.names import ConvertNames, PlanNames, PullNames
    from edgedec.profiling.places import PlaceFilter
    from edgedec.profiling.prompts import Text
    from edgedec.profiling.run import ProfileOptions
    from edgedec.records.plan import Decision

_log = logging.getLogger("edgedec")
_STATIC = ("static_rows", "static_context", "static_activations")


_CONVERT = declared(ExportOptions)


@takes(_CONVERT)
def convert(
    target: str | Path,
    out: str | Path,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Unpack[ConvertNames],
) -> ExportReport:
    """Make a bundle from a checkpoint and, if it is given, a draft's, as ``edgedec export`` does.

    Args:
        target: a Hugging Face folder, or a GGUF file.
        out: the bundle's folder, which appears when the bundle is complete.
        progress: called with each stage's name, work done, and its total.
        options: those of ``edgedec.export.ExportOptions``; options of static shapes make ``onnx``
            ``onnx-static``.

    Raises:
        TypeError: an option is unknown.
        InputError: an invalid option, or ``out`` exists.
        ExportError: see its subclasses in ``edgedec.errors``.
        RuntimeUnavailable: the extra ``export`` is not installed.

    """
    check_names(options, [*_CONVERT])
    given: dict[str, Any] = {_CONVERT[name].field: value for name, value in options.items()}
    formats = given.pop("formats", "onnx")
    names = [name.strip() for name in formats.split(",")] if isinstance(formats, str) else formats
    if any(given.get(name) is not None for name in _STATIC) and "onnx-static" not in names:
        names = ["onnx-static" if name == "onnx" else name for name in names]
    for name in ("rows", "static_rows"):
        if (rows := given.get(name)) is not None:
            text = rows if isinstance(rows, str) else ",".join(map(str, rows))
            given[name] = parse_rows(text, f"--{name.replace('_', '-')}")
    if "draft_vocab" in given:
        given["draft_vocab"] = parse_draft_vocab(given["draft_vocab"])
    for one in _CONVERT.values():
        if one.option.kind in ("file", "folder") and given.get(one.field) is not None:
            given[one.field] = Path(given[one.field])
    asked = ExportOptions(Path(target), Path(out), formats=tuple(names), **given)
    return export_bundle(asked, progress)


@takes(PULL)
def pull(
    model: str | Path,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
    library: Library | None = None,
    **options: Unpack[PullNames],
) -> Model:
    """Add a model to the library, as ``edgedec pull`` does, and return it; see its ``path``.

    Args:
        model: a name on a hub, such as ``org/name``, the folder of a checkpoint, or a GGUF file
            for which ``format`` is given.
        progress: called with each file's or stage's name, work done, and the total.
        say: called with sentences on what is fetched and made.
        library: where it is kept; None is the user's own.

    Raises:
        TypeError: an option is unknown.
        InputError: no such model, it cannot be fetched, or it needs no library.
        BundleError, ExportError: it is damaged, or cannot be made into a bundle.
        RuntimeUnavailable: the extra ``hub`` or ``export`` is not installed.

    """
    from edgedec.library.locate import Query, locate
    from edgedec.library.making import Listener

    check_names(options, [*PULL])
    given = PullOptions(**options)
    check_values(given)
    form = Form.requested(given.weights, given.calibrated or None, given.max_kl)
    query = Query(form, given.name, refresh=True, format=given.format)
    listener = Listener(say, progress, progress)
    found = locate(str(model), library or Library(), listener, query).model
    if found is None:
        raise InputError(f"{model} needs no library: open it where it is")
    return found


@takes(PLAN)
def plan(
    target: str | Path,
    draft: str | Path | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Unpack[PlanNames],
) -> Decision:
    """Measure a pair where it can run, and decide where it does; as ``edgedec plan`` does.

    From then on ``Pipeline.open`` follows the plan, unless it is told not to. A plan for which no
    plan that drafts could be measured is not stored, nor one that other programs disturbed in place
    of one that they did not; the logger ``edgedec`` says so.

    Args:
        target: as ``Pipeline.open`` takes it.
        draft: a draft model; None is the one that comes with the target.
        progress: called with what is measured, steps done, and their number.

    Raises:
        TypeError: an option is unknown.
        BundleError, InputError: no such model, or an option out of range.
        PlanError, ProfileError, MemoryBudgetError: no place is usable, or nothing fits.

    """
    from edgedec.library.locate import path_of
    from edgedec.loading.sources import Models
    from edgedec.planning import decisions, plan_files, remembered
    from edgedec.profiling.places import PlaceFilter
    from edgedec.profiling.store import identity
    from edgedec.records.place import trusting

    check_names(options, [*PLAN])
    given = PlanOptions(**options)
    check_values(given)
    memory = None if given.memory is None else given_bytes("memory", given.memory)
    if given.out is not None:
        plan_files.check_out(Path(given.out))  # before measuring for a minute
    given_draft = None if draft is None else path_of(draft, progress=progress)
    models = Models.find(path_of(target, progress=progress), given_draft)
    measure = profile_options(given.prompts, PlaceFilter(rpc=given.rpc), refresh=given.refresh)
    with trusting(given.rpc_trust):
        found = decisions.plan(
            models, given.workload, memory=memory, options=measure, on_progress=progress
        )
    if given.out is not None:
        plan_files.save(found, Path(given.out))
    if given.remember and (why := remembered.keep(found, identity(models))):
        _log.warning("the plan is not stored: %s", why)
    return found


def profile_options(
    prompts: str | Path | Sequence[Text] | None, wanted: PlaceFilter, *, refresh: bool = False
) -> ProfileOptions:
    """Return what to measure; ``prompts`` are texts, or the path of a file of them.

    Raises:
        InputError: no prompts, or empty ones.

    """
    from edgedec.batch.jobs import read_jobs
    from edgedec.profiling.run import ProfileOptions

    if prompts is None:
        return ProfileOptions(wanted, refresh=refresh)
    name, expected = "prompts", "prompts: expected texts that are not empty"
    if isinstance(prompts, (str, Path)):
        name, expected = Path(prompts).name, f"{prompts}: expected lines with non-empty prompts"
        prompts = [job.prompt for job in read_jobs(Path(prompts))]
    if not prompts or not all(prompts):
        raise InputError(expected)
    return ProfileOptions(wanted, tuple(prompts), name, refresh=refresh)
