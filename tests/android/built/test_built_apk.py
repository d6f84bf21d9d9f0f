"""The APK of the demo, and APKs that were broken on purpose."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from android_demo.apk import build, checks, dexed, natives, package, resources, tools
from android_demo.apk.checks import CheckError
from android_demo.apk.project import Project

pytestmark = pytest.mark.android
ABIS = natives.ABIS[:1]
NETWORK = '<uses-permission android:name="android.permission.INTERNET" />'
PROVIDER = (
    '<provider android:name="ai.onnxruntime.TelemetryInitializer" android:exported="false" '
    'android:authorities="dev.edgedec.demo.onnxruntime_telemetry_initializer" />'
)


def test_the_apk_passes_all_checks(built: Project, capsys: pytest.CaptureFixture[str]) -> None:
    checks.check(built, built.apk, ABIS)
    assert "signed: v2, v3" in capsys.readouterr().out


def test_core_computes_the_same_after_dx(
    built: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    dexed.check(built, built.work / "classes.dex")
    assert "tests passed" in capsys.readouterr().out


def test_a_changed_constant_of_core_is_flagged(built: Project) -> None:
    """The tests run on the classes that are there, not on those that Maven compiled."""
    folder = built.work / "dexed"
    assert (folder / "core" / "classes").is_dir(), "the test before this one unpacks the classes"
    golden = (0x9E3779B97F4A7C15).to_bytes(8, "big")
    changed = 0
    for file in (folder / "core" / "classes").rglob("*.class"):
        code = file.read_bytes()
        if golden in code:
            file.write_bytes(code.replace(golden, golden[:-1] + b"\x17"))
            changed += 1
    assert changed
    with pytest.raises(CheckError, match="something else after dx"):
        dexed.run_tests(built.built_in(folder))


def test_two_builds_are_equal(built: Project, tmp_path: Path) -> None:
    again = built.built_in(tmp_path / "build")
    build.build(again, ABIS)
    assert again.apk.read_bytes() == built.apk.read_bytes()


def test_the_apk_for_emulators_has_their_libraries(built: Project, tmp_path: Path) -> None:
    other = built.built_in(tmp_path)
    libraries = natives.unpack(other, natives.ABIS)
    other.work.mkdir(exist_ok=True)
    package.make(other, resources.base(built), built.work / "classes.dex", libraries)
    checks.check(other, other.apk, natives.ABIS)
    with pytest.raises(CheckError, match="should say 'arm64-v8a' and says"):
        checks.check(other, other.apk, ABIS)


def with_manifest(project: Project, folder: Path, addition: str, place: str) -> Path:
    """A base.apk whose manifest has an element more, before a closing tag."""
    app = folder / "app"
    shutil.copytree(project.sources, app / "src" / "main")
    manifest = app / "src" / "main" / "AndroidManifest.xml"
    text = manifest.read_text("utf-8")
    assert place in text
    manifest.write_text(text.replace(place, addition + place, 1), "utf-8")
    return resources.build(replace(project.built_in(folder / "build"), app=app))


def test_a_manifest_that_asks_for_the_network_is_flagged(built: Project, tmp_path: Path) -> None:
    base = with_manifest(built, tmp_path, NETWORK, "</manifest>")
    with pytest.raises(CheckError, match=r"asks for android\.permission\.INTERNET"):
        checks.permissions(checks.dump(built, "permissions", base))
    checks.permissions(checks.dump(built, "permissions", built.apk))


def test_a_manifest_that_starts_the_telemetry_is_flagged(built: Project, tmp_path: Path) -> None:
    base = with_manifest(built, tmp_path, PROVIDER, "</application>")
    xml = checks.dump(built, "xmltree", "--file", "AndroidManifest.xml", base)
    with pytest.raises(CheckError, match="starts ONNX Runtime's telemetry"):
        checks.telemetry(xml, [])


def test_a_signature_that_fails_is_flagged(built: Project, tmp_path: Path) -> None:
    unsigned, changed = tmp_path / "unsigned.apk", tmp_path / "changed.apk"
    shutil.copy(built.work / "aligned.apk", unsigned)
    with pytest.raises(CheckError, match="not valid"):
        checks.signature(built, unsigned)
    data = bytearray(built.apk.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    with pytest.raises(CheckError, match="not valid"):
        checks.signature(built, changed)


def test_an_apk_that_is_not_aligned_is_flagged(built: Project) -> None:
    from android_demo.apk.formats import entries

    with pytest.raises(CheckError, match="should begin on 16384 bytes"):
        checks.stored(entries(built.work / "unaligned.apk"))


def test_the_key_stays_in_the_build_folder(built: Project) -> None:
    key = package.key(built)
    assert key.is_relative_to(built.demo / "build")
    with zipfile.ZipFile(built.apk) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".p12")]


def test_an_aar_without_the_libraries_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aar = tmp_path / "some.aar"
    with zipfile.ZipFile(aar, "w") as archive:
        archive.writestr("classes.jar", b"")
    monkeypatch.setenv("ORT_AAR", str(aar))
    with pytest.raises(tools.BuildError, match="has no jni/arm64-v8a"):
        natives.unpack(project.built_in(tmp_path), ABIS)
