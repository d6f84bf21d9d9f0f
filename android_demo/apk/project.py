"""Where everything is, and the versions that pom.xml states."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

DEMO = Path(__file__).resolve().parents[1]
_POM = "{http://maven.apache.org/POM/4.0.0}"


@dataclass(frozen=True)
class Project:
    """The sources of the demo, and the folder that everything is built in.

    Attributes:
        demo: the folder android_demo, or a copy of it
        build: Maven builds its modules in here, and the APK is made in `work` and put here
        app: the app's folder, with a manifest, resources and classes as Android lays them out
        bundle: the bundle that the APK brings
        properties: of pom.xml, without references to others
    """

    demo: Path
    build: Path
    app: Path
    bundle: Path
    properties: dict[str, str]

    @classmethod
    def read(cls, demo: Path = DEMO) -> Project:
        """Return the project whose pom.xml stands in ``demo``."""
        bundle = DEMO.parent / "models" / "demo" / "bundle"
        return cls(demo, demo / "build", demo / "app", bundle, properties(demo / "pom.xml"))

    def built_in(self, build: Path) -> Project:
        """Return the same project, built in another folder."""
        return replace(self, build=build)

    def __getitem__(self, name: str) -> str:
        """Return a property of pom.xml."""
        if name not in self.properties:
            raise KeyError(f"pom.xml has no property {name}")
        return self.properties[name]

    @property
    def work(self) -> Path:
        """Everything on the way to the APK."""
        return self.build / "apk"

    @property
    def tools(self) -> Path:
        """Fetched files, which do not depend on the sources."""
        return self.demo / "build" / "apk" / "tools"

    @property
    def apk(self) -> Path:
        """The result."""
        return self.build / "edgedec-demo.apk"

    @property
    def sources(self) -> Path:
        """The app's folder of the manifest, the resources and the classes."""
        return self.app / "src" / "main"


def properties(pom: Path) -> dict[str, str]:
    """Return the properties of a pom.xml, and its version as `version`."""
    root = ElementTree.parse(pom).getroot()
    found = {"version": root.findtext(f"{_POM}version", "")}
    for element in root.iterfind(f"{_POM}properties/*"):
        found[element.tag.removeprefix(_POM)] = (element.text or "").strip()
    return {name: _filled_in(text, found) for name, text in found.items()}


def _filled_in(text: str, known: dict[str, str]) -> str:
    """Replace ``${name}`` by what it stands for, once; names that Maven knows stay."""
    return re.sub(r"\$\{([^}]+)\}", lambda match: known.get(match[1], match[0]), text)
