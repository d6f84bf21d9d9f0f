"""``edgedec serve``: serves models with OpenAI's API and a page."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import click

from edgedec._support import installation
from edgedec._support.options import declared
from edgedec.cli import _help, _model, _options, _partner, _sampling, _served
from edgedec.cli._flags import flags
from edgedec.cli._terminal import note
from edgedec.decoding.params import SamplingParams
from edgedec.errors import ExtraMissing
from edgedec.serve.settings import Limits, Settings

_SETTINGS = declared(Settings)
# Fields of requests to OpenAI's API, by the options that commands for one text have instead.
_FIELDS = {
    **{f"--{name.replace('_', '-')}": f'"{name}"' for name in (
        *declared(SamplingParams), "stop", "logprobs", "reasoning_effort",
    )},
    "--max-new-tokens": '"max_tokens"', "-n": '"max_tokens"', "-s": '"seed"',
    "--system": 'a message with "role": "system"', "--prompt": '"messages" or "prompt"',
    "--think": '"enable_thinking"', "--no-think": '"enable_thinking"',
    "--think-tokens": '"think_tokens" in "edgedec"',
    "--json-mode": '"response_format"', "--json-schema": '"response_format"',
}  # fmt: skip
_SERVER = [
    *flags(_SETTINGS),
    click.option("-p", "--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
                 help="Port to listen on; 0 takes a free one."),
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0,
                 show_default=True, metavar="SECONDS",
                 help="Time limit of a request, from its arrival to the end of its text."),
    click.option("--api-key-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                 help="File with the key that every request must send, or with several, one a "
                 "line; or EDGEDEC_API_KEY."),
]  # fmt: skip
_LOG = click.option("-v", "--verbose", is_flag=True,
                    help="Log a line for each request: when, who, what, status and seconds; and "
                    "show the runtime's own log.")  # fmt: skip


class _Serve(_help.LoadCommand):
    shown: ClassVar = {
        "Options": (
            "host",
            "port",
            "models",
            "keep_alive",
            "name",
            "parallel",
            "queue",
            "timeout",
            "verbose",
        ),
        "Model": (),  # where ``name`` is that of another command's option
        **{title: names for title, names in _help.SHOWN.items() if title != "Model"},
    }
    instead: ClassVar = {
        option: f"each request gives its own, as {field}" for option, field in _FIELDS.items()
    }


@click.command(cls=_Serve)
@_model.model
@_options.options(_served.OPTIONS, _SERVER, _options.FINDS, _options.LOAD[:-1], [_LOG])
def command(
    bundle: str,
    models: tuple[str, ...],
    keep_alive: float | None,
    timeout: float,
    api_key_file: Path | None,
    **chosen: Any,
) -> None:
    """Serve a model to programs and browsers.

    MODEL is what `edgedec run` takes: a folder, a file or a name. Programs use OpenAI's API at
    http://127.0.0.1:8080/v1, or Ollama's at http://127.0.0.1:8080, which is also a page for
    browsers. Needs the extra serve.

    Only this machine can connect unless --host says otherwise, and then a key is required. Requests
    of several clients are decoded by turns, round by round, each with the text it would have alone;
    --memory limits all of them together.

    With --models, requests choose among several models, which are loaded when they are first asked
    for and dropped when nothing has asked for them for a while, or when another needs the memory
    (without --memory, that of the machine). All other options hold for each of them.

    \b
    edgedec serve ./qwen
    edgedec serve large.gguf --draft small.gguf --port 9000 --parallel 2
    edgedec serve demo --host 0.0.0.0 --api-key-file key.txt
    edgedec serve --models
    edgedec serve --models qwen,gemma --memory 8GB --keep-alive 10m
    """  # fmt: skip
    several = _served.check(click.get_current_context())
    run = _server()
    from edgedec.serve import keeping

    keys = run.read_keys(api_key_file)
    asked = {one.field: chosen[one.field] for one in _SETTINGS.values()}
    settings = Settings(
        keys=keys,
        limits=Limits(text_s=timeout),
        keep_s=keeping.DEFAULT_S if keep_alive is None else keep_alive,
        **{name: value for name, value in asked.items() if value is not None},
    )
    run.check_exposed(settings.host, keys)
    if several:
        _serve_several(models, chosen, settings)
    else:
        _serve_one(bundle, chosen, settings)


def _serve_one(bundle: str, chosen: dict[str, Any], settings: Settings) -> None:
    """Serve a model that is opened first, and stays open."""
    run = _server()
    from edgedec.library.locate import Query
    from edgedec.pipeline import Pipeline

    typed = chosen["draft"]
    found = _partner.located(bundle, chosen, Query(format=chosen["format"]))
    known = _served.names(bundle, found.model)
    tells = run.is_loopback(settings.host)
    settings = dataclasses.replace(
        settings,
        name=settings.name or known[0],
        aliases=known,
        planning=_served.planning(bundle, typed or chosen["draft"]) if tells else "",
    )
    options = _options.open_options(chosen, found.path)
    with (
        run.bound(settings.host, chosen["port"]) as sock,
        Pipeline.open(found.path, options) as pipeline,
    ):

        def announce() -> None:
            _listen(sock, settings.name)
            if (own := pipeline.sampling) is not None:
                note(f"chats are answered with sampling {_sampling.described(own, own)}")

        run.serve(pipeline, settings, sock, memory=options.memory, announce=announce)


def _serve_several(words: tuple[str, ...], chosen: dict[str, Any], settings: Settings) -> None:
    """Serve models that are opened when requests ask for them."""
    run = _server()
    from edgedec.memory.grant import AUTO, granting
    from edgedec.serve.models import Models

    chosen["memory"] = AUTO if chosen["memory"] is None else chosen["memory"]
    granting(chosen["memory"])()  # fails where the system does not say what is free
    found = _served.offers(words, chosen, tells=run.is_loopback(settings.host))
    settings = dataclasses.replace(settings, name=found[0].name)
    with run.bound(settings.host, chosen["port"]) as sock:

        def announce() -> None:
            _listen(sock, f"{len(found)} models" if len(found) > 1 else settings.name)
            names = ", ".join(one.name for one in found)
            note(f"models: {names}; each is loaded when it is asked for")

        run.serve_models(Models(found, settings, chosen["memory"]), sock, announce)


def _listen(sock: socket.socket, what: str) -> None:
    sock.listen()
    url = _server().url(sock)
    click.echo(f"{what} at {url}/v1, a page at {url}; Ctrl-C stops")


def _server() -> ModuleType:
    """Import the server, or say which extra is missing."""
    try:
        from edgedec.serve import run
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            installation.needs("edgedec serve", "serve", error.name or "starlette")
        ) from None
    return run
