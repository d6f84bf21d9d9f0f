"""``edgedec doctor``: reports what is installed, what is missing, and how to get it."""

from __future__ import annotations

from typing import Any

import click

from edgedec._support.fields import to_json
from edgedec._support.parts import part
from edgedec.cli import _options, _output, _progress
from edgedec.cli._output import size, table

SAMPLE = ""


@click.command()
@click.option(
    "--coreml",
    is_flag=False,
    flag_value=SAMPLE,
    metavar="[BUNDLE]",
    help="Check CoreML programs instead: those of BUNDLE, or small ones with random weights. On "
    "macOS each is compiled, its compute plan is read, its results are compared with the "
    "interpreter's, and every function is timed, on processor, GPU and Neural Engine.",
)
@_options.as_json
def command(coreml: str | None, as_json: bool) -> None:
    """Show what is installed and what is missing.

    The exit code is 1 if something is wrong; each problem is listed with its fix. A missing extra
    is not a problem: it is optional.

    --coreml prints one block to paste into an issue: CoreML packages have never yet run on a
    Mac. Elsewhere the interpreter computes, with values rounded to fp16, and the block says
    what only a Mac can show.

    \b
    edgedec doctor
    edgedec doctor --json
    edgedec doctor --coreml
    edgedec doctor --coreml ./my-bundle
    """
    if coreml is not None:
        _check_coreml(coreml, as_json)
        return
    from edgedec.doctor.report import examine

    facts = examine()
    if as_json:
        _output.print_json(facts)
    else:
        _print(facts)
    if facts["problems"]:
        raise click.exceptions.Exit(1)


def _check_coreml(bundle: str, as_json: bool) -> None:
    """Check a bundle's CoreML programs, or the samples; exit with code 1 if a step fails."""
    coreml = part("edgedec.doctor.coreml", "--coreml")
    with _progress.progress("checking") as listen:

        def on_progress(what: str, done: int, total: int) -> None:
            if listen is not None:
                listen(done, total)

        if bundle == SAMPLE:
            found = coreml.check_sample(on_progress)
        else:
            found = coreml.check_bundle(bundle, on_progress)
    if as_json:
        _output.print_json({**to_json(found), "failures": found.failures()})
    else:
        click.echo(coreml.block(found))
    if found.failures():
        raise click.exceptions.Exit(1)


def _print(facts: dict[str, Any]) -> None:
    from edgedec.doctor.report import swap_in_words

    memory, cpu, demo = facts["memory"], facts["cpu"], facts["demo"]
    limit = memory["limit_bytes"]
    rows = [
        ("edgedec", facts["edgedec"]),
        ("Python", f"{facts['python']}, {facts['system']}"),
        ("packages", _versions(facts["packages"])),
        *((f"extra {name}", _extra(extra)) for name, extra in facts["extras"].items()),
        *((f"runtime {name}", f"{', '.join(added['formats'])}; {_versions(added['packages'])}")
          for name, added in facts.get("added_runtimes", {}).items()),
        *((f"drafter {name}", package)
          for name, package in facts.get("added_drafters", {}).items()),
        *(("llama.cpp RPC", text) for text in _rpc(facts.get("rpc"))),
        ("processor", f"{cpu['name']}, {' + '.join(cpu['clusters'])}, {' '.join(cpu['features'])}"),
        ("memory", f"{size(memory['total_bytes'])}, {size(memory['available_bytes'])} free"
                   + (f", limited to {size(limit)}" if limit else "")),
        *(("swap", text) for text in [swap_in_words(facts["swap"])] if text),
        ("demo bundle", f"whole, {size(demo['size_bytes'])}" if demo["whole"] else "not whole"),
        *((f"{kind} weights", f"{size(count)} kept for this machine, see `edgedec cache`")
          for kind, count in facts["kept_bytes"].items()),
    ]  # fmt: skip
    table(rows)
    for problem in facts["problems"]:
        click.secho(f"problem: {problem}", fg="red", err=True)


def _rpc(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    what = "spreads a GGUF target over several machines (--rpc)"
    if found["built_in"]:
        return [f"built in; {what}"]
    return [f"not built in; {what}; get it: {found['install']}"]


def _extra(extra: dict[str, Any]) -> str:
    versions = _versions(extra["packages"])
    if extra["complete"]:
        return versions
    prebuilt = (
        f"; prebuilt, if there is a wheel: {extra['prebuilt']}" if "prebuilt" in extra else ""
    )
    return f"{versions}; {extra['purpose']}; get it: {extra['install']}{prebuilt}"


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(missing)'}" for name, version in packages.items())
