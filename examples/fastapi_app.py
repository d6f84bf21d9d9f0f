r"""A web app: ``pip install fastapi uvicorn``, then ``python examples/fastapi_app.py``.

curl -N http://127.0.0.1:8000/complete -H 'Content-Type: application/json' \
    -d '{"prompt": "def fibonacci(n):"}'
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from types import SimpleNamespace

from asyncio_streams import pieces
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from edgedec import EdgedecError, Pipeline, Stream

PARALLEL = 4
decoder = SimpleNamespace()  # filled when the app starts


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold the models while the app runs."""
    with ThreadPoolExecutor(1) as thread, Pipeline.open("demo", parallel=PARALLEL) as pipeline:
        decoder.thread, decoder.pipeline = thread, pipeline
        decoder.turns = asyncio.Semaphore(PARALLEL)  # more requests wait for a turn
        yield


app = FastAPI(lifespan=lifespan)


class Completion(BaseModel):
    """The body of a request."""

    prompt: str = Field(min_length=1, max_length=10_000)
    max_new_tokens: int = Field(64, ge=1, le=512)
    temperature: float = Field(0.0, ge=0, le=2)


@app.post("/complete")
async def complete(asked: Completion) -> StreamingResponse:
    """Stream a continuation of the prompt as plain text."""
    begin = partial(decoder.pipeline.stream, **asked.model_dump())
    try:
        stream = await asyncio.get_running_loop().run_in_executor(decoder.thread, begin)
    except EdgedecError as error:  # a prompt that is too long, say
        raise HTTPException(400, str(error)) from None
    return StreamingResponse(text_of(stream), media_type="text/plain; charset=utf-8")


async def text_of(stream: Stream) -> AsyncIterator[str]:
    """Wait for a turn, then yield the text; a client that leaves ends its generation."""
    async with decoder.turns, aclosing(pieces(stream, decoder.thread)) as text:
        async for piece in text:
            yield piece


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app)
