r"""A web app: ``pip install fastapi uvicorn``, then ``python examples/fastapi_app.py``.

curl -N http://127.0.0.1:8000/complete -H 'Content-Type: application/json' \
    -d '{"prompt": "def fibonacci(n):"}'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from edgedec import AsyncStream, EdgedecError, Emission, Pipeline

PARALLEL = 4  # texts that take turns; more requests wait
decoder = SimpleNamespace()  # filled when the app starts


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Hold the models while the app runs."""
    with Pipeline.open("demo", parallel=PARALLEL) as decoder.pipeline:
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
    stream = decoder.pipeline.astream(**asked.model_dump())
    try:
        first = await anext(stream, None)
    except EdgedecError as error:  # a prompt that is too long, say
        raise HTTPException(400, str(error)) from None
    return StreamingResponse(text_of(first, stream), media_type="text/plain; charset=utf-8")


async def text_of(first: Emission | None, stream: AsyncStream) -> AsyncIterator[str]:
    """Yield the text; a client that leaves ends its generation."""
    async with stream:
        yield first.text if first else ""
        async for event in stream:
            yield event.text


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app)
