"""docs/service-security.md: its shell example runs, its limits are those of the service."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import fields
from pathlib import Path

from cli.stage import Stage
from holdfast.service.security.badge import ROLES
from holdfast.service.security.limits import Limits
from holdfast.service.security.options import SecurityOptions

PAGE = (Path(__file__).parents[3] / "docs" / "service-security.md").read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    try:
        (script,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        env = stage.environment(PATH=path)
        env["HOLDFAST_SERVE_TOKEN_FILE"] = str(tmp_path / "tokens.json")
        program = f'holdfast() {{ {sys.executable} -m holdfast "$@"; }}\n{script}'
        answer = stage.run(program, program=["bash", "-euc"], env=env)
        assert answer.status == 0, answer
        assert "billing-worker" in answer.out
        assert "is revoked" in answer.err
    finally:
        stage.close()


def test_every_limit_role_and_option_is_there() -> None:
    for field in fields(Limits):
        assert f"`{field.name}`" in PAGE, field.name
    for role in ROLES:
        assert f"| `{role}` |" in PAGE
    for name in ("--token-file", "--tls-cert", "--tls-key", "--behind-tls-proxy", "--allowed-host"):
        assert name in PAGE
    assert f"{Limits().requests_per_second:g}, {Limits().requests_at_once:g}" in PAGE
    assert SecurityOptions().behind_tls_proxy is False
