"""The doctor of PostgreSQL: what is saved and copied, what is in between, what this user may do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...clock import system_clock
from ...errors import BackendUnavailable, ConfigError, LockError
from ...findings import Findings
from ..sql.failures import Again, Lost, Unready
from ..sql.options import SQL_OPTIONS
from ..sql.questions import LOSES_LOCKS, close_after, judge_newer, judge_time, open_connection
from ..urls import Target, merge_options
from ._sync.backend import database_of

if TYPE_CHECKING:
    from .connection import PostgresConnection
    from .database import PostgresDatabase

HEARD_WITHIN = 1.0
"""Seconds in which a message of our own has to arrive."""
SETTINGS = b"""
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    pg_is_in_recovery(), current_setting('transaction_read_only')
"""
STANDBYS = (
    b"SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM "
    b"pg_stat_replication"
)
TABLES = b"""
SELECT relname, relpersistence::text,
    has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
    AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
FROM pg_class WHERE relname LIKE 'holdfast%' AND relkind = 'r' AND pg_table_is_visible(oid)
"""
PROCEDURES = b"""
SELECT count(*) FROM pg_proc WHERE proname LIKE 'holdfast%' AND pg_function_is_visible(oid)
    AND NOT has_function_privilege(oid, 'EXECUTE')
"""
SCHEMA = b"""
SELECT current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
"""


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the database that a URL names."""
    database, ours = database_of(target)
    merge_options(ours, options, {**SQL_OPTIONS})
    findings = Findings()
    connection = database.connection()
    try:
        open_connection(connection, database.address, deadline)
    except BackendUnavailable as error:
        if not isinstance(error.__cause__, Unready) or "standby" not in str(error):
            raise
        _judge_standby(findings)
        return findings
    with close_after(connection, database.address):
        _judge_settings(findings, connection, deadline)
        _judge_tables(findings, connection, deadline)
        _judge_pooler(findings, connection, deadline)
        _judge_messages(findings, database, connection, deadline)

        def ask() -> float:
            question = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
            return float(connection.run(question, [], deadline)[0][0]) / 1e6

        judge_time(findings, database.address, ask)
    return findings


def _judge_standby(findings: Findings) -> None:
    findings.wrong(
        "replication",
        "it is a standby, or cannot be written to",
        "each lock is a write, so none can be taken here",
        "name the primary, or all servers with target_session_attrs=primary",
    )


def _judge_settings(findings: Findings, connection: PostgresConnection, deadline: float) -> None:
    """Adds what a crash or a failover forgets."""
    row = connection.run(SETTINGS, [], deadline)[0]
    version, fsync, whole_pages, commit, names, recovering, _ = row
    findings.ok("version", f"it is PostgreSQL {version}")
    if recovering:
        _judge_standby(findings)
    if fsync != "on":
        findings.wrong(
            "fsync",
            f"fsync is {fsync}",
            f"a crash of its machine may forget locks, or destroy the database: {LOSES_LOCKS}",
            "ALTER SYSTEM SET fsync = on, and reload",
        )
    elif whole_pages != "on":
        findings.warning(
            "fsync",
            f"full_page_writes is {whole_pages}",
            "a crash of its machine in the middle of a write may destroy pages of the database",
            "ALTER SYSTEM SET full_page_writes = on, and reload",
        )
    else:
        findings.ok("fsync", "a grant is on its disk before it is answered (fsync on)")
    _judge_standbys(findings, connection, commit, names, deadline)


def _judge_standbys(
    findings: Findings, connection: PostgresConnection, commit: str, names: str, deadline: float
) -> None:
    count, waited_for = map(int, connection.run(STANDBYS, [], deadline)[0])
    mend = "set synchronous_standby_names, and synchronous_commit to on; or use a fence"
    if names and commit == "local":
        findings.warning(
            "replication",
            "synchronous_commit is local, so grants do not wait for the standbys that are named",
            f"a failover forgets the locks that had not arrived there: {LOSES_LOCKS}",
            "set synchronous_commit to on, for the user of the locks at least",
        )
    elif names:
        findings.ok("replication", f"grants wait for standbys (synchronous_commit {_said(commit)})")
    elif count and not waited_for:
        standbys = "a standby follows" if count == 1 else f"{count} standbys follow"
        findings.note(
            "replication",
            f"{standbys}, and grants do not wait for it" + ("" if count == 1 else " any of them"),
            f"a failover forgets the locks that had not arrived there: {LOSES_LOCKS}",
            mend,
        )
    else:
        findings.ok("replication", "no standby follows, so no failover can forget locks")


