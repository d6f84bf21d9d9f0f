"""What Ray raises when a cluster cannot be used is one line."""

import pytest

from edgedec.cluster import connect
from edgedec.errors import InputError, RuntimeUnavailable


@pytest.mark.parametrize("address", ["nowhere", "ray://10.0.0.1:10001", "10.0.0.1:", ":6379"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT"), connect.connected(address):
        pass


@pytest.mark.ray
@pytest.mark.parametrize("which", ["ray_version", "python_version"])
def test_another_version_of_ray_or_python(which: str) -> None:
    """As Ray itself compares this process with a cluster."""
    import ray
    from ray._private import utils

    own = dict(zip(("ray_version", "python_version"), utils.compute_version_info(), strict=True))
    utils.check_version_info(own, "here")  # the control: nothing is raised
    with pytest.raises(RuntimeError) as raised:
        utils.check_version_info({**own, which: "1.2.3"}, "here")
    line = connect._said("10.0.0.1:6379", raised.value)
    assert line.startswith("the cluster at 10.0.0.1:6379 has another version of Ray or Python")
    assert "1.2.3" in line
    assert ray.__version__ in line
    assert "\n" not in line


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeUnavailable, match="--ray needs ray"), connect.connected("auto"):
        pass
