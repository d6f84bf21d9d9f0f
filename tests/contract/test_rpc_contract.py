"""A model that is spread over two RPC servers passes the contract of every session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from rpc_servers import rpc_servers
from tiny_gguf import write_tiny_gguf

from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import remote
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.testing import SessionContract

pytestmark = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    with rpc_servers(2) as running:
        yield ",".join(server.name for server in running)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


class TestOnServers(SessionContract):
    @pytest.fixture
    def model(self, file: Path, names: str) -> LlamaModel:
        self.tolerance = 1e-4
        return LlamaModel.load(
            file, LoadOptions(threads=1, kv="f32", flash_attention=False, rpc=names)
        )
