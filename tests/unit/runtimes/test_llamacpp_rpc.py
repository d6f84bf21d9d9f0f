"""A target spread over llama.cpp's RPC servers, each in a process of its own on loopback."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rpc_servers import PROMPT, SAME, CountingRelay, RpcServer, free_port, names, rpc_servers, texts
from waiting import Apart, until

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import Device
from edgedec.records.load import LoadOptions
from edgedec.records.place import REMOTE, Place
from edgedec.runtimes import registry
from edgedec.runtimes.llamacpp import (
    _check_child,
    backends,
    link,
    model,
    remote,
    rows,
    rpc_server,
)
from edgedec.runtimes.llamacpp.connections import connections as every_connection
from edgedec.runtimes.llamacpp.endpoints import Endpoint
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.opening import servers_of

pytestmark = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "t.gguf", weights="Q4_0", layers=4)


@pytest.fixture
def servers() -> Iterator[list[RpcServer]]:
    with rpc_servers(2) as running:
        yield running


def short(model: LlamaModel, seed: int) -> np.ndarray:
    """Logits of a short text, in a session of its own."""
    words = [int(word) for word in np.random.default_rng(seed).integers(5, 95, 36)]
    rows = []
    with closing(model.open(64)) as session:
        session.prefill(words[:3])
        for begin in range(3, len(words), 3):
            passed = session.forward(TokenTree.chain(words[begin : begin + 3]), want=Want.LOGITS)
            rows.append(np.array(passed.logits))
            session.commit([0, 1])
    return np.stack(rows)


def as_alone(model: LlamaModel, alone: list[np.ndarray], times: int) -> bool:
    """Whether two texts at once, so many times, have the logits that each has alone."""
    for _ in range(times):
        both = [Apart(partial(short, model, seed)) for seed in range(2)]
        for one in both:
            until(lambda one=one: one.value is not None or one.error is not None)
        if any(one.error is not None for one in both):
            return False  # a server may stop at a graph whose buffers are freed
        if not all(np.allclose(one.value, row) for one, row in zip(both, alone, strict=True)):
            return False
    return True


def test_texts_at_once_on_the_same_servers(
    file: Path, servers: list[RpcServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server keeps one graph, and computes it again when it is asked to."""
    there = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    alone = [short(there, seed) for seed in range(2)]
    assert as_alone(there, alone, 15)
    # The control: contexts that leave an unchanged graph to the server.
    there.close()
    monkeypatch.setattr(link.Link, "whole_graphs", lambda link: nullcontext())
    there = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    assert not as_alone(there, alone, 100)


def test_devices_with_their_memory(servers: list[RpcServer]) -> None:
    found = registry.remote_devices(names(servers))
    assert [device.name for device in found] == [f"{REMOTE}{server.name}" for server in servers]
    for device in found:
        assert isinstance(device, Device)
        assert device.kind == "gpu"
        assert device.memory_total
        assert 0 < (device.memory_free or 0) <= device.memory_total


def test_a_place_names_its_servers() -> None:
    load = LoadOptions(rpc="127.0.0.1:7,127.0.0.1:8", threads=2)
    place = Place.of("gguf", load)
    assert place.device == f"{REMOTE}127.0.0.1:7,127.0.0.1:8"
    assert servers_of(place.load_options()) == "127.0.0.1:7,127.0.0.1:8" == servers_of(load)
    assert not servers_of(LoadOptions(device="Vulkan0"))
    assert place.apart_from(Place("gguf", threads=1))


def test_every_server_is_connected_to(file: Path, servers: list[RpcServer]) -> None:
    """A server serves one client: while a model is open, both refuse another."""
    model = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    session = model.open(64)
    session.prefill(PROMPT)
    for server in servers:
        assert connections(server) == 1
    session.close()
    model.close()
    del session, model
    until(lambda: not any(connections(server) for server in servers))


def connections(server: RpcServer) -> int:
    """How many connections to a server this process has."""
    return [there for there, _ in every_connection()].count(("127.0.0.1", server.port))


# -- servers that cannot be used ----------------------------------------------------------------


def test_nobody_there(file: Path) -> None:
    port = free_port()
    with pytest.raises(RuntimeUnavailable, match=f"127.0.0.1:{port}: no server answers"):
        LlamaModel.load(file, LoadOptions(rpc=f"127.0.0.1:{port}"))


