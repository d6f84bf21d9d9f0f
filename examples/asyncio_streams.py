"""Two texts at once in an asyncio program: they take turns, and the event loop goes on."""

import asyncio

from edgedec import Pipeline


async def show(name: str, pipeline: Pipeline, prompt: str) -> None:
    """Print each piece of a text after its name; leaving early ends the generation."""
    async with pipeline.astream(prompt, max_new_tokens=12) as stream:
        async for event in stream:
            print(f"{name}: {event.text!r}")


async def main() -> None:
    """Continue two prompts at the same time."""
    with Pipeline.open("demo", parallel=2) as pipeline:
        await asyncio.gather(
            show("first", pipeline, "def fibonacci(n):\n"),
            show("second", pipeline, "class Stack:\n"),
        )


if __name__ == "__main__":
    asyncio.run(main())
