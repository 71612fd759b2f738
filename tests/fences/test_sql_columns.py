"""SQL: columns of the application's own that a fence keeps tokens in."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.fences import SqlFence
from holdfast.fences.sql_dialects import POSTGRESQL, Statements, refuse_narrow
from stores import postgres_server


@pytest.mark.parametrize(
    ("kind", "wide"),
    [
        ("decimal(10,0)", False),
        ("decimal(19,0)", True),
        ("decimal(20,10)", False),
        ("numeric", True),
        ("numeric(12,0)", False),
        ("real", False),
        ("bigint(20)", True),
        ("int(11)", False),
    ],
)
def test_a_column_that_does_not_keep_every_digit_is_refused(kind: str, wide: bool) -> None:
    sql = Statements(POSTGRESQL, "fences", "format", False)
    if wide:
        refuse_narrow("t", "fencing_token", kind, sql)
    else:
        with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
            refuse_narrow("t", "fencing_token", kind, sql)


@pytest.mark.parametrize(("kind", "wide"), [("real", False), ("bigint", True), ("tokens", True)])
def test_a_column_of_postgresql_that_rounds_is_refused_by_update_too(kind: str, wide: bool) -> None:
    with postgres_server().connect() as connection:
        fence = SqlFence(connection)
        connection.execute("DROP TABLE IF EXISTS rounded")
        connection.execute("DROP DOMAIN IF EXISTS tokens")
        connection.execute("CREATE DOMAIN tokens AS bigint")
        connection.execute(f"CREATE TABLE rounded (id int, v int, fencing_token {kind} DEFAULT 0)")
        connection.execute("INSERT INTO rounded VALUES (1, 0)")
        if wide:
            fence.update(connection, "rounded", {"v": 1}, {"id": 1}, 34)
        else:
            with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
                fence.update(connection, "rounded", {"v": 1}, {"id": 1}, 34)
        connection.rollback()