def _said(commit: str) -> str:
    return "off, which grants turn on for themselves" if commit == "off" else commit


def _judge_tables(findings: Findings, connection: PostgresConnection, deadline: float) -> None:
    """Adds whether the tables are there and may be used, or may be created."""
    from . import schema

    tables = connection.run(TABLES, [], deadline)
    names = {name for name, _, _ in tables}
    if "holdfast_store" not in names:
        _judge_schema(findings, connection, deadline)
        return
    volatile = sorted(name for name, persistence, _ in tables if persistence != "p")
    if volatile:
        findings.wrong(
            "tables",
            f"{', '.join(volatile)} {'is' if len(volatile) == 1 else 'are'} not logged",
            f"a crash of the server empties such a table, and no standby has it: {LOSES_LOCKS}",
            f"ALTER TABLE {volatile[0]} SET LOGGED",
        )
    shut = sorted(name for name, _, allowed in tables if not allowed)
    forbidden = int(connection.run(PROCEDURES, [], deadline)[0][0])
    if shut or forbidden:
        what = ", ".join(shut) or f"{forbidden} procedures of holdfast"
        findings.wrong(
            "tables",
            f"this user may not use {what}",
            "each step of a lock reads and writes them",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON them, and EXECUTE ON the procedures, to the user",
        )
        return
    if judge_newer(findings, int(schema.stored_format(connection, deadline) or 0), schema.FORMAT):
        return
    if schema.is_incomplete(connection, deadline):
        findings.warning(
            "tables",
            "some tables or procedures of holdfast are missing",
            "they are created by the next client, if its user may do that",
            "holdfast schema postgresql:// | psql --single-transaction DATABASE",
        )
    elif not volatile:
        findings.ok("tables", "the tables are there, and this user may use them")


def _judge_schema(findings: Findings, connection: PostgresConnection, deadline: float) -> None:
    name, allowed = connection.run(SCHEMA, [], deadline)[0]
    if name and allowed:
        findings.note(
            "tables",
            f"the tables are not there yet; this user may create them in the schema {name}",
            "the first client does that",
        )
        return
    findings.wrong(
        "tables",
        "the tables are not there, and this user may not create them"
        if name
        else "no schema of this user's search_path exists",
        "locks are rows of tables",
        "let somebody who may run: holdfast schema postgresql:// | psql --single-transaction DATABASE",
    )


def _judge_pooler(findings: Findings, connection: PostgresConnection, deadline: float) -> None:
    """Adds whether something lends us connections of others."""
    served = int(connection.run(b"SELECT pg_backend_pid()", [], deadline)[0][0])
    if served == connection.process:
        findings.ok("pooler", "no pooler is in between")
        return
    findings.note(
        "pooler",
        "a pooler is in between, such as PgBouncer",
        "locks work, as each step is one transaction; but a pooler that lends connections for one "
        "transaction passes no messages on, and one that waits for a free connection may be late",
        "give locks a way around it, or a pool with pool_mode = session",
    )


def _judge_messages(
    findings: Findings,
    database: PostgresDatabase,
    connection: PostgresConnection,
    deadline: float,
) -> None:
    """Adds whether waiters can be told at once, by listening to a message of our own."""
    channel, text = f"holdfast_doctor_{os.urandom(6).hex()}", "heard"
    listening = None
    try:
        listening = database.listen(channel, deadline)
        connection.run(b"SELECT pg_notify($1, $2)", [channel.encode(), text.encode()], deadline)
        until = min(deadline, system_clock().now() + HEARD_WITHIN)
        heard = database.hears(listening, channel, text, until)
    except (Lost, Again, LockError, ConfigError):
        heard = False
    finally:
        if listening is not None:
            listening.close()
    if heard:
        findings.ok("listen", "LISTEN works: waiters are told at once")
    else:
        findings.warning(
            "listen",
            "LISTEN does not work here",
            "waiters are not told, but look for themselves, each 10 to 250 ms: slower, and more "
            "queries",
            "give locks a way around the pooler, or a pool with pool_mode = session",
        )
