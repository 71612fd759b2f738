"""SQL: many marks are forgotten in few statements, so that those who begin do not wait for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import MariaSite, PostgresSite, SqlSite
from holdfast.fences import sql_connections, sql_marks

MANY = 620


@pytest.fixture(params=[SqlSite, PostgresSite, MariaSite], ids=lambda one: one.__name__)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.param(tmp_path)
    yield made
    made.close()


def test_many_marks_are_forgotten(site: SqlSite, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = site.connection()
    for number in range(MANY):
        site.fence.guard(connection, f"r{number}", 1000 + number)
    connection.commit()
    sent: list[str] = []
    execute = sql_connections.execute

    def counted(kind: Any, to: Any, request: Any) -> Any:
        sent.append(request.sql)
        return execute(kind, to, request)

    monkeypatch.setattr(sql_connections, "execute", counted)
    assert site.prune() == MANY
    deletes = sum(text.startswith("DELETE") for text in sent)
    assert deletes == (MANY if isinstance(site, MariaSite) else -(-MANY // sql_marks.BATCH))
    for resource in ("r0", f"r{MANY - 1}", "new"):
        with pytest.raises(holdfast.StaleToken):
            site.write(resource, "late", 1000 + MANY - 2)
    site.write("r0", "a", 1000 + MANY - 1)
