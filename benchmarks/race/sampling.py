"""How the runs of a race choose tokens."""

from __future__ import annotations

from dataclasses import dataclass

# Of sampled runs; no other filter is applied. Temperature comes first, then this.
TOP_P = 0.95


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen, and how often each prompt is continued.

    Attributes:
        temperature: 0 is greedy.
        seeds: runs of each prompt by each way, with the seeds 0, 1, ...
        top_p: of sampled runs.

    """

    temperature: float = 0.0
    seeds: int = 1
    top_p: float = TOP_P

    def request(self, seed: int) -> dict[str, float | int]:
        """Return the fields of one run's request and record; ``top_p`` 1 keeps all tokens."""
        top_p = self.top_p if self.temperature > 0 else 1.0
        return {"temperature": self.temperature, "top_p": top_p, "seed": seed}
