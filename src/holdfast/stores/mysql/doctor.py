"""The doctor of MySQL and MariaDB: what is saved, the tables' engine, Galera, what this user may do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...findings import Findings
from ..sql.options import SQL_OPTIONS
from ..sql.questions import LOSES_LOCKS, close_after, judge_newer, judge_time, open_connection
from ..urls import Target, merge_options
from ._sync.backend import database_of

if TYPE_CHECKING:
    from .connection import MysqlConnection

VARIABLES = (
    "innodb_flush_log_at_trx_commit",
    "read_only",
    "super_read_only",
    "wsrep_on",
    "wsrep_sync_wait",
    "version",
    "version_comment",
)
STATES = ("wsrep_cluster_status", "wsrep_ready", "wsrep_cluster_size", "wsrep_local_state_comment")
NEEDED = ("SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE")
CREATING = ("CREATE", "CREATE ROUTINE", "ALTER ROUTINE")
INSTALL = "let somebody who may run: holdfast schema mysql:// | mysql DATABASE"


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the database that a URL names."""
    database, ours = database_of(target)
    merge_options(ours, options, {**SQL_OPTIONS})
    findings = Findings()
    connection = database.connection()
    open_connection(connection, database.address, deadline)
    with close_after(connection, database.address):
        _examine(findings, connection, deadline)

        def ask() -> float:
            question = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)"
            return float(connection.run(question, deadline)[0][0]) / 1e6

        judge_time(findings, database.address, ask)
    return findings


def _examine(findings: Findings, connection: MysqlConnection, deadline: float) -> None:
    known = _show(connection, "VARIABLES", VARIABLES, deadline)
    if not _judge_version(findings, known.get("version", "")):
        return
    _judge_saving(findings, known.get("innodb_flush_log_at_trx_commit", "1"))
    if "ON" in (known.get("read_only"), known.get("super_read_only")):
        findings.wrong(
            "read-only",
            "the server is read-only (read_only is ON)",
            "each lock is a write; users with SUPER may still write, which no replica should let "
            "happen",
            "name the primary; on a primary: SET GLOBAL read_only = OFF",
        )
    else:
        findings.ok("read-only", "it can be written to")
    _judge_tables(findings, connection, deadline)
    if known.get("wsrep_on") == "ON":
        states = _show(connection, "GLOBAL STATUS", STATES, deadline)
        _judge_galera(findings, states, known.get("wsrep_sync_wait", "0"))


def _show(
    connection: MysqlConnection, what: str, names: tuple[str, ...], deadline: float
) -> dict[str, str]:
    listed = ", ".join(f"'{name}'" for name in names)
    rows = connection.run(f"SHOW {what} WHERE Variable_name IN ({listed})", deadline)
    return {str(name).lower(): str(value) for name, value in rows}


def _judge_version(findings: Findings, version: str) -> bool:
    """Adds which version it is; returns whether it is new enough."""
    from . import schema

    try:
        schema.refuse_old(version)
    except ConfigError as error:
        findings.wrong(
            "version",
            str(error),
            "its procedures use JSON_TABLE, SKIP LOCKED and window functions",
            "update the server",
        )
        return False
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    findings.ok("version", f"it is {kind} {version.partition('-')[0]}")
    return True


def _judge_saving(findings: Findings, value: str) -> None:
    name = "innodb_flush_log_at_trx_commit"
    if value == "1":
        findings.ok("fsync", f"a grant is on its disk before it is answered ({name} is 1)")
        return
    who = "the server or its machine" if value == "0" else "its machine"
    findings.warning(
        "fsync",
        f"{name} is {value}",
        f"a crash of {who} forgets the locks of the last second: {LOSES_LOCKS}",
        f"SET GLOBAL {name} = 1, and write it into my.cnf; on Galera, whose other servers remember, it "
        "matters only if all crash at once",
    )


