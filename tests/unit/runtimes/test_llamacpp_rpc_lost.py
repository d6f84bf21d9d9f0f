"""A server that vanishes in a pass: one error, and process, other models and a later one go on."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from killing import child
from rpc_servers import PROMPT, SAME, RpcServer, names, rpc_servers, texts
from waiting import LIMIT_S, until

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import link, remote
from edgedec.runtimes.llamacpp.model import LlamaModel

pytestmark = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "t.gguf", weights="Q4_0", layers=4)


@pytest.fixture
def servers() -> Iterator[list[RpcServer]]:
    with rpc_servers(2) as running:
        yield running


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_server_is_one_error(file: Path, servers: list[RpcServer], which: int) -> None:
    here = LlamaModel.load(file, LoadOptions(**SAME))
    there = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    expected = texts(here)[0]
    session = there.open(128)
    session.prefill(PROMPT)
    servers[which].kill()
    with pytest.raises(PassFailed) as caught:
        session.forward(TokenTree.chain([9]), want=Want.LOGITS)
    assert servers[which].name in str(caught.value)
    assert servers[1 - which].name not in str(caught.value)
    with pytest.raises(PassFailed):  # at once, and every time
        session.forward(TokenTree.chain([9]), want=Want.LOGITS)
    session.close()
    there.close()
    assert texts(here)[0] == expected  # a local model is not concerned
    with pytest.raises(RuntimeUnavailable, match=f"{servers[which].name}: no server answers"):
        LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    servers[which].start()
    again = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    assert texts(again)[0] == expected


def test_a_model_on_another_server_is_not_concerned(file: Path, servers: list[RpcServer]) -> None:
    one, other = (LlamaModel.load(file, LoadOptions(**SAME, rpc=each.name)) for each in servers)
    expected = texts(other)[0]
    assert texts(one)[0] == expected
    servers[0].kill()
    with pytest.raises(PassFailed, match=servers[0].name):
        texts(one)
    assert texts(other)[0] == expected


def test_a_late_message_of_a_lost_model_does_not_concern_another(
    file: Path, servers: list[RpcServer]
) -> None:
    """Each of a lost model's connections may end in a message of its own."""
    lost = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    servers[0].kill()
    with pytest.raises(PassFailed):
        texts(lost)
    servers[0].start()
    other = LlamaModel.load(file, LoadOptions(**SAME, rpc=names(servers)))
    assert link._gone() == {}
    assert texts(other)[0]
    servers[1].kill()  # the control
    (gone,) = link._gone().values()
    assert [one.name for one in gone] == [servers[1].name]


def test_a_late_message_of_a_freed_model_does_not_concern_one_being_loaded(
    file: Path, servers: list[RpcServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freeing asks the server, whose end is noticed then, while the other waits for an answer."""
    told = threading.Event()
    asleep = link._sleep_for_good
    monkeypatch.setattr(link, "_sleep_for_good", lambda: (told.set(), asleep()))
    freed = LlamaModel.load(file, LoadOptions(**SAME, rpc=servers[0].name))
    servers[0].kill()
    loading = link.Link(remote.endpoints(servers[1].name))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(loading, told.wait, LIMIT_S)
        until(lambda: loading.waiting)
        del freed
        gc.collect()
        assert answer.result()
    monkeypatch.setattr(link, "_DOUBT_S", 0.1)  # the control: one that has no answer
    with ThreadPoolExecutor(1) as pool:
        never = pool.submit(loading, threading.Event().wait, LIMIT_S)
        until(lambda: loading.waiting)
        loading.doubt()
        with pytest.raises(PassFailed, match=servers[1].name):
            never.result()


def test_a_connection_that_never_comes_about_is_one_line_for_the_next_model(
    file: Path, servers: list[RpcServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_PATIENCE_S", 5.0)
    at_servers = LoadOptions(**SAME, rpc=names(servers))
    with remote._connecting, pytest.raises(RuntimeUnavailable, match="start edgedec again"):
        LlamaModel.load(file, at_servers)
    assert texts(LlamaModel.load(file, at_servers))[0]  # the control


_DIES = """
import sys
from pathlib import Path
from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import PassFailed
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import link
from edgedec.runtimes.llamacpp.model import LlamaModel

if sys.argv[3] == "uncaught":
    link._caught = True
model = LlamaModel.load(Path(sys.argv[1]), LoadOptions(threads=1, rpc=sys.argv[2]))
session = model.open(64)
session.prefill([5, 6, 7])
print("open", flush=True)
sys.stdin.readline()
try:
    session.forward(TokenTree.chain([9]), want=Want.LOGITS)
except PassFailed as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("caught", [True, False])
def test_the_process_ends_cleanly(file: Path, caught: bool) -> None:
    """Also with threads that sleep for good; the control is llama.cpp as it is, which aborts."""
    with rpc_servers(1) as (server,):
        process = child(_DIES, file, server.name, "caught" if caught else "uncaught")
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"open\n"
        server.kill()
        told, _ = process.communicate(b"\n", timeout=LIMIT_S)
    if caught:
        assert process.returncode == 0
        assert b"was lost in a pass" in told
    else:
        assert process.returncode == -signal.SIGABRT
        assert b"was lost in a pass" not in told


_FREES = """
import os
import sys
import time

from edgedec.runtimes.llamacpp import link

link._FREEING_S = float(sys.argv[1])
one = link.Link(())
lost = link.Link(())
lost.post(time.sleep, 3600)
link._left_behind.add(lost._worker)
one.post(time.sleep, 0.5)
one.post(os.write, 1, b"freed")
"""


@pytest.mark.parametrize("limit_s", [60, 0])
def test_the_process_ends_when_all_is_freed(limit_s: int) -> None:
    """What logs while Python ends would abort it. The control waits for nothing."""
    process = child(_FREES, limit_s)
    told, _ = process.communicate(timeout=LIMIT_S)
    assert told == (b"freed" if limit_s else b"")
    assert process.returncode == 0
