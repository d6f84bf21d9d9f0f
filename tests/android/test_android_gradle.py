"""The Gradle files, which cannot run here, say what pom.xml and the build of the APK say."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from android_demo.apk import checks, natives, resources, stamp
from android_demo.apk.project import DEMO, Project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Project.read()
GRADLE = DEMO / "gradle"
ANDROID = "{http://schemas.android.com/apk/res/android}"
TOOLS = "{http://schemas.android.com/tools}"
MAVEN = "{http://maven.apache.org/POM/4.0.0}"
# A version of the catalogue, and the property of pom.xml that it has to equal.
VERSIONS = {
    "demo": "version",
    "kotlin": "kotlin.version",
    "minSdk": "android.minSdk",
    "onnxruntime": "onnxruntime.version",
    "serialization": "serialization.version",
    "targetSdk": "android.targetSdk",
    "versionCode": "android.versionCode",
}
Mistake = tuple[str, str, str]


def differences(gradle: Path) -> list[str]:
    """Everything that a folder of Gradle files says otherwise than the build of the APK."""
    catalogue = tomllib.loads((gradle / "libs.versions.toml").read_text("utf-8"))
    app, core = ((gradle / f"{name}.gradle.kts").read_text("utf-8") for name in ("app", "core"))
    settings = (gradle / "settings.gradle.kts").read_text("utf-8")
    return [
        *versions(catalogue),
        *packaging(app),
        *dependencies(catalogue, {"app": app, "core": core}),
        *folders(settings, app + core),
        *bytecode(app, core),
        *manifest((gradle / "without-telemetry.xml").read_text("utf-8")),
    ]


def versions(catalogue: dict[str, Any]) -> list[str]:
    stated = {name: value for name, value in catalogue["versions"].items() if name != "agp"}
    wanted = {name: PROJECT[known] for name, known in VERSIONS.items()}
    return [] if stated == wanted else [f"versions {stated}, not {wanted}"]


def lists(text: str, what: str) -> list[str]:
    """The strings of a `what += listOf(...)`."""
    found = re.search(rf"\b{what} \+= listOf\(([^)]*)\)", text)
    return re.findall(r'"([^"]*)"', found[1]) if found else []


def packaging(app: str) -> list[str]:
    wanted = [
        f'namespace = "{PROJECT["android.package"]}"',
        f'applicationId = "{PROJECT["android.package"]}"',
        "minSdk = libs.versions.minSdk.get().toInt()",
        "targetSdk = libs.versions.targetSdk.get().toInt()",
        "compileSdk = libs.versions.targetSdk.get().toInt()",
        "versionCode = libs.versions.versionCode.get().toInt()",
        "versionName = libs.versions.demo.get()",
        "useLegacyPackaging = false",
        'sourceSets.getByName(type).manifest.srcFile("../gradle/without-telemetry.xml")',
        'for (type in listOf("debug", "release"))',
        'rootDir.resolve("../../models/demo/bundle")',
        f'assets.dir("{resources.ASSETS}")',
    ]
    found = [f"app.gradle.kts lacks {line}" for line in wanted if line not in app]
    stored = r"\.(" + "|".join(lists(app, "noCompress")) + ")$"
    if stored != resources.STORED:
        found.append(f"stores {stored}, not {resources.STORED}")
    if tuple(lists(app, "abiFilters")) != natives.ABIS:
        found.append(f"is for {lists(app, 'abiFilters')}, not {natives.ABIS}")
    return found


def dependencies(catalogue: dict[str, Any], scripts: dict[str, str]) -> list[str]:
    """Core's are those of its pom.xml; the app has core, and the AAR for the jar."""
    modules = {name: entry["module"] for name, entry in catalogue["libraries"].items()}
    scopes = {"implementation": "compile", "compileOnly": "provided"}
    stated = {
        (modules[name.replace(".", "-")], scopes[scope])
        for scope, name in re.findall(r"(\w+)\(libs\.([\w.]+)\)", block(scripts["core"]))
    }
    found = [] if stated == of_pom("core") else [f"core needs {stated}, not {of_pom('core')}"]
    lines = {line.strip() for line in block(scripts["app"]).splitlines()} - {""}
    if lines != {'implementation(project(":core"))', "implementation(libs.onnxruntime.android)"}:
        found.append(f"app needs {sorted(lines)}")
    if modules["onnxruntime-android"] != modules["onnxruntime"] + "-android":
        found.append("the AAR is not of the jar's name")
    return found