def _judge_tables(findings: Findings, connection: MysqlConnection, deadline: float) -> None:
    """Adds whether the tables are there, of what engine, and whether this user may use them."""
    from . import schema

    listed = ", ".join(repr(name) for name in schema.TABLES)
    rows = connection.run(
        "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() "
        f"AND table_name IN ({listed})",
        deadline,
    )
    rights = _rights(connection, deadline)
    if not rows:
        missing = _missing(rights, CREATING)
        if missing:
            findings.wrong(
                "tables",
                f"the tables are not there, and this user may not create them ({missing})",
                "locks are rows of tables",
                INSTALL,
            )
        else:
            findings.note(
                "tables",
                "the tables are not there yet; this user may create them",
                "the first client does that",
            )
        return
    foreign = [(table, engine) for table, engine in rows if str(engine).lower() != "innodb"]
    for table, engine in foreign:
        findings.wrong(
            "engine",
            f"the table {table} has the engine {engine}",
            f"it has no transactions, so half a step may be seen, or kept after a crash: {LOSES_LOCKS}",
            f"ALTER TABLE {table} ENGINE = InnoDB",
        )
    if not foreign:
        findings.ok("engine", "the tables have the engine InnoDB")
    if len(rows) < len(schema.TABLES):
        findings.warning(
            "tables",
            f"{len(rows)} of {len(schema.TABLES)} tables are there",
            "the others are created by the next client, if its user may do that",
            INSTALL,
        )
        return
    missing = _missing(rights, NEEDED)
    if missing:
        findings.wrong(
            "tables",
            f"this user may not use the tables and procedures ({missing})",
            "each step of a lock is a procedure that reads and writes them",
            f"GRANT {', '.join(NEEDED)} ON DATABASE.* TO USER",
        )
    elif not judge_newer(
        findings, int(schema.stored_format(connection, deadline) or 0), schema.FORMAT
    ):
        findings.ok("tables", "the tables are there, and this user may use them")


def _rights(connection: MysqlConnection, deadline: float) -> set[str] | None:
    """Returns what this user may do in this database; None if that cannot be told."""
    database = str(connection.run("SELECT DATABASE()", deadline)[0][0])
    rights: set[str] = set()
    for (line,) in connection.run("SHOW GRANTS", deadline):
        found = re.match(r"GRANT (.*) ON (.*?) TO ", str(line))
        if found is None:
            return None  # a role, whose rights are not shown
        scope = found[2].replace("`", "").replace("\\", "")
        if scope in ("*.*", f"{database}.*"):
            rights |= {word.strip() for word in found[1].split(",")}
        elif "%" in scope or scope.startswith((f"{database}.", "PROCEDURE ", "FUNCTION ")):
            return None
    return rights


def _missing(rights: set[str] | None, needed: tuple[str, ...]) -> str:
    if rights is None or rights & {"ALL PRIVILEGES", "ALL"}:
        return ""
    missing = [right for right in needed if right not in rights]
    return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""


def _judge_galera(findings: Findings, states: dict[str, str], waits: str) -> None:
    status = states.get("wsrep_cluster_status", "")
    state = states.get("wsrep_local_state_comment", "")
    size = states.get("wsrep_cluster_size", "0")
    if status != "Primary" or states.get("wsrep_ready") != "ON":
        findings.wrong(
            "galera",
            f"this server is not part of a majority of its Galera cluster ({status or state})",
            "it refuses all statements until it is, so no lock can be taken here",
            "name another server; look at wsrep_cluster_status on each, and at the network "
            "between them",
        )
        return
    if int(size) < 3:
        findings.warning(
            "galera",
            f"the Galera cluster has {size} {'server' if size == '1' else 'servers'}",
            "if one of two fails, the other has no majority, and no lock can be taken",
            "run three servers, or an arbitrator (garbd)",
        )
    else:
        findings.ok("galera", f"the Galera cluster has {size} servers, and this one is {state}")
    if not int(waits) & 1:
        findings.note(
            "galera-reads",
            f"wsrep_sync_wait is {waits}",
            "if clients come to another server with each connection (a load balancer), a renewal "
            "may not "
            "find a lease that was granted a moment ago on another: the lease is lost",
            "SET GLOBAL wsrep_sync_wait = 7, or let each client stay with one server",
        )
