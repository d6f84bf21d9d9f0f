"""A plugin of ``llm``: ``llm -m edgedec:NAME`` decodes a model of edgedec's library in process."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent, TextPart
from pydantic import Field

if TYPE_CHECKING:
    from edgedec import Pipeline

OPEN = "EDGEDEC_LLM_OPEN"


class _Opened:
    """The one model that is open; another closes it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._name, self._pipeline = "", None

    def get(self, name: str) -> Pipeline:
        from edgedec import Pipeline

        if self._pipeline is not None and self._name != name:
            self.close()
        if self._pipeline is None:
            self._pipeline, self._name = Pipeline.open(name, **_options_of_opening()), name
        return self._pipeline

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
        self._pipeline = None


opened = _Opened()


def _options_of_opening() -> dict[str, Any]:
    """Return what the environment asks for."""
    try:
        found = json.loads(os.environ.get(OPEN, "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise llm.ModelError(f'{OPEN}: expected a JSON object, such as {{"threads": 2}}')
    return found


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register the pair that ships and every model of the library."""
    for name, reference in names().items():
        register(Edgedec(name, reference))


def names() -> dict[str, str]:
    """Return what each model is called here, and how edgedec opens it."""
    from edgedec import Library

    found = {"demo": "demo"}
    models = Library().models()
    twice = Counter(model.name.rpartition("/")[2] for model in models)
    for model in models:
        short = model.name.rpartition("/")[2]
        alone = twice[short] == 1 and short != "demo"
        found[short if alone else f"{short}:{model.id[:8]}"] = model.id
    return found


class Edgedec(llm.Model):
    """A model of edgedec.

    Args:
        name: of it, without the prefix.
        reference: what ``Pipeline.open`` takes.

    """

    can_stream = True
    supports_schema = True

    class Options(llm.Options):
        """Options of a text, by the names that other models of ``llm`` have."""

        max_tokens: int | None = Field(description="most tokens to write", default=None, ge=1)
        temperature: float | None = Field(description="0 is greedy", default=None, ge=0)
        top_p: float | None = Field(description="nucleus", default=None, gt=0, le=1)
        top_k: int | None = Field(description="only the likeliest; 0 is all", default=None, ge=0)
        seed: int | None = Field(description="of the draws", default=None, ge=0)
        stop: str | None = Field(description="ends the text", default=None)
        think: bool | None = Field(description="whether to think first", default=None)
        raw: bool = Field(description="continue the prompt as text", default=False)

    def __init__(self, name: str, reference: str) -> None:
        self.model_id = f"edgedec:{name}"
        self._reference = reference

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str | StreamEvent]:
        """Yield the text as it is decoded; errors of edgedec are ``llm.ModelError``."""
        from edgedec import EdgedecError

        try:
            with opened.lock:
                pipeline = opened.get(self._reference)
                yield from self._decoded(pipeline, prompt, response)
        except EdgedecError as error:
            raise llm.ModelError(str(error)) from error

    def _decoded(
        self, pipeline: Pipeline, prompt: llm.Prompt, response: llm.Response
    ) -> Iterator[str | StreamEvent]:
        asked = self._asked(prompt)
        if prompt.options.raw:
            stream = pipeline.stream(prompt.prompt, **asked)
        else:
            stream = pipeline.stream(messages=messages(prompt), **asked)
        try:
            for event in stream:
                if event.thinking:
                    yield StreamEvent(type="reasoning", chunk=event.thinking)
                if event.text:
                    yield event.text
            result = stream.result
            metrics = result.metrics
            response.set_usage(
                input=result.prompt_tokens,
                output=metrics.emitted,
                details={"drafted": metrics.drafted_tokens, "accepted": metrics.accepted_tokens},
            )
            response.response_json = {"finish_reason": result.finish_reason, "seed": result.seed}
        finally:
            stream.close()

    def _asked(self, prompt: llm.Prompt) -> dict[str, Any]:
        given = prompt.options.model_dump(exclude_none=True)
        given.pop("raw", None)
        if "max_tokens" in given:
            given["max_new_tokens"] = given.pop("max_tokens")
        if prompt.schema is not None:
            given["json_schema"] = prompt.schema
        return given


def messages(prompt: llm.Prompt) -> list[dict[str, str]]:
    """Return the whole conversation as the chat template takes it.

    Raises:
        llm.ModelError: a part is not text, such as the result of a tool.

    """
    found = []
    for message in prompt.messages:
        texts = []
        for part in message.parts:
            if isinstance(part, TextPart):
                texts.append(part.text)
            elif type(part).__name__ != "ReasoningPart":  # thinking of earlier answers is left out
                raise llm.ModelError(f"edgedec takes text alone, found {type(part).__name__}")
        found.append({"role": message.role, "content": "".join(texts)})
    return found
