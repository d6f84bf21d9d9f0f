"""llama.cpp's own plain decoding: a loop over its library, and its program ``llama-bench``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from edgedec.errors import InputError, RuntimeUnavailable

# Where ``make peers`` builds it, below the scratch folder.
PROGRAM = Path("env", "llama.cpp", "llama.cpp", "bin", "llama-bench")
_TIMEOUT_S = 600


def tokens_per_second(
    work: Path, model: Path, threads: int, repeats: int = 3, *, read: int = 0
) -> float:
    """Return ``llama-bench``'s speed of prefilling ``read`` tokens, or of decoding 128 plainly."""
    program = work / PROGRAM
    if not program.is_file():
        raise RuntimeUnavailable(
            f"{program} is missing: make peers PEERS_ARGS='--peers llama.cpp --prepare'"
        )
    arguments = f"-p {read} -n {0 if read else 128} -r {repeats} -t {threads} -o json".split()
    done = subprocess.run(
        [str(program), "-m", str(model), *arguments],
        capture_output=True, text=True, timeout=_TIMEOUT_S, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)[0]["avg_ts"])


class Loop:
    """llama.cpp's plain greedy loop: decode one token, sample it, repeat."""

    def __init__(self, path: Path, threads: int, capacity: int = 1024) -> None:
        from edgedec.runtimes.llamacpp.library import api as llama_cpp  # with its log silenced
        from edgedec.runtimes.llamacpp.library import reorders_weights

        self._api: Any = llama_cpp
        options = llama_cpp.llama_model_default_params()
        options.use_extra_bufts = reorders_weights()  # as in our runtime
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(path), options)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = capacity
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_greedy())
        self._sampler = chain

    def run(self, prompt: Sequence[int], count: int) -> tuple[list[int], float]:
        """Return ``count`` tokens after a prompt, and the time of all but the first, in seconds."""
        api = self._api
        api.llama_memory_clear(api.llama_get_memory(self._context), True)
        self._decode(prompt)
        tokens = [api.llama_sampler_sample(self._sampler, self._context, -1)]
        begin = perf_counter()
        while len(tokens) < count:
            self._decode(tokens[-1:])
            tokens.append(api.llama_sampler_sample(self._sampler, self._context, -1))
        return tokens, perf_counter() - begin

    def close(self) -> None:
        """Release everything."""
        self._api.llama_sampler_free(self._sampler)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def _decode(self, tokens: Sequence[int]) -> None:
        api = self._api
        array = (api.llama_token * len(tokens))(*tokens)
        if api.llama_decode(self._context, api.llama_batch_get_one(array, len(tokens))) != 0:
            raise InputError("llama_decode failed")
