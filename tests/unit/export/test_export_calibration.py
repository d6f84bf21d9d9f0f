"""Scales of keys and values in int8 hold wherever in a text a token stands."""

import numpy as np
import pytest
from tiny_models import MemoryTensors, random_tensors, tiny_config

from edgedec.export.calibration import _MARGIN, kv_scales
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for

# Where positions are not learned, a token's key in the first layer differs by rotation only.
KINDS = {
    "whole heads turn": {},
    "part of a head turns": {"model_type": "phi3", "partial_rotary_factor": 0.5},
    "warmer": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "no positions": {"model_type": "smollm3", "no_rope_layer_interval": 1},
}
SEEN = list(range(20, 60))


@pytest.fixture(params=KINDS)
def keys_and_scales(request):
    """Keys ``[positions, kv_heads, head_dim]`` of the seen tokens, elsewhere; their scales."""
    spec = spec_for(tiny_config(num_hidden_layers=1, **KINDS[request.param]))
    tensors = MemoryTensors(random_tensors(spec))
    found = []
    other = np.random.default_rng(2).choice(SEEN, 250).tolist()
    reference = Reference(spec, tensors, lambda layer, keys, values: found.append(keys))
    reference.layer(0, reference.embed(other))
    ((scales, _),) = kv_scales(spec, tensors, SEEN)
    return request.param, found[0], scales


def test_no_position_exceeds_the_scale(keys_and_scales):
    _, keys, scales = keys_and_scales
    assert (np.abs(keys) <= scales * 127 / np.float32(_MARGIN) * (1 + 1e-5)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_scales_of_values_are_their_own(kind):
    """No position turns them: a channel's largest is what its scale holds, with the margin."""
    spec = spec_for(tiny_config(num_hidden_layers=2, **KINDS[kind]))
    tensors, shown = MemoryTensors(random_tensors(spec)), []
    reference = Reference(spec, tensors, lambda layer, keys, values: shown.append(values))
    x = reference.embed(SEEN)
    for layer in range(2):
        x = reference.layer(layer, x)
    found = kv_scales(spec, tensors, SEEN)
    for values, (keys, scales) in zip(shown, found, strict=True):
        largest = np.abs(values).max(axis=0)
        np.testing.assert_allclose(scales * 127 / _MARGIN, largest, rtol=1e-5)
        assert np.abs(keys / scales - 1).max() > 0.1, "the control"


def test_a_channel_on_its_own_would_be_exceeded(keys_and_scales):
    """The control: where channels turn, the largest that the text showed is not enough."""
    kind, keys, _ = keys_and_scales
    spec = spec_for(tiny_config(num_hidden_layers=1, **KINDS[kind]))
    shown = []
    reference = Reference(
        spec, MemoryTensors(random_tensors(spec)), lambda layer, keys, values: shown.append(keys)
    )
    reference.layer(0, reference.embed(SEEN))
    largest = np.abs(shown[0]).max(axis=0)
    exceeded = (np.abs(keys) > largest * (1 + 1e-5)).any(axis=0)
    turning = 0 if spec.ropes[0] is None else spec.rotary_dim
    assert exceeded[:, :turning].any() == bool(turning)
    assert not exceeded[:, turning:].any()
