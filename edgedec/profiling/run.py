"""Returns a bundle's profile, from the store if a valid one exists, otherwise measured now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgedec._support.fields import printable
from edgedec.errors import ProfileError
from edgedec.hardware.contention import by_others, usage
from edgedec.loading.sources import Source, every_format
from edgedec.profiling import prompts, store
from edgedec.profiling.children import TARGET
from edgedec.profiling.measuring import Measuring
from edgedec.profiling.places import Site, Wanted, sites, streams_weights
from edgedec.profiling.prompts import CalibrationPrompt
from edgedec.profiling.recording import encoded, record
from edgedec.profiling.store import identity
from edgedec.records.place import Place
from edgedec.records.profile import SCHEMA, Measured, Profile
from edgedec.records.trace import Trace

_log = logging.getLogger("edgedec")

# Called with the current step's name, steps done, and steps in total.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What to measure.

    Attributes:
        draft_model: as ``OpenOptions`` takes it.
        wanted: places; the default is a representative selection.
        prompts: the user's own calibration texts; None is those of ``profiling.prompts``.
        prompts_name: their name, such as that of their file.
        refresh: measure even if a stored profile is valid.

    """

    draft_model: Path | None = None
    wanted: Wanted = field(default_factory=Wanted)
    prompts: tuple[CalibrationPrompt, ...] | None = None
    prompts_name: str | None = None
    refresh: bool = False


