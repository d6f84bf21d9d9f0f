"""Finds what drafts for a target: in the library, beside it, or on the list of published drafts.

What is here is taken without a question. What is on the list is fetched only if the caller's
``Ask`` says so; then it is checked, and the library remembers what came of it: a head is exported
with its target and measured, a model has the target's tokens, or it is not offered again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from edgedec._support.atomic import write_json
from edgedec._support.kept import Unusable, read_object
from edgedec._support.model_path import DEMO, exists, hub_name, is_gguf, ready
from edgedec.bundle import Bundle
from edgedec.decoding import drafting
from edgedec.errors import EdgedecError, ExportError, InputError
from edgedec.library import drafts
from edgedec.library.drafts import Facts
from edgedec.library.locate import Located, Query, locate
from edgedec.library.making import Listener
from edgedec.library.records import BUNDLE, Model
from edgedec.library.reference import parse
from edgedec.library.store import Library

_VERDICTS = "drafts.json"
FITS, REFUSED, UNFIT = "fits", "refused", "unfit"
# Models beside a target whose headers are read, and the share of its tokens that one must have.
_MOST_BESIDE, _ENOUGH_TOKENS = 16, 0.9
_WITHOUT = "--drafter text drafts without a model"
# What huggingface_hub takes for yes.
_ON = ("1", "ON", "YES", "TRUE")


@dataclass(frozen=True, slots=True)
class Offer:
    """A published draft for a target.

    Attributes:
        target: what the list calls the target.
        name: of the draft on the hub.
        kind: a key of ``published.NEEDS``.
        size: its parameters, for people.
        bytes: about how many are fetched.
        licence: as its page states it; None where none does.
        head: whether it goes into the target's bundle, which is made with it.
        note: what else to know.

    """

    target: str
    name: str
    kind: str
    size: str
    bytes: int
    licence: str | None
    head: bool
    note: str = ""


# Decides whether a published draft is fetched; None if nobody can be asked.
Ask = Callable[[Offer], bool | None]


class Unfit(InputError):
    """A draft model has too few of its target's tokens."""