def block(script: str) -> str:
    """The dependencies of a build file."""
    found = re.search(r"^dependencies \{(.*?)^\}", script, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def of_pom(module: str) -> set[tuple[str, str]]:
    root = ElementTree.parse(DEMO / module / "pom.xml").getroot()
    found = set()
    for entry in root.iterfind(f"{MAVEN}dependencies/{MAVEN}dependency"):
        group, name = (entry.findtext(f"{MAVEN}{key}", "") for key in ("groupId", "artifactId"))
        found.add((f"{group}:{name}", entry.findtext(f"{MAVEN}scope", "compile")))
    return {one for one in found if one[1] != "test"}


def folders(settings: str, scripts: str) -> list[str]:
    """The projects are Maven's modules, with sources where both tools look by default."""
    found = []
    root = ElementTree.parse(DEMO / "pom.xml").getroot()
    modules = [one.text for one in root.iterfind(f"{MAVEN}modules/{MAVEN}module")]
    included = ", ".join(f'":{name}"' for name in modules)
    if f"include({included})" not in settings:
        found.append(f"settings should include {modules}")
    if 'projectDir = file("../$name")' not in settings or "srcDir" in scripts:
        found.append("sources are elsewhere than in core and app")
    if root.findtext(f"{MAVEN}build/{MAVEN}sourceDirectory") != "src/main/kotlin":
        found.append("pom.xml has its sources elsewhere than src/main/kotlin")
    return found


def bytecode(app: str, core: str) -> list[str]:
    level = PROJECT["kotlin.compiler.jvmTarget"].replace(".", "_")
    wanted = {
        f"targetCompatibility = JavaVersion.VERSION_{level}": app,
        f"jvmTarget = JvmTarget.JVM_{level}": core,
    }
    return [f"lacks {line}" for line, script in wanted.items() if line not in script]


def manifest(text: str) -> list[str]:
    root = ElementTree.fromstring(text)
    removed = {
        (one.tag, one.get(f"{ANDROID}name"))
        for one in root.iter()
        if one.get(f"{TOOLS}node") == "remove"
    }
    wanted = {("uses-permission", name) for name in checks.NETWORK}
    wanted.add(("provider", "ai.onnxruntime.TelemetryInitializer"))
    return [] if removed == wanted else [f"the manifest removes {removed}, not {wanted}"]


def test_gradle_says_what_the_build_of_the_apk_says() -> None:
    assert differences(GRADLE) == []


MISTAKES: list[Mistake] = [
    ("libs.versions.toml", 'minSdk = "26"', 'minSdk = "24"'),
    ("libs.versions.toml", 'onnxruntime = "1.', 'onnxruntime = "0.'),
    ("libs.versions.toml", "onnxruntime:onnxruntime-android", "onnxruntime:onnxruntime-mobile"),
    ("app.gradle.kts", 'applicationId = "dev', 'applicationId = "org'),
    ("app.gradle.kts", "targetSdk = libs.versions.targetSdk.get().toInt()", "targetSdk = 34"),
    ("app.gradle.kts", '"onnx", "data"', '"onnx"'),
    ("app.gradle.kts", "useLegacyPackaging = false", "useLegacyPackaging = true"),
    ("app.gradle.kts", '"arm64-v8a", ', ""),
    ("app.gradle.kts", 'listOf("debug", "release")', 'listOf("debug")'),
    ("app.gradle.kts", "(libs.onnxruntime.android)", "(libs.onnxruntime.android)\n    api(x)"),
    ("app.gradle.kts", 'assets.dir("demo")', 'assets.dir("other")'),
    ("core.gradle.kts", "compileOnly(libs.onnxruntime)", "implementation(libs.onnxruntime)"),
    ("core.gradle.kts", "JVM_1_8", "JVM_17"),
    ("core.gradle.kts", "kotlin {", 'kotlin {\n    sourceSets["main"].kotlin.srcDir("x")'),
    ("settings.gradle.kts", '":core", ":app"', '":core"'),
    ("without-telemetry.xml", "permission.INTERNET", "permission.CAMERA"),
    ("without-telemetry.xml", '<provider android:name="ai', '<provider android:name="a'),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[2][:30])
def test_a_difference_is_seen(tmp_path: Path, mistake: Mistake) -> None:
    file, right, wrong = mistake
    copy = tmp_path / "gradle"
    shutil.copytree(GRADLE, copy)
    text = (copy / file).read_text("utf-8")
    assert right in text
    (copy / file).write_text(text.replace(right, wrong, 1), "utf-8")
    assert len(differences(copy)) == 1


def test_a_stamp_holds_until_a_file_changes(tmp_path: Path) -> None:
    copy = tmp_path / "gradle"
    shutil.copytree(GRADLE, copy)
    (copy / "VERIFIED").write_text("never built\n")
    assert "never built the app" in stamp.sentence(copy)
    facts = f"agp 9.0.1\ndate 2027-01-02\nsha256 {stamp.digest(copy)}\n"
    (copy / "VERIFIED").write_text(facts)
    assert stamp.sentence(copy).endswith("plug-in 9.0.1 on 2027-01-02.")
    script = copy / "app.gradle.kts"
    script.write_text(script.read_text("utf-8").replace("\n", "\r\n"), "utf-8", newline="")
    assert stamp.sentence(copy).endswith("2027-01-02.")
    script.write_text(script.read_text("utf-8") + "// more\n", "utf-8")
    assert stamp.sentence(copy).endswith("not since these files changed.")


def test_the_task_that_stamps_hashes_the_same_files() -> None:
    script = (GRADLE / "app.gradle.kts").read_text("utf-8")
    (line,) = re.findall(r"include\((.*)\)", script)
    assert sorted(re.findall(r'"\*(\.\w+)"', line)) == sorted(stamp.SUFFIXES)


def test_readme_says_whether_gradle_was_tried() -> None:
    assert stamp.sentence(GRADLE) in " ".join((DEMO / "README.md").read_text("utf-8").split())
