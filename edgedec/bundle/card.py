"""Writes a bundle's card: the page, with its head in YAML, that a hub shows beside a model.

All of it comes from the manifest and, if given, a certificate, both read as untrusted input: every
value stands in the head as JSON, which is YAML, and on the page without what Markdown would read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec._support.amounts import size
from edgedec._support.fields import Fields, json_object, one_line
from edgedec._support.files import open_regular
from edgedec.bundle.folder import Bundle, Role
from edgedec.errors import InputError
from edgedec.text.chat_pieces import CHAT_PIECES

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# What a hub takes as a licence's identifier.
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#])")
_MAX_CERTIFICATE_BYTES = 1 << 24
_RUNTIMES = {
    "onnx": "ONNX Runtime, or OpenVINO's kernels, on the processor",
    "onnx-static": "graphs of static shape for accelerators",
    "gguf": "llama.cpp",
    "coreml": "Core ML",
    "onnx-hub": "ONNX Runtime, as others exported it",
    "optimum": "ONNX Runtime, as exported by Optimum",
}


class _Certificate(Fields):
    error = InputError


def card(bundle: Bundle, certificate: Path | None = None) -> str:
    """Return the card of a bundle as Markdown.

    Args:
        bundle: an open bundle.
        certificate: ``certificate.json`` of ``python -m benchmarks certificate`` about it.

    Raises:
        InputError: the certificate cannot be read, or is about other files.

    """
    proof = [] if certificate is None else list(_certified(bundle, certificate))
    parts = [_head(bundle), *_about(bundle), *_models(bundle), *_quality(bundle), *proof, *_use()]
    return "\n".join(parts) + "\n"


def _head(bundle: Bundle) -> str:
    licences = {role.licence for role in _roles(bundle)}
    sources = [role.source for role in _roles(bundle) if _HUB_NAME.fullmatch(role.source)]
    fields: dict[str, Any] = {
        "library_name": "edgedec",
        "pipeline_tag": "text-generation",
        "tags": ["edgedec", "speculative-decoding", *bundle.target.variants],
    }
    (licence,) = licences if len(licences) == 1 else (None,)
    if licence is not None and _LICENCE.fullmatch(licence.lower()):
        fields["license"] = licence.lower()
    elif licences != {None}:
        fields |= {"license": "other", "license_name": "see-below"}
    if sources:
        fields["base_model"] = sources
        fields["base_model_relation"] = "quantized"
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def _roles(bundle: Bundle) -> list[Role]:
    return [*bundle.roles, *([] if bundle.head is None else [bundle.head])]


def _about(bundle: Bundle) -> Iterator[str]:
    names = {role.role: plain(role.source) for role in _roles(bundle)}
    title = names["target"].rpartition("/")[2]
    yield f"# {title} for edgedec"
    yield ""
    drafts = [f"{names[role]} as its {role}" for role in ("draft", "head") if role in names]
    yield f"{names['target']}{' with ' + ' and '.join(drafts) if drafts else ''}, as a bundle of"
    yield f"{size(bundle.size_bytes)} for lossless speculative decoding on the device."
    yield ""


def _models(bundle: Bundle) -> Iterator[str]:
    yield "| | base model | architecture | parameters | licence |"
    yield "|---|---|---|---|---|"
    for role in _roles(bundle):
        count = role.dims.get("parameters")
        parameters = "not stated" if count is None else f"{count:,}"
        licence = plain(role.licence or "not stated")
        yield (
            f"| {role.role} | {plain(role.source)} | {plain(role.architecture)} | {parameters} |"
            f" {licence} |"
        )
    yield ""


def _quality(bundle: Bundle) -> Iterator[str]:
    yield "Against the base model, on text that it did not see during the export:"
    yield ""
    yield "| | runs on | weights | keys, values | size | KL (nats a token) | same best token |"
    yield "|---|---|---|---|---|---|---|"
    for role in _roles(bundle):
        raw = bundle.manifest["roles"][role.role]["variants"]
        for variant in role.variants.values():
            parity = raw[variant.format].get("parity")
            parity = parity if isinstance(parity, Mapping) else {}
            kl, same = (_number(parity.get(name)) for name in ("kl_nats", "top1"))
            stored = size(bundle.stored_bytes(role, variant.format))
            yield (
                f"| {role.role}, {plain(variant.format)} |"
                f" {_RUNTIMES.get(variant.format, plain(variant.format))} |"
                f" {plain(variant.weights)} | {plain(variant.kv)} | {stored} |"
                f" {'not measured' if kl is None else f'{kl:.4f}'} |"
                f" {'not measured' if same is None else f'{same:.1%}'} |"
            )
    yield ""
    yield f"Made by {plain(str(bundle.manifest.get('created_by', 'edgedec')))}. Its text is that of"
    yield "the target as it is here, whatever the draft proposes: drafts change the speed alone."
    yield ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _certified(bundle: Bundle, file: Path) -> Iterator[str]:
    """Yield what a certificate says of these very files."""
    try:
        with open_regular(file) as stream:
            raw = json_object(stream.read(_MAX_CERTIFICATE_BYTES))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from None
    if raw is None or "certificate" not in raw:
        raise InputError(f"{file}: expected the certificate.json of a certificate")
    fields = _Certificate(raw, str(file))
    verdict, hashes = fields.object("verdict"), fields.object("files")
    for name, fact in bundle.files.items():
        if PurePosixPath(name).name == CHAT_PIECES:  # derived, and read by no runtime
            continue
        if hashes.raw.get(name) != fact.sha256:
            raise InputError(
                f"{file} is about another bundle: its {one_line(name)} has another sha256; issue a"
                " certificate of this one"
            )
    yield (
        f"**Certificate: {plain(verdict.line('word'))}.** {verdict.size('texts')} texts compared"
        f" with plain decoding: {verdict.size('identical')} identical, {verdict.size('near_ties')}"
        f" part at a near-tie, {verdict.size('differ')} differ by more"
        f" ({plain(fields.line('issued'))})."
    )
    yield ""


def _use() -> Iterator[str]:
    yield "Download this folder, then:"
    yield ""
    yield "```"
    yield "edgedec inspect ./this-folder    # hashes every file"
    yield 'edgedec run ./this-folder "Why is the sky blue?"'
    yield "edgedec serve ./this-folder      # OpenAI's, Anthropic's and Ollama's API"
    yield "edgedec verify ./this-folder     # the text is the target's own, on your machine"
    yield "```"


def plain(text: str) -> str:
    """Return a text from elsewhere in one line that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))
