"""The tool that runs a Containerfile's steps: how it reads the file. The steps need root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.image_steps import Image, Steps, instructions

TEXT = """# a comment
FROM base AS build
RUN one \\
 && two
HEALTHCHECK --retries=3 \\
  CMD ["python", "-c", "1"]
ENV PATH=/opt/bin:$PATH OTHER=a
USER 1:2
VOLUME /cache
ENTRYPOINT ["edgedec"]
CMD ["serve"]
"""


class Dry(Steps):
    """Steps that note what they would run."""

    ran: str = ""

    def _from(self, rest: str) -> None:
        self.image = Image(Path("/nowhere"))

    def _run(self, rest: str) -> None:
        self.ran = rest


def test_instructions_are_read() -> None:
    steps = Dry(Path(), Path())
    image = steps.run(TEXT)
    assert steps.ran.split() == ["one", "&&", "two"]
    assert image.env == {"PATH": "/opt/bin:/usr/local/bin:/usr/bin:/bin", "OTHER": "a"}
    assert (image.user, image.volumes) == ("1:2", ["/cache"])
    words = {"HEALTHCHECK": ["python", "-c", "1"], "ENTRYPOINT": ["edgedec"], "CMD": ["serve"]}
    assert image.words == words


def test_an_instruction_that_it_does_not_run_is_refused() -> None:
    with pytest.raises(SystemExit, match="ONBUILD"):
        Dry(Path(), Path()).run(TEXT + "ONBUILD RUN three\n")


def test_every_instruction_of_the_image_is_one_that_it_runs(repository: Path) -> None:
    text = (repository / "docs" / "deploy" / "Containerfile").read_text("utf-8")
    names = {name for name, _ in instructions(text)}
    assert {"FROM", "COPY", "RUN", "USER", "HEALTHCHECK", "CMD"} <= names
    assert [name for name in names if not hasattr(Steps, f"_{name.lower()}")] == []
