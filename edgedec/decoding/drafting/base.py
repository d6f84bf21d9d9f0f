"""The drafter's protocol, its facts, and the feedback it gets after each round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, runtime_checkable

from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import HeadModel, HeadSession, Pass, Session
from edgedec.decoding.translation import Translation
from edgedec.decoding.tree import Draft, FloatArray, TokenTree

if TYPE_CHECKING:
    from edgedec.decoding.drafting._earlier import EarlierTexts


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """Size limits of a draft in one round.

    Attributes:
        nodes: most drafted tokens, without the root; 0 means not to draft.
        depth: longest path below the root.

    """

    nodes: int
    depth: int


class Offer(NamedTuple):
    """A drafter's offer: its name, and a look at the token it would draft next.

    Calling one of its functions costs time, so the policy decides whether to. A drafter that
    branches looks at the next node; each drafter keeps track of its own position in the draft.

    Attributes:
        source: the drafter's name.
        confidence: the largest probability of the distribution the next token would be drawn from,
            among the pass's ``top_k`` tokens. With a draft model, calling it runs the model's next
            pass. Drafters without a model give an estimate.
        token: the token that would be drafted, if it is known before it is drawn: a policy that
            declines it can still learn whether it would have been right. None if draft and target
            do not share their noise.
        costly: whether ``confidence`` and ``token`` run a draft model.
        rivals: the drafters that are tried next, in order, if this one drafts nothing.
        at_once: the pass of the first look serves all tokens of the draft.

    """

    source: str
    confidence: Callable[[], float]
    token: Callable[[], int] | None = None
    costly: bool = False
    rivals: Sequence[str] = ()
    at_once: bool = False


class DraftStep(NamedTuple):
    """State of a draft, from which the policy decides whether to go on.

    Attributes:
        offer: the drafter's, for its next token.
        nodes: tokens drafted so far, on all branches.
        depth: tokens drafted on the current path so far.
        value: in a branching draft, the estimated probability that the target reaches the next
            node's parent and takes none of its earlier children; times the confidence, that it
            accepts the node. None in a chain, where it is the product of the earlier confidences.
        behind: tokens that the drafter must prefill before it can draft; 0 if they fit in its next
            pass. Otherwise the policy decides whether to prefill, and may not call the offer's
            functions. A long context is prefilled over several rounds, which draft nothing.
        reads: how many of them this round prefills.

    """

    offer: Offer
    nodes: int = 0
    depth: int = 0
    value: float | None = None
    behind: int = 0
    reads: int = 0


GoOn = Callable[[DraftStep], bool]


@dataclass(slots=True)
class RoundFeedback:
    """Outcome of a draft.

    Attributes:
        draft: as proposed.
        verdict: what the rule accepted.
        scored: the target's pass over the whole tree; valid during the call only.
        kept: the emitted tokens: those accepted and the next one, as far as the stop rule kept
            them.

    """

    draft: Draft
    verdict: Verdict
    scored: Pass
    kept: Sequence[int]


class Drafter(Protocol):
    """Proposes tokens that the target may choose next. It may be wrong but must be quick."""

    name: str

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        """Begin a request with this prompt; its last token is the first root.

        Drafts are drawn through ``sampler``, so that the draft's rows go through the same
        temperature, penalties and noise as the target's.
        """
        ...

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        """Return a tree rooted at ``root``; only the root if no draft is wanted or found."""
        ...

    def observe(self, feedback: RoundFeedback) -> None:
        """Learn from the round that just ended."""
        ...

    def close(self) -> None:
        """Release sessions and memory."""
        ...


class DraftToken(NamedTuple):
    """The next token of a draft, as a ``TokenDrafter`` yields it.

    Attributes:
        confidence: as ``Offer.confidence``.
        parent: its parent in the tree; None is the last node, so that a chain need not say it.
        value: as ``DraftStep.value``; None in a chain.

    """

    token: int
    confidence: float
    parent: int | None = None
    value: float | None = None


_NO_TOKEN = DraftToken(-1, 0.0)


class TokenDrafter(ABC):
    """A drafter as a generator of tokens: implements ``Drafter`` on top of ``tokens``.

    Attributes:
        costly: each token costs a pass of a draft model, so the policy is asked before it is
            computed; otherwise it is asked when there is one.
        at_once: as ``Offer.at_once``.
        rivals: as ``Offer.rivals``.

    """

    name: str
    costly = at_once = False

    def __init__(self, rivals: Sequence[str] = ()) -> None:
        self.rivals = rivals
        self._sampler: Sampler | None = None

    @abstractmethod
    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        """Yield the draft's next token; resumed once ``draft.tree`` has it.

        ``limits`` are what ``ready`` returned. A drafter that draws tokens from a distribution
        which the acceptance rule must know adds it to ``draft.q`` before it yields.
        """

    def ready(self, limits: DraftLimits, go_on: GoOn) -> DraftLimits:
        """Prepare a draft; return the limits within which it can be made."""
        return replace(limits, nodes=min(limits.nodes, limits.depth))

    def shows(self, streams: Streams) -> bool:
        """Return whether the policy may see a token before it decides; see ``Offer.token``."""
        return True

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree = TokenTree(root)
        draft = Draft(tree, {}, self.name)
        if min(limits.nodes, limits.depth) > 0:
            limits = self.ready(limits, go_on)
        if min(limits.nodes, limits.depth) <= 0:
            return draft
        tokens, costly = self.tokens(draft, limits, streams), self.costly
        seen: DraftToken | None = None

        def peek() -> DraftToken:
            nonlocal seen
            seen = seen or next(tokens, _NO_TOKEN)
            return seen

        token = (lambda: peek().token) if self.shows(streams) else None
        offer = Offer(
            self.name, lambda: peek().confidence, token, costly, self.rivals, self.at_once
        )
        while len(tree) <= limits.nodes:
            nodes = parent = len(tree) - 1
            seen, value = None, None
            if not costly:
                if peek() is _NO_TOKEN:
                    break
                _, _, above, value = peek()
                parent = nodes if above is None else above
            step = DraftStep(offer, nodes, tree.depths[parent], value)
            if not go_on(step) or peek() is _NO_TOKEN:
                break
            tree.add(peek().token, parent)
        return draft

    def observe(self, feedback: RoundFeedback) -> None:  # noqa: B027 - the history has the text
        """Learn nothing."""

    def close(self) -> None:  # noqa: B027 - few have anything to release
        """Release nothing."""

    @property
    def sampler(self) -> Sampler:
        """The request's sampler, whose ``history`` is the text."""
        assert self._sampler is not None, "propose() before begin()"
        return self._sampler


