"""Each check of an APK passes what is right, and flags what was broken on purpose."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from test_apk_formats import LOAD, dex, elf

from android_demo.apk import checks
from android_demo.apk.checks import CheckError
from android_demo.apk.formats import Entry
from android_demo.apk.project import Project

PROJECT = Project.read()
BADGING = """\
package: name='dev.edgedec.demo' versionCode='1' versionName='0.1.0'
sdkVersion:'26'
targetSdkVersion:'35'
launchable-activity: name='dev.edgedec.demo.MainActivity'  label='' icon=''
native-code: 'arm64-v8a'
"""
ORT = "ai/onnxruntime/OrtSession"
CODE = "invoke-virtual {v0}, Ljava/lang/Object;.toString:()Ljava/lang/String;"


def test_badging_as_it_should_be() -> None:
    assert "dev.edgedec.demo, 26, 35" in checks.badging(BADGING, PROJECT, ("arm64-v8a",))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("dev.edgedec.demo'", "dev.edgedec.other'", "should say dev.edgedec.demo and says package"),
        ("sdkVersion:'26'", "sdkVersion:'21'", "should say 26 and says sdkVersion:'21'"),
        ("targetSdkVersion:'35'", "targetSdkVersion:'34'", "should say 35"),
        ("launchable-activity", "activity", "MainActivity and says nothing"),
        ("'arm64-v8a'", "'arm64-v8a' 'x86'", "should say 'arm64-v8a'"),
        ("native-code", "no-code", "says nothing"),
    ],
)
def test_badging_that_differs_is_flagged(right: str, wrong: str, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        checks.badging(BADGING.replace(right, wrong, 1), PROJECT, ("arm64-v8a",))


def test_permissions() -> None:
    own = "package: dev.edgedec.demo\nuses-permission: name='android.permission.WAKE_LOCK'\n"
    assert checks.permissions(own) == "permissions: android.permission.WAKE_LOCK"
    assert checks.permissions("package: dev.edgedec.demo\n") == "permissions: none"


@pytest.mark.parametrize("line", ["uses-permission", "uses-permission-sdk-23"])
@pytest.mark.parametrize("name", checks.NETWORK)
def test_a_permission_for_the_network_is_flagged(line: str, name: str) -> None:
    with pytest.raises(CheckError, match=name):
        checks.permissions(f"package: dev.edgedec.demo\n{line}: name='{name}'\n")


def test_telemetry_is_flagged_in_the_manifest_and_in_the_code() -> None:
    assert checks.telemetry("E: manifest", [dex([ORT, "a/B"])]).endswith("2 classes")
    with pytest.raises(CheckError, match="starts ONNX Runtime's telemetry"):
        checks.telemetry('A: name="ai.onnxruntime.TelemetryInitializer"', [dex([ORT])])
    for name in ("ai/onnxruntime/TelemetryInitializer", "ai/onnxruntime/telemetry/HttpClient"):
        with pytest.raises(CheckError, match=name):
            checks.telemetry("E: manifest", [dex([ORT]), dex([name])])


def test_code_without_onnx_runtime_is_flagged() -> None:
    with pytest.raises(CheckError, match="has none"):
        checks.telemetry("E: manifest", [dex(["a/B"])])


def test_invoke_custom_is_flagged_by_call_sites_and_by_instructions() -> None:
    assert checks.invoke_custom([dex([ORT])], CODE) == "invoke-custom: none"
    with pytest.raises(CheckError, match="of 2 call sites"):
        checks.invoke_custom([dex([ORT], call_sites=2)], CODE)
    with pytest.raises(CheckError, match="1 instructions"):
        checks.invoke_custom([dex([ORT])], f"{CODE}\ninvoke-custom {{v0}}, call_site@0")
    with pytest.raises(CheckError, match="lists none"):
        checks.invoke_custom([dex([ORT])], "")


def apk_with(folder: Path, **libraries: bytes) -> Path:
    file = folder / "some.apk"
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in libraries.items():
            archive.writestr(f"lib/arm64-v8a/lib{name}.so", content)
    return file


def test_segments_on_small_pages_are_flagged(tmp_path: Path) -> None:
    good, bad = elf((LOAD, 0x4000), (LOAD, 0x10000)), elf((LOAD, 0x4000), (LOAD, 0x1000))
    assert "1 libraries" in checks.pages(apk_with(tmp_path, good=good))
    with pytest.raises(CheckError, match=r"libbad\.so should be on 16384 bytes"):
        checks.pages(apk_with(tmp_path, good=good, bad=bad))
    with pytest.raises(CheckError, match="has none"):
        checks.pages(apk_with(tmp_path))


def test_compressed_or_misplaced_weights_are_flagged() -> None:
    graph = Entry("assets/demo/target/model.onnx", True, 16384, 100)
    code = Entry("classes.dex", False, 17, 100)
    assert checks.stored([graph, code]).endswith("1 files")
    for name in ("assets/demo/target/model.onnx.data", "lib/arm64-v8a/libonnxruntime.so"):
        with pytest.raises(CheckError, match=f"{name} should be stored"):
            checks.stored([graph, Entry(name, False, 32768, 100)])
        with pytest.raises(CheckError, match="begins at 32772"):
            checks.stored([graph, Entry(name, True, 32772, 100)])
    with pytest.raises(CheckError, match="has none"):
        checks.stored([code])
