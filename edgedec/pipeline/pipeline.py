r"""The Python interface of a model that is open.

::

    with Pipeline.open("demo") as pipeline:
        for event in pipeline.stream("def fibonacci(n):\n", max_new_tokens=64):
            print(event.text, end="")
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedec._support.atomic import replacing
from edgedec._support.files import open_regular
from edgedec._support.options import arguments_of
from edgedec.decoding.drafting import AUTO
from edgedec.errors import StateError
from edgedec.generation import saved
from edgedec.generation.keywords import check_opens, takes_text_options
from edgedec.generation.options import GenerateOptions, Message, Prompt
from edgedec.generation.prompts import answers, tokens_of
from edgedec.generation.queue import Place, Round
from edgedec.generation.result import Generation, setup_of
from edgedec.generation.stream import Stream
from edgedec.loading.opening import configurations
from edgedec.loading.options import OpenOptions, takes_open_options
from edgedec.pipeline.decoder import Decoder
from edgedec.planning.follow import plan_to_follow

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from edgedec.export import Progress
    from edgedec.generation.asynchronous import AsyncStream
    from edgedec.pipeline.names import OpenNames, TextNames
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from edgedec._support.model_path import is_gguf, ready

if TYPE_CHECKING:
    from edgedec.export import Progress

_log = logging.getLogger("edgedec")


@dataclass(frozen=True, slots=True)
class Find:
    """Finds models by the words for them; see ``edgedec.library.locate.path_of``."""

    progress: Progress | None = None
    _: KW_ONLY
    download: bool = False
    format: str | None = None

    def path(self, word: str | Path) -> str | Path:
        """Return the path of the model that a word means."""
        there = ready(word)
        if there is not None and not (self.format == "onnx" and is_gguf(there)):
            return there
        from edgedec.library.locate import path_of

        return path_of(word, progress=self.progress, download=self.download, format=self.format)

    def draft(self, word: Path | None) -> Path | None:
        """Return the path of a draft model, if there is one."""
        return None if word is None else Path(self.path(word))

    def pair(self, word: str | Path, drafter: str) -> tuple[str | Path, Path | None]:
        """Return the path of the model that a word means, and of what drafts for it.

        Nobody is asked: with ``download`` a published draft is fetched, else the log names it.
        """
        from edgedec.library import Library
        from edgedec.library.locate import Query
        from edgedec.library.making import Listener
        from edgedec.library.partner import Search

        listener = Listener(_log.info, self.progress, self.progress)
        agreed = True if self.download else None
        advice = "download=True fetches it"
        search = Search(Library(), listener, lambda offer: agreed, advice, drafter, self.download)
        if not search.wanted:
            return self.path(word), None
        found = search.find(os.fspath(word), Query(download=self.download, format=self.format))
        return found.target.path, found.draft


class Pipeline(Decoder):
    """A target, a drafter and a tokenizer, ready to decode.

    It decodes one text at a time, or up to ``parallel`` of them by turns, one round each; further
    ones wait until another has ended, in the order in which they came. Any thread may use it, and
    any number of asyncio's tasks. A thread that only waits for streams which it reads itself would
    wait forever: it gets StateError.

    The prefix that a prompt shares with an earlier generation stays cached, so that the next turn
    of a conversation computes only its new tokens.

    If a device fails during a generation, the pipeline opens its models elsewhere, or decodes
    without the draft, logs one warning (logger ``edgedec``), and continues the text. Another device
    may round differently, so the continuation can diverge from the first device's at a near-tie.

    Attributes:
        notes: those warnings, one line each.
        plan: how texts are decoded: drafter, draft length, threads, device and so on.
        sampling: of answers to messages, as the model's files ask or else the usual; None if it
            asks for none and has no chat template.
        tokenizer: of the target.

    """

    @classmethod
    @takes_open_options
    def open(
        cls,
        bundle: str | Path,
        options: OpenOptions | None = None,
        *,
        download: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
        **changes: Unpack[OpenNames],
    ) -> Pipeline:
        """Load a target and, if there is one, a draft.

        Args:
            bundle: the model, as on the command line: a bundle's folder; a GGUF file, or a folder
                with one; ``"demo"`` for the pair that ships; the name or id of a model in the
                library; the folder of a checkpoint, which is converted into the library once (extra
                ``export``, minutes for a large one); or a hub's name, as ``"org/name"``, of a
                model in the library. ``draft`` is given likewise; ``"auto"`` looks for one in the
                library, beside the model and, with ``download``, on the list of published ones.
            options: how to open it; ``changes`` overrides single options by name, including load
                options, as in ``Pipeline.open("demo", drafter="lookup", memory="2GB")``.
            download: fetch a hub's model that is not in the library (extra ``hub``); else
                InputError.
            progress: called while a model is converted or downloaded, with the stage's name, work
                done, and its total.

        Raises:
            BundleError, ExportError, RuntimeUnavailable, MemoryBudgetError, PlanError, InputError.
            TypeError: ``options`` is something else, or an option is unknown.

        """
        options = OpenOptions() if options is None else options
        if not isinstance(options, OpenOptions):
            raise TypeError(
                f"options is {options!r:.60}: expected OpenOptions, or single options by name, as"
                " threads=2"
            )
        check_opens(changes)
        looks = changes.get("draft") == AUTO
        options = options.changed(**changes)
        find = Find(progress, download=download, format=options.format)
        if looks:
            target, draft = find.pair(bundle, options.drafter)
            return cls(configurations(target, options.changed(draft=draft), plan_to_follow))
        options = options.changed(draft=find.draft(options.draft))
        return cls(configurations(find.path(bundle), options, plan_to_follow))

    @takes_text_options
    def stream(
        self,
        prompt: str | Sequence[int] | None = None,
        options: GenerateOptions | None = None,
        *,
        messages: Sequence[Mapping[str, str]] | None = None,
        system: str | None = None,
        wait: bool = True,
        **changes: Unpack[TextNames],
    ) -> Stream:
        """Return a stream that continues a prompt, or answers messages, and yields events.

        The first event waits for the texts that came before, if they take all places.

        Args:
            prompt: the text to continue, or its token ids. A chat model continues it as text, too,
                unless there is a system message.
            options: how to generate; ``changes`` overrides single options by name, including those
                of ``options.sampling``, as in ``max_new_tokens=10, temperature=0.8``. By default a
                prompt is continued greedily by 128 tokens, and messages are answered with
                ``sampling`` to the end of the answer, or of the context.
            messages: a conversation to answer by the model's chat template, instead of a prompt: a
                list such as ``[{"role": "user", "content": "Hi"}]``.
            system: a system message, which precedes the messages, or the prompt as a message.
            wait: False raises StateError at the first event if the text would have to wait.

        Raises:
            TypeError: an option is unknown.
            InputError: an empty prompt, an option or a token id out of range, a grammar that cannot
                be used, messages that the template refuses, or no template.
            RuntimeUnavailable: the extra that a grammar needs is not installed.
            PromptTooLong: the prompt does not fit the context.
            StateError: the pipeline is closed.

        """
        changed = self._options_of(options, changes, answers=answers(prompt, messages, system))
        place = Place(self._queue, wait=wait)
        return self._begun(prompt, messages, system, changed, place)

    @takes_text_options
    @arguments_of(stream)
    def generate(
        self,
        prompt: str | Sequence[int] | None = None,
        options: GenerateOptions | None = None,
        *,
        messages: Sequence[Mapping[str, str]] | None = None,
        system: str | None = None,
        wait: bool = True,
        **changes: Unpack[TextNames],
    ) -> Generation:
        """Generate to the end and return the result; errors are those of ``stream``."""
        stream = self.stream(
            prompt, options, messages=messages, system=system, wait=wait, **changes
        )
        for _ in stream:
            pass
        assert stream.result is not None
        return stream.result

    @takes_text_options
    @arguments_of(stream)
    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        options: GenerateOptions | None = None,
        *,
        system: str | None = None,
        wait: bool = True,
        **changes: Unpack[TextNames],
    ) -> Stream:
        """Stream the assistant's next message: ``stream(messages=messages)``.

        The pipeline keeps no conversation. Add the answer to the messages, and the next question,
        and call it again; the keys and values of what they share are still cached.

        ::

            messages = [{"role": "user", "content": "Why is the sky blue?"}]
            stream = pipeline.chat(messages)
            for event in stream:
                print(event.text, end="")
            messages += [{"role": "assistant", "content": stream.result.text}]

        ``generate(messages=messages)`` returns the answer in one piece.

        Raises:
            InputError: the model has no chat template, or the messages do not fit it.

        """
        return self.stream(None, options, messages=messages, system=system, wait=wait, **changes)

    @takes_text_options
    @arguments_of(stream)
    def astream(
        self,
        prompt: str | Sequence[int] | None = None,
        options: GenerateOptions | None = None,
        *,
        messages: Sequence[Mapping[str, str]] | None = None,
        system: str | None = None,
        wait: bool = True,
        **changes: Unpack[TextNames],
    ) -> AsyncStream:
        """Return a stream for ``async for``; see ``stream`` and ``AsyncStream``.

        The texts of all tasks are decoded in one thread of the pipeline, in turns. Unlike with
        ``stream``, a text goes on whether or not its events are read. Errors of the request are
        raised by the first event.

        """
        from edgedec.generation.asynchronous import AsyncStream

        self._queue.check_open()
        changed = self._options_of(options, changes, answers=answers(prompt, messages, system))
        begin = partial(self._begun, prompt, messages, system, changed)
        return AsyncStream(begin, self._queue, wait=wait)

    @takes_text_options
    @arguments_of(stream)
    async def agenerate(
        self,
        prompt: str | Sequence[int] | None = None,
        options: GenerateOptions | None = None,
        *,
        messages: Sequence[Mapping[str, str]] | None = None,
        system: str | None = None,
        wait: bool = True,
        **changes: Unpack[TextNames],
    ) -> Generation:
        """Generate to the end without keeping the event loop waiting; see ``astream``.

        A task that is cancelled ends its text, and only that.
        """
        async with self.astream(
            prompt, options, messages=messages, system=system, wait=wait, **changes
        ) as stream:
            async for _ in stream:
                pass
        assert stream.result is not None
        return stream.result

    def _begun(
        self,
        prompt: Prompt | None,
        messages: Sequence[Message] | None,
        system: str | None,
        options: GenerateOptions,
        place: Place,
    ) -> Stream:
        """Return the stream of a text that has this place."""
        self._queue.check_open()
        tokens = tokens_of(self.tokenizer, prompt, messages, system, options)
        splitter = self._splitter(tokens, options)
        request = self._request(tokens, options, splitter)
        drafter, length = options.drafter, options.draft_length
        return Stream(
            self._rounds,
            request,
            lambda: setup_of(self.plan, drafter, length),
            place,
            splitter,
            lambda token: self.tokenizer.bytes_of(token).decode("utf-8", "replace"),
        )

    def count_tokens(self, prompt: Prompt | Sequence[Message], *, system: str | None = None) -> int:
        """Return how many tokens a prompt, or messages with the chat template, have.

        It is the result's ``prompt_tokens``; nothing is decoded, and no text is waited for.

        Args:
            prompt: a text, as ``generate`` continues it; token ids; or messages to answer.
            system: a system message, which precedes the messages, or the prompt as a message.

        Raises:
            InputError: no template, messages that it refuses, or no ids.

        """
        parts: Any = prompt  # or anything else, which is refused below
        listed = isinstance(parts, Sequence) and not isinstance(parts, str)
        messages = listed and any(isinstance(one, Mapping) for one in parts)
        given: tuple[Any, Any] = (None, prompt) if messages else (prompt, None)
        return len(tokens_of(self.tokenizer, *given, system, GenerateOptions()))

    def save(self, path: str | Path, note: Mapping[str, Any] | None = None) -> None:
        """Save the state of the last generation, prompt and output, to a file, atomically.

        It contains the keys and values of both models, the drafter's state and its acceptance
        statistics, so that after ``restore`` a later process continues without prefill.

        Args:
            path: replaced if it exists.
            note: the caller's own data, as JSON; ``restore`` returns it.

        Raises:
            StateError: a generation is in progress, or the pipeline was opened with ``parallel``.
            OSError: the file cannot be written; an existing one is unchanged.

        """
        self._check_alone("save")
        with Round(self._queue), replacing(Path(path)) as file:
            saved.save(self.engine, file, note or {})

    def restore(self, path: str | Path) -> dict[str, Any]:
        """Load the state that ``save`` wrote to a file; return its note.

        The next prompt that begins with the saved text computes only the tokens after it. The file
        is untrusted: its bytes are hashed before any reaches a model. The hash detects damage but
        not forgery: a forged file can hold the keys and values of another text than it states.

        Raises:
            SnapshotError: damaged, or of another model, runtime or draft; the cache is then empty.
            CapacityExceeded: the saved text is longer than the context; the cache is then empty.
            StateError: a generation is in progress, or the pipeline was opened with ``parallel``.
            OSError: the file cannot be read.

        """
        self._check_alone("restore")
        with Round(self._queue), open_regular(Path(path)) as file:
            return saved.restore(self.engine, file)

    def _check_alone(self, call: str) -> None:
        self._queue.check_open()
        if self._parts.parallel_engines:
            raise StateError(
                f"{call}(): expected a pipeline for one stream at a time, got one for"
                f" {1 + len(self._parts.parallel_engines)}: open it without parallel"
            )

    def __enter__(self) -> Pipeline:
        self._queue.check_open()
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