class DrafterState(Protocol):
    """State that a drafter keeps from one request to the next, and that can be saved.

    Attributes:
        empty: whether there is nothing to save.

    """

    @property
    def empty(self) -> bool: ...

    def save(self, file: BinaryIO) -> None:
        """Write the state; StateError if the draft model's sessions cannot be saved."""
        ...

    def load(self, file: BinaryIO, text: Sequence[int]) -> None:
        """Load a state saved when the target had cached ``text``; SnapshotError if damaged."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """A drafter with state that can be saved."""

    def states(self) -> dict[str, DrafterState]:
        """Return its states by name; drafters that share a state use one name for it."""
        ...


def states_of(drafter: Drafter) -> dict[str, DrafterState]:
    """Return a drafter's states by name; empty if it is not ``Stateful``."""
    return drafter.states() if isinstance(drafter, Stateful) else {}


@runtime_checkable
class ReadsStates(Protocol):
    """A drafter that reads the target's residual streams, ``Capabilities.taps``.

    Attributes:
        reads_states: whether it does; a composite does so if one of its parts does.

    """

    @property
    def reads_states(self) -> bool: ...

    def attach(self, target: Session) -> bool:
        """Follow a target from now on, after ``begin``; it may be rolled back a little.

        Return whether the states of the prompt are to be read, besides those of rounds.
        """
        ...

    def read(self, position: int, states: FloatArray) -> None:
        """Read the states of tokens that the target has committed, each at most once, in order.

        Args:
            position: of the first of them in the text.
            states: ``[tokens, taps * hidden]`` float32, valid during the call only.

        """
        ...


@runtime_checkable
class Meets(Protocol):
    """A drafter that draws on others beside it."""

    def meet(self, arms: Sequence[Drafter]) -> None:
        """Take note of the drafters that are tried in the same rounds, itself included."""
        ...


@runtime_checkable
class Evictable(Protocol):
    """A drafter that can release memory during a request."""

    def evict(self, keep: Collection[str] = ()) -> None:
        """Release the memory of all drafters but those named in ``keep``.

        They can still draft, and then rebuild their state from the sampler's history. What reads
        the target's states keeps none of them until it is named in a later call.
        """
        ...