@dataclass(frozen=True, slots=True)
class Found:
    """A target, and a model that drafts for it, if that is not inside the target's bundle."""

    target: Located
    draft: Path | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for a target's draft.

    Attributes:
        library: where models are kept and found.
        listener: receives progress, and a sentence on what was found.
        ask: decides whether a published draft is fetched.
        advice: how a draft is fetched that nobody was asked about, for the sentence on it.
        drafter: the drafter that will run; None or ``auto`` takes any.
        insists: offer also what was refused before.

    """

    library: Library
    listener: Listener
    ask: Ask
    advice: str
    drafter: str | None = None
    insists: bool = False

    @property
    def wanted(self) -> bool:
        """Whether the drafter takes a draft model or a head."""
        return self._any or self._model or self._head

    @property
    def _any(self) -> bool:
        return self.drafter in (None, drafting.AUTO)

    @property
    def _model(self) -> bool:
        return self._any or drafting.info(str(self.drafter)).needs_model

    @property
    def _head(self) -> bool:
        return self._any or drafting.info(str(self.drafter)).needs_head

    def find(self, word: str, query: Query) -> Found:
        """Return the target that a word means, and its draft.

        Args:
            word: see ``locate``.
            query: what is wanted of the target; the draft gets its form and format.

        Raises:
            EdgedecError: as ``locate`` raises them, for the target alone.

        """
        known = self._known(word, query)
        if known is not None and (draft := self.here(known)):
            return Found(self._target(word, query), draft)
        offer, verdict = self._offer(word, known, query), None
        if offer is not None and self._agreed(offer):
            try:
                return self._with(offer, word, query)
            except (ExportError, Unfit) as error:
                verdict = UNFIT
                self.listener.report(f"{offer.name} does not draft here: {error}")
            except EdgedecError as error:
                self.listener.report(f"{offer.name} is left out: {error}")
        target = self._target(word, query)
        if offer is not None and verdict is not None:  # and not for a fault of the target's own
            self._keep(_pair(offer), verdict)
        return Found(target, None if known is not None else self.here(target.path))

    def _agreed(self, offer: Offer) -> bool:
        """Return whether a published draft is here, or to be fetched; say so if nobody is asked."""
        if not offer.head and self.library.find(offer.name) is not None:
            return True
        advice, agreed = self.advice, None
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in _ON:
            advice = "HF_HUB_OFFLINE forbids fetching it"
        else:
            agreed = self.ask(offer)
        if agreed is None:
            self.listener.report(f"draft: {described(offer)} would go with it: {advice}")
        elif not agreed:
            self._keep(_any_for(offer.target), REFUSED)
        return bool(agreed)

    def here(self, target: str | Path) -> Path | None:
        """Return a model of the library or beside a target that drafts for it, and say so."""
        if not self._model:
            return None
        path, where = None, ""
        if (found := drafts.find(target, self.library)) is not None:
            path, where = found.path, f"{found.name}, from the library"
        elif (path := beside(target)) is not None:
            where = f"{path.name}, beside {Path(target).name}"
        if path is not None:
            self.listener.report(f"draft: {where}; {_WITHOUT}")
        return path

    def _target(self, word: str, query: Query) -> Located:
        return locate(word, self.library, self.listener, query)

    def _known(self, word: str, query: Query) -> str | Path | None:
        """Return where a target is, if it need not be made or fetched first."""
        found = ready(word)
        if found is None and (model := self._model_of(word)) is not None:
            found = model.path
        made = found is not None and found != DEMO and is_gguf(found) and query.format is not None
        return None if made else found

    def _model_of(self, word: str) -> Model | None:
        """Return the model of the library that a word names, or that was made of its folder."""
        if not exists(word):
            return self.library.find(hub_name(word))
        where = os.path.abspath(word)  # noqa: PTH100 - as the library keeps it
        made = (one for one in self.library.models() if one.record.origin.where == where)
        return next(made, None)

    # -- the list -------------------------------------------------------------------------------

    def _offer(self, word: str, known: str | Path | None, query: Query) -> Offer | None:
        """Return the first published draft that a target can take and that was not refused."""
        from edgedec.library import published
        from edgedec.library.recognise import recognise

        if word == DEMO or (known is not None and _drafts_itself(known)):
            return None
        try:
            targets = recognise(word, self.library)
        except EdgedecError:  # none is listed
            return None
        verdicts, names = self._verdicts(), {one.name for one in targets}
        if not self.insists and verdicts.get(_any_for(targets[0].name)) == REFUSED:
            return None
        heads = self._head and len(targets) == 1 and self._exports(word, query)
        for one in published.drafts_for(targets):
            head = one.kind == published.HEAD
            if one.unread or one.kind == published.MTP or not names <= {*one.targets}:
                continue
            if not (heads if head else self._model):
                continue
            offer = Offer(
                targets[0].name, one.name, one.kind, one.size, one.bytes, one.licence, head,
                one.note,
            )  # fmt: skip
            if verdicts.get(_pair(offer)) != UNFIT:
                return offer
        return None

    def _exports(self, word: str, query: Query) -> bool:
        """Return whether a target is made from a checkpoint, which is there or on a hub."""
        if query.format == "onnx" or is_gguf(word):
            return False
        if exists(word):
            return ready(word) is None
        if model := self._model_of(word):
            return model.record.kind == BUNDLE and _source_is_there(model)
        reference = parse(hub_name(word))
        return reference is not None and reference.which is None and "gguf" not in word.lower()

    def _with(self, offer: Offer, word: str, query: Query) -> Found:
        """Return a target with a published draft, which was checked.

        Raises:
            ExportError: the head does not fit, or the target cannot be exported.
            Unfit: the draft model has other tokens.
            EdgedecError: it cannot be fetched.

        """
        if offer.head:
            target = self._target(word, replace(query, head=offer.name))
            self._keep(_pair(offer), FITS)
            return Found(target)
        own = Query(query.form, format=query.format, download=query.download)
        draft = Path(self._target(offer.name, own).path)
        target = self._target(word, query)
        if self._verdicts().get(_pair(offer)) != FITS:
            check_tokens(target.path, draft)
            self._keep(_pair(offer), FITS)
        self.listener.report(f"draft: {offer.name}; {_WITHOUT}")
        return Found(target, draft)

    # -- what the library remembers -------------------------------------------------------------

    def _verdicts(self) -> dict[str, object]:
        try:
            return read_object(self.library.folder / _VERDICTS)
        except (OSError, Unusable):
            return {}

    def _keep(self, pair: str, verdict: str) -> None:
        file = self.library.folder / _VERDICTS
        with suppress(OSError):  # it is asked again
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(file, {**self._verdicts(), pair: verdict}, indent=1)


def _pair(offer: Offer) -> str:
    return f"{offer.name} for {offer.target}"


def _any_for(target: str) -> str:
    return f"any for {target}"


def described(offer: Offer) -> str:
    """Return what a published draft is, its size and licence."""
    more = f"; {offer.note}" if offer.note else ""
    return (
        f"{offer.name} ({offer.kind}, {offer.size} parameters, about {offer.bytes / 1e6:.0f} MB,"
        f" licence: {offer.licence or 'see its page'}{more})"
    )


def _drafts_itself(path: str | Path) -> bool:
    """Return whether a bundle has a draft or a head of its own."""
    if is_gguf(path):
        return False
    bundle = Bundle.open(path)
    return bundle.draft is not None or bundle.head is not None


def _source_is_there(model: Model) -> bool:
    origin = model.record.origin
    return origin.revision is not None or Path(origin.where).exists()


# -- beside the target --------------------------------------------------------------------------


def beside(target: str | Path) -> Path | None:
    """Return a model in the target's folder that can draft for it: of several, the largest.

    It has the same tokenizer and at most a quarter of the parameters. Headers and manifests of a
    few models are read, of no GGUF file larger than the target's; damaged ones are passed over.
    """
    if str(target) == DEMO or not exists(target):
        return None
    place = Path(target).absolute()
    facts = _facts(place)
    if facts is None or _drafts_itself(place):
        return None
    fitting: list[tuple[int, str, Path]] = []
    for path in _neighbours(place):
        own = _facts(path)
        if own is None or own.tokenizer != facts.tokenizer:
            continue
        if own.parameters <= drafts.LARGEST_SHARE * facts.parameters:
            fitting.append((own.parameters, path.name, path))
    return max(fitting)[2] if fitting else None


def _neighbours(place: Path) -> Iterator[Path]:
    """Yield the bundles and GGUF files of a path's folder, but for the path and links to it.

    A header with a large vocabulary takes a tenth of a second, so that few are yielded.
    """
    most = place.stat().st_size if is_gguf(place) else None

    def possible(path: Path) -> bool:
        holds = path if is_gguf(path) else path / "manifest.json"
        if not holds.is_file() or path.samefile(place):
            return False
        return most is None or not is_gguf(path) or path.stat().st_size <= most

    with suppress(OSError):
        yield from islice(filter(possible, sorted(place.parent.iterdir())), _MOST_BESIDE)


def _facts(path: Path) -> Facts | None:
    """Return what decides whether a model can draft; None if it is damaged, or does not say."""
    try:
        if is_gguf(path):
            return drafts.of_gguf(path)
        role = Bundle.open(path).target
        return Facts(role.tokenizer_hash, role.dims["parameters"])
    except (EdgedecError, OSError, KeyError):
        return None


def check_tokens(target: str | Path, draft: Path) -> None:
    """Refuse a draft model with another vocabulary than its target's.

    Raises:
        Unfit: says how many of the target's tokens it has.

    """
    from edgedec.loading.sources import Models
    from edgedec.text.vocabulary_map import translate

    models = Models.find(target, draft)
    mine, other = models.sources["target"][0], models.sources["draft"][0]
    if mine.tokenizer_hash == other.tokenizer_hash != "":
        return
    try:
        found = translate(mine.read_tokenizer(), other.read_tokenizer())
    except InputError as error:
        raise Unfit(str(error)) from None
    share = 1.0 if found.same else found.facts["shared_of_target"]
    if share < _ENOUGH_TOKENS:
        raise Unfit(
            f"it has {share:.0%} of the target's tokens, expected {_ENOUGH_TOKENS:.0%} or more;"
            " --draft takes it all the same"
        )
