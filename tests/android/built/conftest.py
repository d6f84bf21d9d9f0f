"""The APK, built once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from filelock import FileLock

from android_demo.apk import build, natives, tools
from android_demo.apk.project import Project


@pytest.fixture(scope="session")
def project() -> Iterator[Project]:
    """The project, with the fetched tools; the build folder is one worker's at a time."""
    project = Project.read()
    project.tools.mkdir(parents=True, exist_ok=True)
    with FileLock(project.tools / "lock"):
        try:
            tools.fetch(project)
            natives.find(project)
        except tools.MissingError as error:
            pytest.skip(str(error))
        yield project


@pytest.fixture(scope="session")
def built(project: Project) -> Project:
    """The project, with its APK."""
    build.build(project, natives.ABIS[:1])
    return project
