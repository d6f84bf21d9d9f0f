"""Two texts at once in an asyncio program: one thread decodes them by turns."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from edgedec import Pipeline, Stream


async def pieces(stream: Stream, thread: ThreadPoolExecutor) -> AsyncIterator[str]:
    """Yield a stream's text as it comes; leaving the loop early ends the generation.

    Args:
        stream: of a pipeline that was opened with ``parallel``.
        thread: a pool of one thread, which decodes all streams of the pipeline.

    """
    loop = asyncio.get_running_loop()
    try:
        while event := await loop.run_in_executor(thread, next, stream, None):
            yield event.text
    finally:
        thread.submit(stream.close)


async def show(name: str, stream: Stream, thread: ThreadPoolExecutor) -> None:
    """Print each piece of a text after its name."""
    async for piece in pieces(stream, thread):
        print(f"{name}: {piece!r}")


async def main() -> None:
    """Continue two prompts at the same time."""
    prompts = ("def fibonacci(n):\n", "class Stack:\n")
    with ThreadPoolExecutor(1) as thread, Pipeline.open("demo", parallel=2) as pipeline:
        streams = [pipeline.stream(prompt, max_new_tokens=12) for prompt in prompts]
        await asyncio.gather(
            show("first", streams[0], thread),
            show("second", streams[1], thread),
        )


if __name__ == "__main__":
    asyncio.run(main())
