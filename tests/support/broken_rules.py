"""Acceptance rules that are broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from edgedec.decoding.acceptance import GumbelCoupling, Residual, Verdict


def accepts_one_more(patch: pytest.MonkeyPatch) -> None:
    """Accept a child of the last accepted node, whatever the target says."""
    honest = GumbelCoupling.accept

    def accept(self: Any, draft: Any, rows: Any, streams: Any) -> Verdict:
        verdict = honest(self, draft, rows, streams)
        children = draft.tree.children(verdict.path[-1])
        if not children or len(draft.tree) % 2:
            return verdict
        path = [*verdict.path, children[0]]
        return Verdict(path, rows.draw(path[-1]))

    patch.setattr(GumbelCoupling, "accept", accept)


class SiblingsStay(Residual):
    """Leaves the tokens of rejected siblings in q."""

    def reject(self, token: int) -> None:
        q = self._q
        super().reject(token)
        self._q, self._q_mass = q, 1.0
