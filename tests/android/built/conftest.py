"""The APK, built once for all tests of this folder."""

from __future__ import annotations

import pytest

from android_demo.apk import build, natives, tools
from android_demo.apk.project import Project


@pytest.fixture(scope="session")
def project() -> Project:
    """The project, with the fetched tools."""
    project = Project.read()
    try:
        tools.fetch(project)
        natives.find(project)
    except tools.MissingError as error:
        pytest.skip(str(error))
    return project


@pytest.fixture(scope="session")
def built(project: Project) -> Project:
    """The project, with its APK."""
    build.build(project, natives.ABIS[:1])
    return project
