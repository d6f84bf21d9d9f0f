"""The first step: resources, manifest and assets become base.apk, and the class R."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from android_demo.apk import tools
from android_demo.apk.project import Project

# aapt2 takes everything after the first dot of a name for its extension, so `-0 .data` would not
# find model.onnx.data. ONNX Runtime wants files, and copying is quicker than inflating.
STORED = r"\.(onnx|data|json)$"
ASSETS = "demo"


def base(project: Project) -> Path:
    """Return where the APK without classes and libraries is."""
    return project.work / "base.apk"


def build(project: Project) -> Path:
    """Write base.apk, and R.java under `gen`."""
    work = project.work
    work.mkdir(parents=True, exist_ok=True)
    manifest = work / "AndroidManifest.xml"
    source = (project.sources / "AndroidManifest.xml").read_text("utf-8")
    manifest.write_text(with_package(source, project["android.package"]), "utf-8")
    assets = _stage_assets(project)
    compiled, gen = work / "resources.zip", work / "gen"
    shutil.rmtree(gen, ignore_errors=True)
    aapt2 = tools.aapt2(project)
    tools.run(project, [aapt2, "compile", "--dir", project.sources / "res", "-o", compiled])
    link: tools.Command = [
        aapt2,
        "link",
        "-o",
        base(project),
        "-I",
        tools.jar(project, "android-all"),
    ]
    link += ["--manifest", manifest, "--java", gen, "-A", assets]
    link += ["--min-sdk-version", project["android.minSdk"]]
    link += ["--target-sdk-version", project["android.targetSdk"]]
    link += ["--version-code", project["android.versionCode"]]
    link += ["--version-name", project["version"]]
    tools.run(project, [*link, "--no-compress-regex", STORED, compiled])
    return base(project)


def with_package(manifest: str, package: str) -> str:
    """Return a manifest that names its package, as aapt2 wants it; Gradle has it elsewhere."""
    if re.search(r"<manifest[^>]*\spackage=", manifest):
        raise tools.BuildError("AndroidManifest.xml names a package: pom.xml does, remove it there")
    return manifest.replace("<manifest", f'<manifest package="{package}"', 1)


def _stage_assets(project: Project) -> Path:
    """Copy the bundle to where aapt2 takes assets from, without hidden files."""
    folder = project.work / "assets"
    shutil.rmtree(folder, ignore_errors=True)
    hidden = shutil.ignore_patterns(".*")
    shutil.copytree(project.bundle, folder / ASSETS, ignore=hidden)
    return folder
