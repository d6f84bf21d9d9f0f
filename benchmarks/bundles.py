"""Settings that all sections of the suite share, and the bundles that they measure.

Bundles contain the shipped pair as it is, or grown to the cost of a large model.

A grown model computes exactly the function of its small source, at the cost of its own size, so
that acceptance is that of a trained pair (``benchmarks.models.grow``). Bundles are made once and
stored in ``work`` under a name with the checkpoints' hash, so that retraining makes new ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.questions import has_turns, read_questions
from edgedec._support.model_path import is_gguf
from edgedec.batch.jobs import read_jobs
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST, SCHEMA_VERSION
from edgedec.errors import InputError
from edgedec.export.options import FULL
from edgedec.loading.build import OpenOptions
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.pipeline import Prompt

GROWN = "target-0.5b"
LARGER = "target-1b"
# What stands for the weights of a model that is given in its own.
_USUAL = ("int4", "q4_0", "q8_0", "file")


class Unusable(InputError):
    """A section cannot measure the models that were given; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Bundles:
    """The folders of checkpoints and of models made from them.

    Attributes:
        checkpoints: folder with ``target`` and ``draft``, the shipped pair's checkpoints.
        work: scratch folder; may be deleted at any time.
        folders: other checkpoints by role; or a bundle or a GGUF file, which sections measure as
            it is.
        grows: models are grown where a section asks for it; given ones are what they are.

    """

    checkpoints: Path
    work: Path
    folders: Mapping[str, Path] = field(default_factory=dict)
    grows: bool = True

    def checkpoint(self, role: str, preset: str | None = None) -> Path:
        """Return a role's checkpoint, grown to a preset of ``benchmarks.models.grow`` if given.

        Raises:
            Unusable: what was given for the role is no checkpoint's folder.

        """
        source = self.source(role)
        if is_gguf(source) or (source / MANIFEST).is_file():
            raise Unusable(f"needs a checkpoint's folder, and {source} is none")
        if not (source / "config.json").is_file():
            raise InputError(
                f"{source} has no checkpoint: run the suite from a clone of the repository, "
                "or give --checkpoints"
            )
        if preset is None or not self.grows:
            return source
        from benchmarks.models.grow import PRESETS, grow

        out = self.work / f"{role}-{preset}-{digest(source)}"
        if not (out / "config.json").is_file():
            grow(source, out, PRESETS[preset])
        return out

    def source(self, role: str) -> Path:
        """Return what a role's model is made from: a folder, a bundle or a GGUF file.

        Raises:
            Unusable: a target was given, and nothing for this role.

        """
        if role not in self.folders and "target" in self.folders:
            raise Unusable(f"needs --{role.replace('_', '-')}, which was not given")
        return self.folders.get(role, self.checkpoints / role)

    @property
    def drafts(self) -> bool:
        """Return whether there is a draft model; of a bundle, its own counts."""
        target = self.folders.get("target")
        if target is not None and (target / MANIFEST).is_file():
            return "draft" in Bundle.open(target).manifest["roles"]
        return "draft" in self.folders or target is None

    def shipped(self) -> str | Path:
        """Return what the command line opens: the pair that ships, or what was given."""
        return self.folders.get("target", "demo")

    def sizes(self, **presets: str | None) -> dict[str, str | None]:
        """Return the targets of a section by name; a given one is measured once, as ``given``."""
        return presets if self.grows else {"given": None}

    def head(self, preset: str | None) -> Path:
        """Return the checkpoint of the target's head, grown for a target of a preset if given."""
        source, target = self.checkpoint("head"), self.checkpoint("target")
        if preset is None or not self.grows:
            return source
        from benchmarks.models.grow_head import grow_head

        out = self.work / f"head-{preset}-{digest(source)}"
        if not (out / "config.json").is_file():
            grow_head(source, target, self.checkpoint("target", preset), out)
        return out

    def drafted_by(self, role: str) -> Bundles:
        """Return the same with another checkpoint as the draft."""
        return replace(self, folders={**self.folders, "draft": self.checkpoint(role)})

    def with_noise_head(self) -> Bundles:
        """Return the same with a head of noise."""
        from benchmarks.models.noise_head import noise_head

        source = self.checkpoint("head")
        out = self.work / f"head-noise-{digest(source)}"
        if not (out / "config.json").is_file():
            noise_head(source, out)
        return replace(self, folders={**self.folders, "head": out})

    def bundle(
        self,
        weights: str,
        *,
        target: str | None = None,
        draft: str | None = None,
        block_size: int | None = None,
        batch_invariant: bool = False,
        kv: str = "fp32",
        head: bool = False,
    ) -> Path:
        """Return an exported pair; ``target`` and ``draft`` are presets to grow to.

        With a ``block_size`` int4 is rounded to nearest, as for the figures over block sizes.
        """
        if (given := self._given("onnx", "target", weights)) is not None:
            return given
        roles = ("target", "draft") if self.drafts else ("target",)
        sources = "-".join(digest(self.source(role)) for role in roles)
        kind = f"{weights}-{block_size or 'auto'}{'-invariant' if batch_invariant else ''}"
        kind += "" if kv == "fp32" else f"-{kv}"
        kind += f"-{digest(self.checkpoint('head'))}" if head else ""
        return self._exported(
            f"pair-{kind}-{target or 'asis'}-{draft or 'asis'}-{sources}",
            target=self._readable("target", target),
            draft=self._readable("draft", draft) if self.drafts else None,
            head=self.head(target) if head else None,
            weights=weights,
            block_size=block_size,
            batch_invariant=batch_invariant,
            kv=kv,
            draft_vocab=FULL,
        )

    def trimmed(self, target: str, draft: str, draft_vocab: int | str) -> Path:
        """Return a grown pair in int4 whose draft's head keeps so many tokens."""
        sources = "-".join(digest(self.checkpoint(role)) for role in ("target", "draft"))
        return self._exported(
            f"trimmed-{draft_vocab}-{target}-{draft}-{sources}",
            target=self.checkpoint("target", target),
            draft=self.checkpoint("draft", draft),
            weights="int4",
            block_size=None,
            draft_vocab=draft_vocab,
        )

    def alone(
        self,
        format: str,
        role: str,
        weights: str,
        preset: str | None = None,
        *,
        block_size: int | None = None,
        calibration: str | None = None,
    ) -> Path:
        """Return a bundle with a single role's model.

        ``block_size`` is as in ``bundle``, unless ``calibration`` says how to round.
        """
        if (given := self._given(format, role, weights)) is not None:
            return given
        source = self._readable(role, preset)
        kind = f"{weights}-{block_size or 'auto'}{f'-{calibration}' if calibration else ''}"
        return self._exported(
            f"{format}-{role}-{kind}-{preset or 'asis'}-{digest(source)}",
            target=source,
            formats=(format,),
            weights=weights,
            block_size=block_size,
            calibration=calibration,
        )

    def _given(self, format: str, role: str, weights: str) -> Path | None:
        """Return a given bundle or GGUF file where it is what a section asks for; None to export.

        Raises:
            Unusable: it has one kind of weights, and the section asks for another.

        """
        source = self.folders.get(role)
        if source is None:
            return None
        bundle = source.is_dir() and (source / MANIFEST).is_file()
        if not bundle and not (format == "gguf" and is_gguf(source)):
            return None
        if weights not in _USUAL or (bundle and format != "onnx"):
            raise Unusable(f"asks for {weights} in {format}, and {source} is what it is")
        return source

    def _readable(self, role: str, preset: str | None) -> Path:
        """Return what the exporter reads: a checkpoint, or a GGUF file."""
        source = self.source(role)
        return source if is_gguf(source) else self.checkpoint(role, preset)

    def _exported(
        self, name: str, *, block_size: int | None, calibration: str | None = None, **chosen: Any
    ) -> Path:
        """Return the bundle of this name, after exporting it if it does not exist."""
        from edgedec.export import ExportOptions, export_bundle

        # Named by schema, since bundles of another version of edgedec cannot be opened.
        out = self.work / f"schema-{SCHEMA_VERSION}" / name
        if not (out / "manifest.json").is_file():
            calibration = calibration or ("self" if block_size is None else "none")
            options = ExportOptions(
                out=out, block_size=block_size, parity=False, calibration=calibration, **chosen
            )
            export_bundle(options)
        return out

    def gguf(
        self, role: str, weights: str, preset: str | None = None, calibration: str | None = None
    ) -> Path:
        """Return a role's model as a GGUF file."""
        made = self.alone("gguf", role, weights, preset, calibration=calibration)
        if is_gguf(made):
            return made
        (file,) = (made / "target").glob("*.gguf")
        return file


