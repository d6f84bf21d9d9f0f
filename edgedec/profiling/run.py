"""Returns a pair's profile, from the store if a valid one exists, otherwise measured now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from edgedec._support.fields import printable
from edgedec.errors import ProfileError
from edgedec.hardware import machine
from edgedec.hardware.contention import by_others, usage
from edgedec.loading.sources import Models
from edgedec.profiling import measuring, prompts, store
from edgedec.profiling.children import TARGET
from edgedec.profiling.places import Placed, PlaceFilter, sites, streams_weights
from edgedec.profiling.prompts import Text
from edgedec.profiling.rounds import encoded, rounds
from edgedec.profiling.store import identity
from edgedec.records.place import Place
from edgedec.records.profile import SCHEMA, Measured, Profile

_log = logging.getLogger("edgedec")

# Called with the current step's name, steps done, and steps in total.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What to measure.

    Attributes:
        wanted: places; the default is a representative selection.
        prompts: the user's own calibration texts; None is those of ``profiling.prompts``.
        prompts_name: their name, such as that of their file.
        temperature: of the texts that drafters are measured on.
        refresh: measure even if a stored profile is valid.
        memory: most bytes of models that are loaded at once; None is all available memory.

    """

    wanted: PlaceFilter = field(default_factory=PlaceFilter)
    prompts: tuple[Text, ...] | None = None
    prompts_name: str | None = None
    temperature: float = 0.0
    refresh: bool = False
    memory: int | None = None

    def texts(self, models: Models) -> list[list[int]]:
        """Return the tokens of the texts.

        Raises:
            ProfileError, InputError: see ``rounds.encoded``.

        """
        chosen = prompts.of_bundle(models.target) if self.prompts is None else self.prompts
        return encoded(models.sources, chosen)


def profile(
    models: Models,
    options: ProfileOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Profile:
    """Measure a pair at every place, or read its stored profile.

    If the stored profile is no longer valid, the pair is measured again, and the logger ``edgedec``
    warns in one line. Only the drafters are measured again for other texts.

    Raises:
        InputError: a prompt that the model's chat template cannot render.
        ProfileError: no place for the target is usable.

    """
    options = options or ProfileOptions()
    found, left_out = sites(models.sources, options.wanted)
    _check(found)
    now = identity(models)
    if not options.refresh:
        stored = store.read(now)
        reason = stored.reason
        if stored.profile is not None:
            reason = _lacks(stored.profile, found, options)
            if not reason:
                return _with_rounds(stored.profile, models, options, on_progress)
        if reason:
            _log.warning("%s: measuring again", reason)
    made = _measure(now, models, found, left_out, options, on_progress)
    store.write(now, made)
    return made


def read_cached(models: Models) -> Profile | None:
    """Return the stored profile of a pair, if there is a valid one."""
    return store.read(identity(models)).profile


def measure_target(
    models: Models,
    place: Place,
    options: ProfileOptions | None = None,
    on_progress: OnProgress | None = None,
    most_context: int | None = None,
) -> Measured:
    """Measure the target at one more place; its ``parity`` says if that failed.

    Args:
        most_context: longest context at which passes are measured; None is that of all places.

    """
    options = options or ProfileOptions()
    sources = {TARGET: models.sources[TARGET]}
    (source,) = (one for one in sources[TARGET] if one.format == place.format)
    (found,) = measuring.measure_places(
        sources,
        [Placed(source, place)],
        lambda what, done: on_progress(what, done, 1) if on_progress is not None else None,
        thorough=options.wanted.thorough,
        most_context=most_context,
    )
    return found


def keep(models: Models, made: Profile) -> None:
    """Store a profile again after a place was added to it."""
    store.write(identity(models), made)


def _check(found: Sequence[Placed]) -> None:
    if not any(placed.source.role == TARGET for placed in found):
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


def _lacks(profile: Profile, found: Sequence[Placed], options: ProfileOptions) -> str:
    """Return what a stored profile lacks for these options; empty if nothing."""
    known = {(one.role, one.place) for one in profile.measured}
    # The planner itself measures a place that streams with another amount of weights in memory.
    if any(role == TARGET and streams_weights(place) for role, place in known):
        found = [placed for placed in found if placed.place.weight_memory is None]
    missing = [placed for placed in found if placed.key not in known]
    if missing:
        return f"the stored profile lacks {missing[0].place.label}"
    if options.wanted.thorough and not profile.thorough:
        return "the stored profile is a quick one"
    return ""


def _with_rounds(
    stored: Profile, models: Models, options: ProfileOptions, on_progress: OnProgress | None
) -> Profile:
    """Return a stored profile, with its drafters measured again if the texts differ."""
    same = stored.prompts == _digest(options) or options.prompts is None
    if same and any(one.temperature == options.temperature for one in stored.rounds):
        return replace(stored, texts=_described(options)) if options.prompts else stored
    if on_progress is not None:
        on_progress("drafters on the texts", 0, 1)
    made = _rounds(stored, models, options)
    keep(models, made)
    return made


def _rounds(made: Profile, models: Models, options: ProfileOptions) -> Profile:
    """Return a profile with its drafters measured now."""
    memory = machine.memory().usable if options.memory is None else options.memory
    found = rounds(models, made.measured, options.texts(models), options.temperature, memory)
    return replace(
        made,
        rounds=found.rounds,
        draft_overhead_s=found.draft_overhead_s,
        head_overhead_s=found.head_overhead_s,
        notes=(*made.notes, *found.notes),
        prompts=_digest(options),
        texts=_described(options),
    )


def _measure(
    now: store.Identity,
    models: Models,
    found: Sequence[Placed],
    left_out: Sequence[str],
    options: ProfileOptions,
    on_progress: OnProgress | None,
) -> Profile:
    options.texts(models)  # refuses bad prompts before measuring for a minute
    steps = len(found) + 1

    def tell(what: str, done: int) -> None:
        if on_progress is not None:
            on_progress(what, done, steps)

    before = usage()
    thorough = options.wanted.thorough
    measured = measuring.measure_places(models.sources, found, tell, thorough=thorough)
    _check_usable(measured)
    tell("drafters on the texts", steps - 1)
    made = Profile(
        schema=SCHEMA,
        machine=dict(now.machine),
        bundle=now.bundle,
        versions=dict(now.versions),
        measured=tuple(measured),
        thorough=thorough,
        notes=tuple(left_out),
    )
    made = _rounds(made, models, options)
    tell("done", steps)
    return replace(made, busy=by_others(before, usage()))


def _digest(options: ProfileOptions) -> str:
    return prompts.BUILT_IN if options.prompts is None else prompts.digest(options.prompts)


def _described(options: ProfileOptions) -> str:
    """Describe the texts: ``built-in texts``, ``16 texts of chat.jsonl``."""
    if options.prompts is None:
        return "built-in texts"
    count = len(options.prompts)
    of = "" if options.prompts_name is None else f" of {options.prompts_name}"
    return printable(f"{count} text{'' if count == 1 else 's'}{of}")
