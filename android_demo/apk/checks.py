"""What must hold of a built APK; each check returns a line to print, or raises CheckError."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from android_demo.apk import tools
from android_demo.apk.formats import Dex, Entry, entries, load_alignments
from android_demo.apk.package import PAGE
from android_demo.apk.project import Project

# The demo decodes without a network, and cannot report anything without these.
NETWORK = ("android.permission.INTERNET", "android.permission.ACCESS_NETWORK_STATE")
# What Microsoft's AAR brings since 1.29: a provider in its manifest, and these classes.
TELEMETRY = re.compile(r"ai[./]onnxruntime[./](TelemetryInitializer|telemetry)\b")
STORED = (".onnx", ".data", ".json", ".so")


class CheckError(tools.BuildError):
    """The APK is not what it has to be."""


def check(project: Project, apk: Path, abis: tuple[str, ...]) -> None:
    """Run all checks that read the APK, and print what each found."""
    with zipfile.ZipFile(apk) as archive:
        dexes = [archive.read(name) for name in archive.namelist() if name.endswith(".dex")]
    lines = [
        badging(dump(project, "badging", apk), project, abis),
        permissions(dump(project, "permissions", apk)),
        telemetry(dump(project, "xmltree", "--file", "AndroidManifest.xml", apk), dexes),
        invoke_custom(dexes, disassembled(project, apk)),
        pages(apk),
        stored(entries(apk)),
        signature(project, apk),
        size(apk, dexes),
    ]
    for line in lines:
        tools.say(f"  {line}")


def dump(project: Project, *arguments: str | Path) -> str:
    """Return what `aapt2 dump` prints."""
    return tools.run(project, [tools.aapt2(project), "dump", *arguments]).stdout


def disassembled(project: Project, apk: Path) -> str:
    """Return all instructions of the dex files of an APK."""
    return tools.run(project, ["dexdump", "-d", apk]).stdout


def badging(printed: str, project: Project, abis: tuple[str, ...]) -> str:
    """The system finds package, API levels, activity and libraries as the build means them."""
    wanted = {
        r"^package: name='([^']*)'": project["android.package"],
        r"^(?:sdkVersion|minSdkVersion):'([^']*)'": project["android.minSdk"],
        r"^targetSdkVersion:'([^']*)'": project["android.targetSdk"],
        r"^launchable-activity: name='([^']*)'": f"{project['android.package']}.MainActivity",
        r"^native-code: (.*)$": " ".join(f"'{abi}'" for abi in sorted(abis)),
    }
    for pattern, value in wanted.items():
        found = re.search(pattern, printed, re.MULTILINE)
        if found is None or found[1] != value:
            there = found[0] if found else "nothing"
            raise CheckError(f"badging should say {value} and says {there}")
    return "badging: " + ", ".join(wanted.values())


def permissions(printed: str) -> str:
    """The app cannot reach a network."""
    asked = re.findall(r"^uses-permission[^:]*: name='([^']*)'", printed, re.MULTILINE)
    wrong = sorted(set(asked) & set(NETWORK))
    if wrong:
        raise CheckError(f"the manifest should ask for no network and asks for {', '.join(wrong)}")
    return f"permissions: {', '.join(asked) or 'none'}"


def telemetry(manifest: str, dexes: Iterable[bytes]) -> str:
    """ONNX Runtime's reporter is neither started by the manifest nor in the code."""
    found = TELEMETRY.search(manifest)
    if found:
        raise CheckError(f"the manifest starts ONNX Runtime's telemetry: {found[0]}")
    names = [name for dex in dexes for name in Dex(dex).classes()]
    wrong = [name for name in names if TELEMETRY.match(name)]
    if wrong:
        raise CheckError(f"the code has {len(wrong)} classes of telemetry, as {wrong[0]}")
    if not any(name.startswith("ai/onnxruntime/") for name in names):
        raise CheckError("the code should have ONNX Runtime's classes and has none")
    return f"telemetry: none in the manifest and in {len(names)} classes"


def invoke_custom(dexes: Iterable[bytes], instructions: str) -> str:
    """No instruction needs a LambdaMetafactory, which Android does not have."""
    sites = sum(Dex(dex).call_sites() for dex in dexes)
    found = len(re.findall(r"\binvoke-custom", instructions))
    if sites or found:
        raise CheckError(f"{found} instructions invoke-custom are left, of {sites} call sites")
    if "invoke-virtual" not in instructions:
        raise CheckError("dexdump should list instructions and lists none")
    return "invoke-custom: none"


def pages(apk: Path) -> str:
    """Libraries can be loaded where memory has pages of 16 KB."""
    with zipfile.ZipFile(apk) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        segments = {name: load_alignments(archive.read(name)) for name in names}
    for name, alignments in segments.items():
        if not alignments or min(alignments) < PAGE:
            raise CheckError(f"segments of {name} should be on {PAGE} bytes, they are {alignments}")
    if not segments:
        raise CheckError("the APK should have libraries and has none")
    return f"ELF segments: on {PAGE} bytes in {len(segments)} libraries"


def stored(files: Iterable[Entry]) -> str:
    """Weights, the other files of the bundle and libraries are stored, and can be mapped."""
    wanted = [file for file in files if file.name.endswith(STORED)]
    for file in wanted:
        if not file.stored:
            raise CheckError(f"{file.name} should be stored and is compressed")
        if file.offset % PAGE:
            raise CheckError(
                f"{file.name} should begin on {PAGE} bytes and begins at {file.offset}"
            )
    if not any(file.name.endswith(".onnx") for file in wanted):
        raise CheckError("the APK should have a bundle's graphs and has none")
    return f"stored on {PAGE} bytes: {len(wanted)} files"


def signature(project: Project, apk: Path) -> str:
    """Android 8 and newer take the signature."""
    minimum = project["android.minSdk"]
    command: tools.Command = ["apksigner", "verify", "--verbose"]
    command += ["--min-sdk-version", minimum, apk]
    try:
        printed = tools.run(project, command).stdout
    except tools.BuildError as error:
        raise CheckError(f"the signature is not valid: {error}") from error
    schemes = re.findall(r"^Verified using v([\d.]+) scheme .*: true$", printed, re.MULTILINE)
    if schemes != ["2", "3"]:
        raise CheckError(f"the APK should be signed by v2 and v3 and is by {schemes}")
    return "signed: v2, v3"


def size(apk: Path, dexes: list[bytes]) -> str:
    """Return how large everything is; the limit of methods in a dex file is 65,536."""
    methods = sum(Dex(dex).methods for dex in dexes)
    return (
        f"{apk.stat().st_size / 1e6:.1f} MB, {len(dexes)} dex file of "
        f"{sum(map(len, dexes)) / 1e6:.2f} MB, {methods} methods"
    )
