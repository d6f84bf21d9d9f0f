"""The layout of a tensor that `benchmarks.models.grow` widens: old values' places and filling."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.models.tensors import Floats, TensorFolder
from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import CANONICAL

Index = npt.NDArray[np.int64]
_CHUNK_VALUES = 4 << 20  # values computed at a time: 16 MB of float32


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one matrix: places of its rows and columns, and the filling."""

    rows: Index
    columns: Index
    random_rows: bool
    random_columns: bool
    factor: float = 1.0  # of the old values


class Widening:
    """Makes each grown tensor a few rows at a time."""

    def __init__(
        self, small: DecoderSpec, large: DecoderSpec, tensors: TensorFolder, seed: int
    ) -> None:
        self._small, self._large, self._tensors, self._seed = small, large, tensors, seed
        self._places = {
            "hidden": np.arange(small.hidden),
            "ffn": np.arange(small.ffn),
            "kv": np.arange(small.kv_size),
            "q": query_places(small, large, small.head_dim),
            "vocab": np.arange(small.vocab_size),
        }
        self._by_name = self._index()

    def _index(self) -> dict[str, tuple[str, int, bool]]:
        """Return by grown tensor: its role, the source's layer, and whether it is new."""
        index = {self._large.name(role): (role, 0, False) for role in ("final_norm", "embed")}
        if not self._large.tied:
            index[self._large.name("head")] = ("head", 0, False)
        old_layers = {
            new: old for old, new in enumerate(layer_places(self._small.layers, self._large.layers))
        }
        roles = [role for role, name in CANONICAL.items() if "{layer}" in name]
        for layer in range(self._large.layers):
            old = old_layers.get(layer, layer % self._small.layers)
            for role in roles:
                index[self._large.name(role, layer)] = (role, old, layer not in old_layers)
        return index

    def chunks(self, name: str) -> Iterator[Floats]:
        """Yield the rows of a grown tensor, in order."""
        role, layer, is_new = self._by_name[name]
        source = self._tensors.read(self._small.name(role, layer))
        rng = np.random.default_rng((self._seed, zlib.crc32(name.encode())))
        shape = self._large.tensors()[name]
        if len(shape) == 1:
            yield self._norm(role, source, rng)
            return
        plan = self._plan(role)
        if is_new:
            plan = dataclasses.replace(plan, rows=np.arange(0))
        yield from fill(source, plan, shape, rng)

    def _norm(self, role: str, source: Floats, rng: np.random.Generator) -> Floats:
        """Rescale, since the mean square over more channels is smaller."""
        if role in ("q_norm", "k_norm"):  # over a head, whose size does not change
            return source
        grown = rng.choice(source, self._large.hidden)
        grown[: source.size] = source
        ratio = np.sqrt(np.float64(self._small.hidden) / self._large.hidden)
        scaled: Floats = (grown.astype(np.float64) * ratio).astype(np.float32)
        return scaled

    def _plan(self, role: str) -> Plan:
        place = self._places
        if role == "o":
            return Plan(place["hidden"], place["q"], False, False)
        if role == "down":
            return Plan(place["hidden"], place["ffn"], False, False)
        if role == "embed":  # its columns are the residual stream, and new ones stay zero there
            return Plan(place["vocab"], place["hidden"], True, False)
        out = {"q": "q", "k": "kv", "v": "kv", "gate": "ffn", "up": "ffn", "head": "vocab"}[role]
        return Plan(place[out], place["hidden"], True, True)


class Grown:
    """Makes each grown tensor of a checkpoint as it is stored, a few rows at a time.

    Args:
        tensors: the source's.
        planned: what is to become of a stored tensor, and whether in a new layer: a matrix's plan
            and shape, or a vector.
        seed: of the random values.

    """

    def __init__(
        self,
        tensors: TensorFolder,
        planned: Callable[[str, bool], tuple[Plan, tuple[int, ...]] | Floats],
        seed: int,
    ) -> None:
        self._tensors, self._planned, self._seed = tensors, planned, seed
        # The stored tensor behind each, and whether it is of a new layer.
        self._origin: dict[str, tuple[str, bool]] = {}

    def headers(
        self, places: Sequence[int], like: Sequence[int]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return types and shapes of all grown tensors.

        Args:
            places: those of the source's layers.
            like: for each grown layer, the source's whose sizes it has.

        """
        names = self._tensors.names()
        for name in names:
            if not name.startswith("model.layers."):
                self._origin[name] = (name, False)
        for layer, old in enumerate(like):
            at = f"model.layers.{old}."
            for name in names:
                if name.startswith(at):
                    new = name.replace(at, f"model.layers.{layer}.")
                    self._origin[new] = (name, layer not in places)
        return {name: self._header(name) for name in self._origin}

    def _header(self, name: str) -> tuple[str, tuple[int, ...]]:
        planned = self._planned(*self._origin[name])
        return ("float16", planned[1]) if isinstance(planned, tuple) else ("float32", planned.shape)

    def chunks(self, name: str) -> Iterator[Floats]:
        """Yield the rows of a grown tensor, in order."""
        stored, new = self._origin[name]
        planned = self._planned(stored, new)
        if not isinstance(planned, tuple):
            yield planned
            return
        plan, shape = planned
        source = self._tensors.read(stored)
        rng = np.random.default_rng((self._seed, zlib.crc32(name.encode())))
        if new:
            plan = dataclasses.replace(plan, rows=np.arange(0))
        yield from fill(source.reshape(len(source), -1), plan, (shape[0], shape[-1]), rng)


def layer_places(small: int, large: int) -> list[int]:
    """Return which of a grown model's layers compute; the last one is always among them."""
    return [(i + 1) * large // small - 1 for i in range(small)]


def query_places(small: DecoderSpec, large: DecoderSpec, size: int) -> Index:
    """Return each old query channel's place; heads have ``size`` and keep their key head."""
    group, wider = small.heads // small.kv_heads, large.heads // large.kv_heads
    head = np.arange(small.heads)
    place = head // group * wider + head % group
    return (place[:, None] * size + np.arange(size)).reshape(-1)


def fill(
    source: Floats, plan: Plan, shape: Sequence[int], rng: np.random.Generator
) -> Iterator[Floats]:
    """Return rows of the grown matrix: the source's values in place, random or zero elsewhere."""
    spread = np.float32(source.std())
    old_row = np.full(shape[0], -1)
    old_row[plan.rows] = np.arange(plan.rows.size)
    step = max(1, _CHUNK_VALUES // shape[1])
    for start in range(0, shape[0], step):
        old = old_row[start : start + step]
        block = np.zeros((old.size, shape[1]), np.float32)
        if plan.random_columns:
            rng.standard_normal(dtype=np.float32, out=block)
            block *= spread
        elif plan.random_rows:
            values = rng.standard_normal((old.size, plan.columns.size), dtype=np.float32)
            block[:, plan.columns] = values * spread
        kept = np.flatnonzero(old >= 0)
        block[np.ix_(kept, plan.columns)] = source[old[kept]] * np.float32(plan.factor)
        yield block
