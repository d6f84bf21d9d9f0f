"""The models that ``edgedec serve`` offers: the one of MODEL, or those of ``--models``."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edgedec._support.installation import quoted
from edgedec._support.model_path import is_gguf
from edgedec.cli import _options, _partner
from edgedec.errors import InputError

if TYPE_CHECKING:
    from edgedec.library.locate import Located
    from edgedec.library.records import Model
    from edgedec.loading.options import OpenOptions
    from edgedec.loading.sources import Source
    from edgedec.pipeline import Pipeline
    from edgedec.serve.offer import Offer

# What one model is given, and several cannot share, by what to do instead.
_OF_ONE = {
    "model": "name all models with --models, separated by commas",
    "named": "name all models with --models, separated by commas",
    "name": "each model has its own name: leave it out",
    "draft": "each model takes the draft that came with it or the library has for it: leave it out",
}
_MODELS, _KEEP = "models", "keep_alive"
# Digits of an id that tell models of one name apart.
_ID = 8


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Return ``--keep-alive`` in seconds."""
    from edgedec.serve import keeping

    try:
        return None if value is None else keeping.seconds(value)
    except InputError:
        raise click.BadParameter(f"{value!r:.60}: expected {keeping.EXPECTED}") from None


OPTIONS = [
    click.option("--models", _MODELS, multiple=True, is_flag=False, flag_value="",
                 metavar="[NAME,...]", help="Serve several models, each loaded when a request "
                 "first names it: the whole library, or these, each given like MODEL; repeatable. "
                 "Requests without a name are for the first."),
    click.option("--keep-alive", _KEEP, callback=_duration, metavar="DURATION",
                 help="With --models: how long a model stays loaded after its last text, where a "
                 "request does not say, such as 10m; 0 drops it at once, -1 never. Default: 5m."),
]  # fmt: skip


def check(context: click.Context) -> bool:
    """Return whether there are to be several models.

    Raises:
        click.UsageError: options do not go together.

    """
    typed = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if _MODELS not in typed:
        if _KEEP in typed:
            raise click.UsageError("--keep-alive goes with --models: a single model stays loaded")
        return False
    for name, advice in _OF_ONE.items():
        if typed.get(name) is not None:
            word = "MODEL" if name in ("model", "named") else f"--{name}"
            raise click.UsageError(f"--models and {word}: {advice}")
    if typed.get("plan") not in (None, "auto", "none"):
        raise click.UsageError("--models and --plan FILE: a plan is for one model: leave it out")
    return True


def offers(words: Sequence[str], chosen: dict[str, Any], *, tells: bool) -> list[Offer]:
    """Return the models that these words name; those of a hub are fetched now.

    Args:
        words: values of ``--models``, "" for the whole library.
        chosen: the other options, which hold for all of them.
        tells: whether callers may know where models are.

    Raises:
        InputError, BundleError, ExportError, RuntimeUnavailable: there is no such model, two have
            one name, or the library is empty.

    """
    from edgedec.library.locate import Query

    named = [name for word in words for name in word.split(",")]
    if "" in named:
        found = _whole_library()
    else:
        query = Query(format=chosen["format"])
        found = []
        for word in dict.fromkeys(named):
            own = {**chosen, "draft": None}
            one = _partner.located(word, own, query)
            found.append((names(word, one.model), word, one, own["draft"]))
    made: dict[str, Offer] = {}
    for called, word, one, draft in found:
        name, *aliases = called
        if name in made:
            raise InputError(f"--models: two models are called {name}: give them by their ids")
        plan = planning(word, None) if tells else ""
        made[name] = _offer(name, tuple(aliases), one, {**chosen, "draft": draft}, plan)
    return list(made.values())


def _whole_library() -> list[tuple[tuple[str, ...], str, Located, Path | None]]:
    """Return the names, the word and the place of each model of the library, and no draft.

    Of several forms of one name, the one that `edgedec run NAME` takes has it; others have ids.
    """
    from edgedec.library import Library
    from edgedec.library.locate import Located
    from edgedec.library.records import CALIBRATED

    found: list[tuple[tuple[str, ...], str, Located, Path | None]] = []
    for name, forms in itertools.groupby(Library().models(), lambda model: model.name):
        best_first = sorted(forms, key=lambda one: one.record.form.calibration != CALIBRATED)
        for place, one in enumerate(best_first):
            called = one.id[:_ID] if place else name
            found.append(((called, one.id, one.id[:_ID]), called, Located(one.path, one), None))
    if not found:
        raise InputError("the library has no models: `edgedec pull MODEL` adds one")
    return found


def _offer(
    name: str, aliases: tuple[str, ...], located: Located, chosen: dict[str, Any], planning: str
) -> Offer:
    from edgedec.serve.offer import Offer

    options = _options.open_options(chosen, located.path)
    looks = options.draft is None and not chosen.get("no_draft")
    return Offer(
        name,
        functools.partial(_opened, located.path, options, looks=looks),
        functools.partial(_source, located.path, options),
        aliases,
        planning,
        options.max_context,
    )


def _source(path: str | Path, options: OpenOptions) -> Source:
    from edgedec.loading.build import find_pair

    return find_pair(path, options).target


def _opened(path: str | Path, options: OpenOptions, *, looks: bool) -> Pipeline:
    """Open a model as ``edgedec run`` does, with a draft that is here if it has none."""
    from edgedec.pipeline import Pipeline

    if looks:
        options = options.changed(draft=_partner.here(path, options.drafter))
    if options.plan == "auto" and not _has_plan(path, options):
        # Else options that plans decide would be refused, and weights that do not fit be measured.
        options = options.changed(plan="none")
    if options.max_context is not None:
        trained = _source(path, options).max_context or options.max_context
        options = options.changed(max_context=min(options.max_context, trained))
    return Pipeline.open(path, options)


def _has_plan(path: str | Path, options: OpenOptions) -> bool:
    """Return whether a plan was made of a model, and no option decides what it does."""
    from edgedec.loading.sources import Models
    from edgedec.planning import remembered

    if options.planned():
        return False
    return remembered.recall(Models.find(path, options.draft)) is not None


def planning(model: str, draft: Any) -> str:
    """Return the command that makes a plan of a model, to be pasted in any folder."""
    words = [model, *(("--draft", str(draft)) if draft else ())]
    return " ".join(["edgedec plan", *(quoted(_anywhere(word)) for word in words)])


def _anywhere(word: str) -> str:
    return os.path.abspath(word) if Path(word).exists() else word  # noqa: PTH100 - as below


def names(word: str, model: Model | None) -> tuple[str, ...]:
    """Return what a model is called, the usual name first, and what the user typed."""
    place = Path(os.path.abspath(word))  # noqa: PTH100 - a link keeps its own name
    if model is None:
        return (place.stem if is_gguf(place) else place.name, word)
    typed = not model.id.startswith(word) and not place.exists()
    return (word if typed else model.name, model.name, model.id, word)
