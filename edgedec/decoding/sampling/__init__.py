"""Turns logits into the distribution a token is drawn from, row by row, on demand.

``params`` are the user's options, ``penalties`` and ``filters`` shape a row, ``rows`` holds the
lazy rows of one pass, ``sampler`` the state of one request.
"""

from edgedec.decoding.params import SamplingParams
from edgedec.decoding.sampling.rows import Rows
from edgedec.decoding.sampling.sampler import Sampler

__all__ = ["Rows", "Sampler", "SamplingParams"]
