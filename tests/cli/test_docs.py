"""Every shell example in docs/cli.md runs as it stands."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stage import Stage

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def examples() -> Iterator[object]:
    found = re.finditer(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for number, match in enumerate(found, 1):
        yield pytest.param(match.group(1), id=str(number))


@pytest.mark.parametrize("script", list(examples()))
def test_the_example_runs(stage: Stage, script: str) -> None:
    # The examples name a folder that a test may not write to.
    script = script.replace("sqlite:///var/lib/app/", f"sqlite://{stage.folder}/")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    env = stage.environment(PATH=path, USER="somebody")
    answer = stage.run(script, program=["bash", "-euc"], env=env)
    assert answer.status == 0, answer
    assert "never" not in answer.out
    for expected in re.findall(r"# (\d+)$", script, re.MULTILINE):
        assert f"status {expected}" in answer.out
