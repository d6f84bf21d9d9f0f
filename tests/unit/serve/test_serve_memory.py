"""``edgedec serve --memory``: one limit for the texts of all clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_bundles
import tiny_models
import tiny_tokenizers
from serving import serving
from texts_at_once import NEW, prompt, together

from edgedec import Pipeline
from edgedec.export import ExportOptions
from edgedec.models.registry import spec_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc"),
]
# 16 KiB of keys and values a token.
SHAPE = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128}
CONTEXT, CLIENTS, VOCABULARY = 2560, 4, 330


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a large cache."""
    folder = tmp_path_factory.mktemp("heavy")
    config = tiny_models.tiny_config(vocab_size=342, max_position_embeddings=CONTEXT, **SHAPE)
    tensors = tiny_models.random_tensors(spec_for(config))
    tiny_models.save_checkpoint(folder / "target", config, tensors)
    tiny_tokenizers.save(tiny_tokenizers.byte_level(), folder / "target")
    options = ExportOptions(folder / "target", folder / "tiny", weights="fp32", parity=False)
    return tiny_bundles.kept(options)


@pytest.mark.timeout(300)
def test_the_limit_holds_for_all_texts_together(heavy: Path) -> None:
    given = "--threads", "1", "--drafter", "lookup", "--parallel", str(CLIENTS), "--plan", "none"
    with serving(heavy, *given) as server:
        idle = server.figure("edgedec_memory_bytes")
        free, _ = together(server, CLIENTS, 0.95, 0.95, VOCABULARY)
    # The control: without a limit they hold much more.
    limit = int(idle + (free - idle) / 3)
    assert free > 1.2 * limit
    with serving(heavy, *given, "--memory", f"{limit // 10**6}MB") as server:
        room = server.get("/v1/models").json()["data"][0]["edgedec"]["max_context"]
        assert 200 < room < CONTEXT / 2
        # To the last token, although the process itself grows as it serves.
        held, answers = together(server, CLIENTS, 1, 1, VOCABULARY)
        print(
            f"idle {idle / 1e6:.0f}, free {free / 1e6:.0f}, {limit / 1e6:.0f} granted", held / 1e6
        )
        assert held <= 1.03 * limit
        assert server.figure("edgedec_memory_granted_bytes") == limit // 10**6 * 10**6
        # A text that the limit does not hold is refused; the server goes on.
        body = {"model": "tiny", "prompt": prompt(9, room + 1, VOCABULARY), "max_tokens": 4}
        answer = server.post("/v1/completions", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert f"holds {room}" in answer.json()["error"]["message"]
        again, _ = together(server, CLIENTS, 1, 1, VOCABULARY)
        assert again <= 1.03 * limit
    with Pipeline.open(heavy, drafter="none", threads=1) as pipeline:
        for client, answer in enumerate(answers):
            tokens = prompt(client, room - NEW, VOCABULARY)
            wanted = pipeline.generate(tokens, max_new_tokens=NEW).text
            assert answer.json()["choices"][0]["text"] == wanted


def test_a_limit_that_holds_no_context_is_refused(heavy: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"give --memory \d+MB"),
        serving(heavy, "--memory", "40MB", "--plan", "none"),
    ):
        pass
