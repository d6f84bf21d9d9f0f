"""Turns logits into the distribution a token is drawn from, row by row, on demand.

``params`` are the user's options, ``state`` is what one request's sampling depends on, ``filters``
shape a row, ``rows`` holds the lazy rows of one pass.
"""

from edgedec.decoding.params import SamplingParams
from edgedec.decoding.sampling.rows import Rows, Sampler

__all__ = ["Rows", "Sampler", "SamplingParams"]