def profile(
    bundle: str | Path,
    options: ProfileOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Profile:
    """Measure a pair at every place, or read its stored profile.

    If the stored profile is no longer valid, the pair is measured again, and the logger ``edgedec``
    warns in one line.

    Args:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        options: what to measure.
        on_progress: called with each step.

    Raises:
        BundleError: no such bundle or file, or it is damaged.
        InputError: a file that is neither a bundle nor GGUF.
        ProfileError: no place for the target is usable.

    """
    options = options or ProfileOptions()
    sources = every_format(bundle, options.draft_model)
    found, left_out = sites(sources, options.wanted)
    _check(found)
    now = identity(bundle, options.draft_model, sources)
    if not options.refresh:
        stored = store.read(now)
        reason = stored.reason
        if stored.profile is not None:
            reason = _lacks(stored.profile, found, options)
            if not reason:
                return _named(stored.profile, options)
        if reason:
            _log.warning("%s: measuring again", reason)
    texts = prompts.of_bundle(bundle) if options.prompts is None else options.prompts
    made = _measure(_Task(now, sources, found, left_out, options, texts), on_progress)
    store.write(now, made)
    return made


def read_cached(bundle: str | Path, draft_model: Path | None = None) -> Profile | None:
    """Return the stored profile of a pair, if there is a valid one.

    Raises:
        BundleError: no such bundle or file, or it is damaged.

    """
    return store.read(identity(bundle, draft_model, every_format(bundle, draft_model))).profile


def measure_target(
    bundle: str | Path,
    place: Place,
    options: ProfileOptions | None = None,
    on_progress: OnProgress | None = None,
    most_context: int | None = None,
) -> Measured:
    """Measure the target at one more place; its ``parity`` says if that failed.

    Args:
        bundle, options, on_progress: as ``profile`` takes them.
        place: where to measure it.
        most_context: longest context at which passes are measured; None is that of all places.

    Raises:
        BundleError, InputError: see ``profile``.

    """
    options = options or ProfileOptions()
    sources = {TARGET: every_format(bundle, options.draft_model)[TARGET]}
    (source,) = (one for one in sources[TARGET] if one.format == place.format)
    measuring = Measuring(
        sources,
        [Site(source, place)],
        thorough=options.wanted.thorough,
        most_context=most_context,
    )
    (found,) = measuring.places(
        lambda what, done: on_progress(what, done, 1) if on_progress is not None else None
    )
    return found


def keep(bundle: str | Path, made: Profile, options: ProfileOptions | None = None) -> None:
    """Store a profile again after a place was added to it."""
    draft_model = None if options is None else options.draft_model
    store.write(identity(bundle, draft_model, every_format(bundle, draft_model)), made)


@dataclass(frozen=True, slots=True)
class _Task:
    """A profile to be measured."""

    identity: store.Identity
    sources: Mapping[str, Sequence[Source]]
    sites: Sequence[Site]
    left_out: Sequence[str]
    options: ProfileOptions
    texts: Sequence[CalibrationPrompt]


def _check(found: Sequence[Site]) -> None:
    if not any(site.source.role == TARGET for site in found):
        raise ProfileError(
            "no place is left to measure: see `edgedec devices`, and restrict less with --place,"
            " --threads or --format"
        )


def _check_usable(measured: Sequence[Measured]) -> None:
    """Raise an error if no place for the target is usable; a draft may have none."""
    of_target = [one for one in measured if one.role == TARGET]
    if not any(one.parity.usable for one in of_target):
        reasons = "; ".join(f"{one.place.label}: {one.parity.reason}" for one in of_target)
        raise ProfileError(f"the target cannot be used anywhere: {reasons}")


def _lacks(profile: Profile, found: Sequence[Site], options: ProfileOptions) -> str:
    """Return what a stored profile lacks for these options; empty if nothing."""
    known = {(one.role, one.place) for one in profile.measured}
    # The planner itself measures a place that streams with another amount of weights in memory.
    if any(role == TARGET and streams_weights(place) for role, place in known):
        found = [site for site in found if site.place.weight_memory is None]
    missing = [site for site in found if site.key not in known]
    if missing:
        return f"the stored profile lacks {missing[0].place.label}"
    if options.wanted.thorough and not profile.thorough:
        return "the stored profile is a quick one"
    if options.prompts is not None and profile.prompts != prompts.digest(options.prompts):
        return "the stored profile was made with other prompts"
    return ""


def _measure(task: _Task, on_progress: OnProgress | None) -> Profile:
    # Refuse bad prompts before measuring for a minute.
    encoded(task.sources[TARGET][0], task.texts, 1)
    measuring = Measuring(task.sources, task.sites, thorough=task.options.wanted.thorough)
    steps = measuring.steps + 1

    def tell(what: str, done: int) -> None:
        if on_progress is not None:
            on_progress(what, done, steps)

    before = usage()
    measured = measuring.places(tell)
    _check_usable(measured)
    contention = measuring.contention(measured, tell)
    tell("calibration texts", steps - 1)
    recorded = record(task.sources, measured, prompts.some(task.texts))
    tell("done", steps)
    own = task.options.prompts
    return Profile(
        schema=SCHEMA,
        machine=dict(task.identity.machine),
        bundle=task.identity.bundle,
        versions=dict(task.identity.versions),
        measured=tuple(measured),
        contention=tuple(contention),
        traces=recorded.traces,
        overhead_s=recorded.overhead_s,
        draft_overhead_s=recorded.draft_overhead_s,
        rounds=recorded.rounds,
        prompts=prompts.BUILT_IN if own is None else prompts.digest(own),
        thorough=task.options.wanted.thorough,
        notes=(*task.left_out, *measuring.notes, *recorded.notes),
        texts=_described(recorded.traces, task.options),
        busy=by_others(before, usage()),
    )


def _named(profile: Profile, options: ProfileOptions) -> Profile:
    """Return a stored profile, renamed if its texts came from a file of another name."""
    if options.prompts is None:
        return profile
    return replace(profile, texts=_described(profile.traces, options))


def _described(traces: Sequence[Trace], options: ProfileOptions) -> str:
    """Describe the texts: ``6 built-in texts``, ``16 texts of chat.jsonl``."""
    count = len({trace.name for trace in traces})
    kind = "built-in text" if options.prompts is None else "text"
    of = "" if options.prompts_name is None else f" of {options.prompts_name}"
    return printable(f"{count} {kind}{'' if count == 1 else 's'}{of}")
