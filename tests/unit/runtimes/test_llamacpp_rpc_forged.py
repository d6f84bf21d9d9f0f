"""RPC servers that are not what they say: each is one error, soon, and the process goes on."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from killing import child
from rpc_servers import SAME, CountingRelay, rpc_servers, texts
from waiting import LIMIT_S

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import link, remote
from edgedec.runtimes.llamacpp.model import LlamaModel

pytestmark = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")
FORGED = {
    "rubbish": lambda answer: os.urandom(max(8, len(answer))),
    "a huge size": lambda answer: struct.pack("<Q", 1 << 60) + answer[8:],
    "no bytes": lambda answer: struct.pack("<Q", 0),
    "an end": lambda answer: None,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "t.gguf", weights="Q4_0", layers=4)


@pytest.fixture
def forger() -> Iterator[CountingRelay]:
    with rpc_servers(1) as (server,):
        standing = CountingRelay(server)
        yield standing
        standing.close()


def load(file: Path, forger: CountingRelay) -> LlamaModel:
    return LlamaModel.load(file, LoadOptions(**SAME, rpc=forger.name))


@pytest.mark.parametrize("kind", [*FORGED, "nothing"])
def test_one_that_lies_in_a_pass_or_never_answers(
    file: Path, forger: CountingRelay, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(file, forger)
    expected = texts(model)[0]  # the control: it passes on what the server says
    forger.forge = FORGED.get(kind, lambda answer: b"")
    late = kind == "nothing"
    with monkeypatch.context() as patch:
        patch.setattr(link, "_DOUBT_S", 0.5)
        if late:
            patch.setattr(link, "_PASS_S", 0.5)
        words = f"{forger.name} has brought no answer for too long" if late else forger.name
        with pytest.raises(PassFailed, match=words):
            texts(model)
        model.close()
    forger.forge = lambda answer: answer
    assert texts(load(file, forger))[0] == expected


@pytest.mark.parametrize("kind", ["rubbish", "an end"])
def test_one_that_lies_from_the_start(file: Path, forger: CountingRelay, kind: str) -> None:
    forger.forge = FORGED[kind]
    with pytest.raises(RuntimeUnavailable, match="but cannot be used"):
        load(file, forger)


LOADS = """
import sys
from pathlib import Path
from edgedec.errors import EdgedecError
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import link
from edgedec.runtimes.llamacpp.model import LlamaModel

link._DOUBT_S = 0.5
try:
    session = LlamaModel.load(Path(sys.argv[1]), LoadOptions(threads=1, rpc=sys.argv[2])).open(64)
    session.prefill([5, 6, 7])
    print("computed")
except EdgedecError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("answers", [4, 8, 1 << 30])
def test_one_that_ends_while_a_model_is_loaded(
    file: Path, forger: CountingRelay, answers: int
) -> None:
    """In a process of its own: llama.cpp may connect to no other server afterwards."""
    left = iter(range(answers))
    forger.forge = lambda answer: None if next(left, None) is None else answer
    process = child(LOADS, file, forger.name)
    said = process.communicate(timeout=LIMIT_S)[0].decode().splitlines()
    assert process.returncode == 0
    assert len(said) == 1
    assert said == ["computed"] if answers > 100 else forger.name in said[0]