def test_something_else_is_there(file: Path) -> None:
    """A listener that ends every connection, as a server of another kind may."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    other.accept()[0].close()

        thread = Apart(hang_up)
        with pytest.raises(RuntimeUnavailable, match=r"accepts connections but cannot be used"):
            LlamaModel.load(file, LoadOptions(rpc=f"127.0.0.1:{port}"))
        other.shutdown(socket.SHUT_RDWR)
    thread.result()


def test_a_server_with_another_client(
    servers: list[RpcServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes one at a time; this one never says a word."""
    monkeypatch.setattr(remote, "_PATIENCE_S", 3.0)
    with socket.create_connection(("127.0.0.1", servers[0].port)):
        with pytest.raises(RuntimeUnavailable, match="may serve another client"):
            registry.remote_devices(servers[0].name)
        assert registry.remote_devices(servers[1].name)
    assert registry.remote_devices(servers[0].name)


def test_a_model_that_is_open_does_not_keep_its_process_out(
    file: Path, servers: list[RpcServer]
) -> None:
    first = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    second = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    assert registry.remote_devices(names(servers))
    assert texts(first)[0] == texts(second)[0]


# -- words --------------------------------------------------------------------------------------


def test_a_warning_once_unless_it_is_loopback(caplog: pytest.LogCaptureFixture) -> None:
    remote._warned.clear()
    far = Endpoint("192.168.1.7:50052", "192.168.1.7", 50052)
    with caplog.at_level(logging.WARNING, "edgedec"):
        remote._warn([Endpoint("127.0.0.1:1", "127.0.0.1", 1)])
        assert not caplog.records
        remote._warn([far])
        remote._warn([far])
    (line,) = caplog.messages
    assert "no authentication and no encryption" in line
    assert "192.168.1.7:50052" in line


def test_layers_that_do_not_fit_stay(caplog: pytest.LogCaptureFixture) -> None:
    server = Endpoint("127.0.0.1:1", "127.0.0.1", 1)
    found = [remote.Found(server, 0, 50, 100), remote.Found(server, 1, 50, 100)]
    assert remote.layers_that_fit(found, 90, 33) is None
    with caplog.at_level(logging.WARNING, "edgedec"):
        assert remote.layers_that_fit(found, 180, 32) == 16
    assert "16 of its 32 layers" in caplog.text


def test_without_rpc_in_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "client", lambda: None)
    with pytest.raises(RuntimeUnavailable, match=r"-DGGML_RPC=on"):
        remote.find("127.0.0.1:50052")


def test_unknown_files_are_bounded_as_in_other_builds() -> None:
    """With RPC, llama.cpp says that it offloads; the control is what it says."""
    import llama_cpp

    cards = [one for one in backends.find_backends() if one.takes_layers]
    assert _check_child.has_card(llama_cpp) is bool(cards)
    assert llama_cpp.llama_supports_gpu_offload()


@pytest.mark.parametrize("met", [True, False])
def test_no_width_costs_more_the_first_time(
    file: Path, monkeypatch: pytest.MonkeyPatch, met: bool
) -> None:
    """Round trips of a width's first pass and of its second; the control is without the passes."""
    if not met:
        monkeypatch.setattr(model, "meet_widths", lambda context: None)
    with rpc_servers(1) as (server,), closing(CountingRelay(server)) as relay:
        loaded = LlamaModel.load(file, LoadOptions(threads=1, rpc=relay.name))
        session = loaded.open(128)
        session.prefill(PROMPT)
        for width in (1, 5, 17):
            turns = []
            for _ in range(2):
                before = relay.turns
                session.forward(TokenTree.chain(PROMPT[:width])).first()
                turns.append(relay.turns - before)
                session.commit([0])
            assert (turns[0] == turns[1]) is met or width == 1, (width, turns)
        session.close()
        loaded.close()


def test_rows_that_are_independent_in_few_widths_only(
    file: Path, servers: list[RpcServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp ends the process where a pass has more rows of logits than its context."""
    way = rows.Way(repack=False, paired=True, most_rows=3)
    monkeypatch.setattr(rows, "find", lambda *_: way)
    options = LoadOptions(**SAME, rpc=names(servers), batch_invariant=True)
    opened = LlamaModel.load(file, options)
    assert len(texts(opened, 2)[0]) == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "8.8.8.8"])
def test_a_server_does_not_listen_for_strangers(
    host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listened: list[str] = []
    monkeypatch.setattr(rpc_server, "serve", lambda host, *_: listened.append(host))
    assert rpc_server.main(["--host", host]) == 2
    assert "is not a private address" in capsys.readouterr().err
    assert not listened
    rpc_server.main(["--host", host, "--rpc-trust"])
    rpc_server.main(["--host", "192.168.1.7"])
    assert listened == [host, "192.168.1.7"]
    assert "without a password" in capsys.readouterr().err