# Tokens of a long context that a draft model prefills in a round, unless requests take turns.
PREFILL_AT_ONCE = 512
# Draft lengths that plans choose from, unless a drafter has others.
LENGTHS = tuple(range(1, 9))


@dataclass(frozen=True, slots=True)
class Key:
    """A number that a drafter is built with, where it is a stage: ``lookup:n=8``.

    Attributes:
        name: as the user writes it.
        least, most: its limits.

    """

    name: str
    help: str
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """Facts about a drafter that the rest of edgedec reads before building it.

    Attributes:
        branches: it proposes branching trees if the target verifies them.
        needs_branches: it proposes nothing but branching trees.
        needs_head: it drafts with a head, which reads the target's states.
        needs_mask: its draft model must be one that drafts several tokens in a pass.
        by_text: it only takes a draft model with another tokenizer.
        overlaps: its draft model can work while the target verifies; those of its ``parts`` listed
            before the draft model are tried first.
        parts: the drafters that a composite tries, in this order.
        default: ``auto`` stands for it: with a draft model if it needs one, otherwise without.
        planned: plans choose it, and profiles decode with it.
        lengths: fixed draft lengths worth planning, for a drafter of chains.
        context_bytes, vocab_bytes: memory it keeps for each token of the context, and for each
            entry of the vocabulary, in addition to what its parts keep.
        keys: numbers that it takes as a stage, besides ``k``; see ``DrafterParts.keys``.
        learns: it learns from every pass of the target, whichever stage drafted.
        shared_bytes: most memory it keeps for all texts together.

    """

    needs_model: bool = False
    branches: bool = False
    needs_branches: bool = False
    needs_head: bool = False
    needs_mask: bool = False
    by_text: bool = False
    overlaps: bool = False
    parts: tuple[str, ...] = ()
    default: bool = False
    planned: bool = True
    lengths: tuple[int, ...] = LENGTHS
    context_bytes: int = 0
    vocab_bytes: int = 0
    keys: tuple[Key, ...] = ()
    learns: bool = False
    shared_bytes: int = 0

    @property
    def needs_weights(self) -> bool:
        """True if it drafts with a draft model or a head."""
        return self.needs_model or self.needs_head


@dataclass(frozen=True, slots=True)
class DrafterParts:
    """The inputs of building a drafter, which takes what it needs.

    Attributes:
        vocab_size: columns of a logits row of the target.
        draft: an empty session of the draft model, in the draft's vocabulary, for drafters that
            use one; the drafter owns it from then on.
        branches: of the target's ``Capabilities``: 1 means chains only, None any number.
        draft_branches: of the draft's ``Capabilities``.
        rejected: of the target's ``Capabilities``: a policy drafts no more, if it is any.
        translation: between the target's vocabulary and the draft's; None if they are the same.
        head: fuses the target's states, for drafters that use one; ``head_session`` is an empty
            session of it, which the drafter owns from then on.
        mask: the token that a draft model reads for one not known yet; None if it cannot.
        earlier: the texts that were read and written before; None where none are kept.
        rivals: the drafters that are tried next, if this one is part of a composite.
        prefill_at_once: tokens of a long context that the draft model prefills in a round. Until it
            has caught up, rounds decode without a draft: neither the first token nor a cancelled
            request waits for a second model's prefill.
        keys: the numbers of ``DrafterInfo.keys`` that were given, by name.

    """

    vocab_size: int
    draft: Session | None = None
    branches: int | None = None
    translation: Translation | None = None
    draft_branches: int | None = None
    head: HeadModel | None = None
    head_session: HeadSession | None = None
    mask: int | None = None
    earlier: EarlierTexts | None = None
    rivals: Sequence[str] = ()
    rejected: int | None = None
    prefill_at_once: int = PREFILL_AT_ONCE
    keys: Mapping[str, int] = field(default_factory=dict)

    @property
    def by_text(self) -> bool:
        """True if the draft model shares too few of the target's tokens to draft by tokens."""
        return self.translation is not None and self.translation.level == "string"

    @property
    def both_branches(self) -> int | None:
        """Most branches of a tree that the draft computes and the target verifies."""
        limits = [most for most in (self.branches, self.draft_branches) if most is not None]
        return min(limits, default=None)
