"""Exports decoders without a spec: traced by optimum-onnx, compared with torch itself.

This is the only installed module that imports torch, and only when called. A checkpoint is a local
folder with safetensors: nothing is downloaded, and no code that comes with it is unpickled or run.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support import installation
from edgedec.errors import (
    CheckpointError,
    EdgedecError,
    ExportError,
    ExtraMissing,
    UnsupportedArchitecture,
)
from edgedec.export.checkpoint import stored_numbers
from edgedec.export.describing import Outline
from edgedec.export.tensors import FloatArray
from edgedec.models.traits import Norm

_TASK = "text-generation-with-past"
# Names of each size in the configurations of different architectures.
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
# Context length of models with position biases, whose configurations may not state one.
_DEFAULT_CONTEXT = 2048


def check_installed() -> None:
    """Raise RuntimeUnavailable if a package for this export is missing."""
    with _quiet("optimum cannot be imported"):
        for name in ("torch", "transformers", "optimum.exporters.onnx"):
            try:
                importlib.import_module(name)
            except ImportError as error:
                missing = error.name or name
                raise ExtraMissing(installation.needs("this export", "optimum", missing)) from None


def architectures() -> list[str]:
    """Return the model types of decoders that optimum exports with a cache."""
    from optimum.exporters.onnx import model_configs  # noqa: F401 - registers them
    from optimum.exporters.tasks import TasksManager

    known = TasksManager._LIBRARY_TO_SUPPORTED_MODEL_TYPES["transformers"]
    return sorted(
        name
        for name, exporters in known.items()
        if _TASK in exporters.get("onnx", {})
        and "text2text-generation-with-past" not in exporters["onnx"]
    )


def outline(folder: Path) -> Outline:
    """Return the sizes in a checkpoint's configuration, under any of their names.

    Raises:
        UnsupportedArchitecture: optimum does not support its ``model_type``.
        CheckpointError: transformers cannot read it.

    """
    config = _config(folder)
    hidden, heads = _size(config, *_HIDDEN), _size(config, *_HEADS)
    layers, vocab_size = _size(config, *_LAYERS), _size(config, "vocab_size")
    head_dim = _size(config, "head_dim", default=max(hidden // heads, 1))
    return Outline(
        architecture=config.model_type,
        hidden=hidden,
        ffn=_size(config, *_FFN, default=4 * hidden),
        layers=layers,
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", "num_kv_heads", default=heads),
        head_dim=head_dim,
        vocab_size=vocab_size,
        vocab_used=vocab_size,
        max_context=_size(config, *_CONTEXT, default=_DEFAULT_CONTEXT),
        norm=Norm(1e-5),
        windows=(0,) * layers,
        ropes=(None,) * layers,
        rotary_dim=head_dim,
        numbers=stored_numbers(folder),
    )


def _config(folder: Path) -> Any:
    check_installed()
    with _quiet(f"{folder} cannot be read by transformers"):
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        known = architectures()
        if config.model_type not in known:
            raise UnsupportedArchitecture(
                f"optimum does not export model_type {config.model_type!r};"
                f" it supports {', '.join(known)}"
            )
    return config


def _size(config: Any, *names: str, default: int | None = None) -> int:
    """Return the first of these fields that the configuration has."""
    for name in names:
        value = getattr(config, name, None)
        if type(value) is int and value > 0:
            return value
    if default is None:
        raise CheckpointError(f"config.json has no {names[0]}")
    return default


class TorchDecoder:
    """A checkpoint as a torch model, float32, on the CPU.

    Args:
        folder: of the checkpoint.

    Raises:
        UnsupportedArchitecture: optimum does not support its ``model_type``.
        CheckpointError: transformers cannot load it.

    """

    def __init__(self, folder: Path) -> None:
        config = _config(folder)
        with _quiet(f"{folder} cannot be loaded by transformers"), _no_bars():
            import torch
            from transformers import AutoModelForCausalLM

            self._torch = torch
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
            self._model = loaded.eval()

    def trace(self, file: Path) -> None:
        """Write the graph as optimum exports it; ExportError if torch cannot trace this model."""
        with _quiet(f"torch cannot trace {self._model.config.model_type}", ExportError):
            from optimum.exporters.onnx.convert import export
            from optimum.exporters.tasks import TasksManager

            constructor: Any = TasksManager.get_exporter_config_constructor(
                "onnx", model=self._model, task=_TASK, library_name="transformers"
            )
            self._model.config.use_cache = True
            export(self._model, constructor(self._model.config, use_past_in_inputs=True), file)

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        """Return the logits of each token's successor, ``[tokens, vocab]``, in one pass."""
        with _quiet("torch cannot run this model", ExportError), self._torch.no_grad():
            ids = self._torch.tensor([list(tokens)])
            rows: FloatArray = self._model(ids, use_cache=False).logits[0].numpy()
        return rows.astype(np.float32, copy=False)


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Disable the progress bars of transformers."""
    import transformers.utils.logging

    bars: Any = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


@contextlib.contextmanager
def _quiet(what: str, kind: type[EdgedecError] = CheckpointError) -> Iterator[None]:
    """Silence these packages in the terminal, and make their errors one line."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except EdgedecError:
        raise
    except Exception as error:  # a model's own code may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise kind(f"{what}: {lines[0]}") from error
    finally:
        logging.disable(disabled)