def digest(checkpoint: Path) -> str:
    """Return a hash of a checkpoint's contents, or of a file's."""
    found = hashlib.sha256()
    files = [*checkpoint.glob("*.json"), *checkpoint.glob("*.safetensors")]
    for file in [checkpoint] if checkpoint.is_file() else sorted(files):
        found.update(f"{file.name} {file.stat().st_size}\n".encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Suite:
    """Settings all sections share.

    Attributes:
        bundles: makes the bundles.
        out: folder of the raw records.
        prompts: number of prompts of each section.
        threads: threads of each model; None is all cores.
        file: prompts as JSON lines, in place of held-out function heads.

    """

    bundles: Bundles
    out: Path
    prompts: int
    threads: int | None = None
    file: Path | None = None

    def code(self) -> list[tuple[str, Prompt]]:
        """Return held-out function heads, or the first prompts of ``file``."""
        return [*self.texts()]

    def texts(self) -> list[tuple[str, str]]:
        """Return the same as names and texts; of questions with turns, each first one."""
        if self.file is None:
            return [(prompt.name, prompt.text) for prompt in heldout_prompts(self.prompts)]
        if has_turns(self.file):
            return [(one.id, one.turns[0]) for one in read_questions(self.file)][: self.prompts]
        jobs = read_jobs(self.file)[: self.prompts]
        return [(job.id, job.prompt) for job in jobs if isinstance(job.prompt, str)]

    def options(self, **chosen: Any) -> OpenOptions:
        """Return options with this suite's threads."""
        return OpenOptions(threads=self.threads, plan="none", **chosen)

    def plain(self) -> OpenOptions:
        """Return the baseline's options: plain decoding without padding, its fastest form."""
        return self.options(drafter="none", batch_invariant=False)

    def on_openvino(self, draft: str) -> OpenOptions:
        """Return options with the target on OpenVINO's kernels."""
        return self.options(drafter=draft, providers=("OpenVINO",))
