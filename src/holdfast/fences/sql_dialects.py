"""The statements of `SqlFence`, for each kind of database. Values are marked by `?` everywhere.

One table, a row per resource: `token` is the highest of a writer, `reader` that of a reader. The row
whose resource is empty holds the floors of what was pruned, as JSON. `writes` is raised by every write,
so that a database which counts only rows that really changed counts ours. `touched`, when a token was
last shown, is by the database's clock.

InnoDB, at its usual isolation level, has three habits that make deadlocks where rows are pruned. An
UPDATE that finds no row locks the gap, so that two of them keep each other from making the row anew.
A lock that was waited for stays, on the gap, when the row is deleted meanwhile. And MariaDB counts a
row that `SKIP LOCKED` passes over as one that is waited for, as it looks for deadlocks. So where
`gaps` is set, a writer locks the floors before a row that may be pruned, and whoever prunes finds out
which rows are old without locking them, and then locks these one by one.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..errors import ConfigError

NAME = r'(?:[A-Za-z_][A-Za-z0-9_]{0,62}|"[^"`?%\x00-\x1f]{1,63}")'
"""A name as it is, or in double quotes if it has other characters or capitals that count."""
IDENTIFIER = re.compile(NAME)
QUALIFIED = re.compile(rf"{NAME}(\.{NAME})?")
ROOM = 56
"""Bytes of a fence's table, for `_resets`: PostgreSQL would cut it off, and have one table for two."""


class Dialect(NamedTuple):
    name: str
    exists: str
    """Query that returns a row if the table is there, by table, and schema or NULL."""
    create: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    """Changes to a table of an earlier version: for each a query, by table, and schema or NULL, that
    returns a row if the table has the change, and the statement that makes it."""
    column_type: str
    """Query for the type of a column, by table, schema or NULL, and column; with what `placed` asks
    for, and the character set, where there is one."""
    now: str
    ago: str
    """Expression for the time so many seconds ago."""
    share: str
    """Clause behind a SELECT: nobody else changes the rows until we have committed."""
    own: str
    """Clause behind a SELECT: nobody else locks the rows in any way until we have committed."""
    absent: str
    """Clause behind an INSERT: a row that is there already stays as it is, and is not counted as 1."""
    skip: str
    """Clause behind a SELECT: locks the rows, and leaves out those that others have locked."""
    every: str
    """Clause behind a SELECT: all rows, also where the session limits queries that name no limit."""
    engine: str
    """Query for the storage engine of a table, by table, and schema or NULL, where some engines have
    no transactions."""
    quote: str = "`"
    """The sign around a name that may be a word of the language."""
    binary: bool = False
    """True if text is given as bytes, since only these compare exactly."""
    exactly: str = "{}"
    """Expression by which a text column of the user's is compared byte by byte."""
    text: str = "?"
    """Expression for a text that is given by `encoder`, whatever the connection's character set."""
    counts_changes: bool = False
    """True if an UPDATE does not count a row in which it changes nothing."""
    gaps: bool = False
    """True if an UPDATE that finds nothing locks the gap, in which others then cannot INSERT."""
    forgets_shares: bool = False
    """True if a transaction that is prepared (`XA PREPARE`) gives up its shared locks there."""
    placed: str = ""
    """Condition that a table is still the one whose columns were looked at: a session may go to
    another database, or schema. Empty if they are looked at each time."""


POSTGRESQL = Dialect(
    name="postgresql",
    exists="SELECT 1 FROM (SELECT ?::text AS name, ?::text AS place) AS given "
    "WHERE to_regclass(concat_ws('.', place, name)) IS NOT NULL",
    create=(
        # Two that make a table at once, "if not exists" or not, may collide in the catalogue.
        "SELECT pg_advisory_xact_lock(7236018430951)",
        "CREATE TABLE IF NOT EXISTS {table} (resource text PRIMARY KEY, token bigint NOT NULL, "
        "lock_id text NOT NULL, writes bigint NOT NULL, touched timestamptz NOT NULL, "
        "reader bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50)",
        "CREATE TABLE IF NOT EXISTS {resets} (at timestamptz NOT NULL, "
        "by_whom text NOT NULL, resource text NOT NULL, token bigint NOT NULL, "
        "lock_id text NOT NULL)",
    ),
    changes=(
        (
            "SELECT 1 FROM pg_attribute, (SELECT ?::text AS name, ?::text AS place) AS given "
            "WHERE attrelid = to_regclass(concat_ws('.', place, name)) AND attname = 'reader'",
            "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS reader bigint NOT NULL DEFAULT 0",
        ),
    ),
    # The type of a domain is the one below it, which may be another domain.
    column_type="WITH RECURSIVE types AS ("
    "SELECT atttypid AS kind, atttypmod AS more, CAST(attrelid AS bigint) AS place FROM pg_attribute, "
    "(SELECT ?::text AS name, ?::text AS place) AS given "
    "WHERE attrelid = to_regclass(concat_ws('.', given.place, given.name)) AND attname = ? "
    "AND NOT attisdropped "
    "UNION ALL SELECT typbasetype, typtypmod, place FROM types JOIN pg_type ON pg_type.oid = kind "
    "WHERE typbasetype <> 0) "
    "SELECT format_type(kind, more), place, NULL FROM types JOIN pg_type ON pg_type.oid = kind "
    "WHERE typbasetype = 0",
    now="clock_timestamp()",
    ago="clock_timestamp() - make_interval(secs => ?)",
    share=" FOR SHARE",
    own=" FOR UPDATE",
    absent=" ON CONFLICT DO NOTHING",
    skip=" FOR UPDATE SKIP LOCKED",
    every="",
    engine="",
    quote='"',
    placed="CAST(CAST(to_regclass(CAST(? AS text)) AS oid) AS bigint) = ?",
)

# Not UNIX_TIMESTAMP(SYSDATE(6)), which goes by the session's zone, where an hour comes twice a year.
MYSQL_NOW = (
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) "
    "+ GREATEST(0, TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)))) / 1e6"
)
"""The seconds since 1970; the second part is those since the statement began, which may have waited."""

MYSQL = Dialect(
    name="mysql",
    exists="SELECT 1 FROM information_schema.tables "
    "WHERE table_name = ? AND table_schema = COALESCE(?, DATABASE())",
    create=(
        "CREATE TABLE IF NOT EXISTS {table} (resource VARBINARY(1024) NOT NULL PRIMARY KEY, "
        "token BIGINT NOT NULL, lock_id LONGBLOB NOT NULL, writes BIGINT NOT NULL, "
        "touched DOUBLE NOT NULL, reader BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS {resets} (at DOUBLE NOT NULL, "
        "by_whom VARBINARY(1024) NOT NULL, resource VARBINARY(1024) NOT NULL, "
        "token BIGINT NOT NULL, lock_id VARBINARY(8192) NOT NULL) ENGINE=InnoDB",
    ),
    changes=(
        (
            "SELECT 1 FROM information_schema.columns WHERE table_name = ? "
            "AND table_schema = COALESCE(?, DATABASE()) AND column_name = 'reader'",
            "ALTER TABLE {table} ADD COLUMN reader BIGINT NOT NULL DEFAULT 0",
        ),
        (
            "SELECT 1 FROM information_schema.columns WHERE table_name = ? "
            "AND table_schema = COALESCE(?, DATABASE()) AND column_name = 'lock_id' "
            "AND data_type = 'longblob'",
            "ALTER TABLE {table} MODIFY lock_id LONGBLOB NOT NULL",
        ),
    ),
    column_type="SELECT column_type, CAST(COALESCE(DATABASE(), '') AS BINARY), character_set_name "
    "FROM information_schema.columns "
    "WHERE table_name = ? AND table_schema = COALESCE(?, DATABASE()) AND column_name = ?",
    now=MYSQL_NOW,
    ago=f"{MYSQL_NOW} - ?",
    share=" LOCK IN SHARE MODE",
    own=" FOR UPDATE",
    # A row that changes is counted twice, also by a client that has those counted that do not.
    absent=" ON DUPLICATE KEY UPDATE writes = writes + 1",
    skip=" FOR UPDATE SKIP LOCKED",
    every=" LIMIT 18446744073709551615",
    engine="SELECT engine FROM information_schema.tables "
    "WHERE table_name = ? AND table_schema = COALESCE(?, DATABASE())",
    binary=True,
    # Its collation may know no case, no accents and no blanks at the end: two locks would be one.
    exactly="CAST(CONVERT({} USING utf8mb4) AS BINARY)",
    text="CONVERT(CAST(? AS BINARY) USING utf8mb4)",
    counts_changes=True,
    gaps=True,
    forgets_shares=True,
    placed="CAST(COALESCE(DATABASE(), '') AS BINARY) = ?",
)

SQLITE = Dialect(
    name="sqlite",
    exists="SELECT 1 FROM pragma_table_info(?, ?)",
    create=(
        "CREATE TABLE IF NOT EXISTS {table} (resource TEXT PRIMARY KEY NOT NULL, "
        "token INTEGER NOT NULL, lock_id TEXT NOT NULL, writes INTEGER NOT NULL, "
        "touched REAL NOT NULL, reader INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
        "CREATE TABLE IF NOT EXISTS {resets} (at REAL NOT NULL, by_whom TEXT NOT NULL, "
        "resource TEXT NOT NULL, token INTEGER NOT NULL, lock_id TEXT NOT NULL)",
    ),
    changes=(
        (
            "SELECT 1 FROM pragma_table_info(?, ?) WHERE name = 'reader'",
            "ALTER TABLE {table} ADD COLUMN reader INTEGER NOT NULL DEFAULT 0",
        ),
    ),
    column_type="SELECT type, NULL, NULL FROM pragma_table_info(?, ?) WHERE name = ? COLLATE NOCASE",
    now="(julianday('now') - 2440587.5) * 86400.0",
    ago="(julianday('now') - 2440587.5) * 86400.0 - ?",
    own="",
    share="",  # whoever writes has the whole file to himself
    absent=" ON CONFLICT DO NOTHING",
    skip="",
    every="",
    engine="",
)

DIALECTS = {
    "postgresql": POSTGRESQL,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
}


class Statements:
    """The statements for one dialect, table and way of marking values, made once."""

    def __init__(self, dialect: Dialect, table: str, style: str, single_use: bool) -> None:
        self.dialect = dialect
        self.table = table
        self.style = style
        self.table = table
        resets = self.quoted(_longer(table, "_resets"))
        table = self.quoted(table)
        lower = "<" if single_use else "<="
        touch = f"writes = writes + 1, touched = {dialect.now}"
        where = f"WHERE resource = ? AND token {lower} ? AND reader <= ?"
        self.update = self.mark(f"UPDATE {table} SET token = ?, {touch} {where}")
        self.update_locked = self.mark(
            f"UPDATE {table} SET token = ?, {touch}, lock_id = ? {where} AND lock_id IN ('', ?)"
        )
        again = f"UPDATE {table} SET {touch} WHERE resource = ? AND token = ? AND reader <= token"
        self.again = self.mark(again)
        self.again_locked = self.mark(f"{again} AND lock_id = ?")
        read = f"UPDATE {table} SET reader = CASE WHEN reader < ? THEN ? ELSE reader END, {touch}"
        self.read = self.mark(f"{read} WHERE resource = ? AND token <= ?")
        self.read_locked = self.mark(
            f"{read}, lock_id = ? WHERE resource = ? AND token <= ? AND lock_id IN ('', ?)"
        )
        seen = f"SELECT token, lock_id, reader FROM {table} WHERE resource = ?"
        self.peek = self.mark(seen)
        self.look = self.mark(f"{seen}{dialect.share}")
        self.look_own = self.mark(f"{seen}{dialect.own}")
        self.floors = self.mark(f"SELECT lock_id FROM {table} WHERE resource = ''{dialect.share}")
        self.begin = self.mark(
            f"INSERT INTO {table} (resource, token, lock_id, writes, touched, reader) "
            f"VALUES (?, ?, '', 0, {dialect.now}, ?){dialect.absent}"
        )
        self.exists = self.mark(dialect.exists)
        self.changes = tuple(
            (self.mark(query), self.mark(text.format(table=table, resets=resets)))
            for query, text in dialect.changes
        )
        self.installed = self.mark(f"SELECT 1 FROM {table} WHERE resource = ''")
        self.create = tuple(
            self.mark(text.format(table=table, resets=resets)) for text in dialect.create
        )
        self.first_floors = self.mark(
            f"INSERT INTO {table} (resource, token, lock_id, writes, touched) "
            f"VALUES ('', 0, ?, 0, {dialect.now}){dialect.absent}"
        )
        self.lock_floors = self.mark(f"UPDATE {table} SET {touch} WHERE resource = ''")
        self.set_floors = self.mark(f"UPDATE {table} SET {touch}, lock_id = ? WHERE resource = ''")
        self.living = self.mark(
            f"SELECT max(token), lock_id, max(reader) FROM {table} WHERE resource <> '' "
            "AND lock_id <> '' GROUP BY lock_id HAVING max(token) < ? AND max(reader) < ?"
            f"{dialect.every}"
        )
        old = (
            f"SELECT resource, token, lock_id, reader FROM {table} WHERE touched <= {dialect.ago} "
            "AND token <= ? AND reader <= ?"
        )
        locked = dialect.every if dialect.gaps else dialect.skip
        self.old = self.mark(f"{old} AND resource <> ''{locked}")
        self.lock_old = self.mark(f"{old} AND resource = ?{dialect.skip}")
        self._forget = f"DELETE FROM {table} WHERE resource IN "
        self.reset = self.mark(
            f"UPDATE {table} SET token = ?, reader = 0, lock_id = '', {touch} WHERE resource = ?"
        )
        self.audit = self.mark(
            f"INSERT INTO {resets} (at, by_whom, resource, token, lock_id) "
            f"VALUES ({dialect.now}, ?, ?, ?, ?)"
        )
        self.engine = self.mark(dialect.engine)
        self.column_type = self.mark(dialect.column_type)

    def forget(self, count: int) -> str:
        """Returns the statement that deletes the rows of so many resources."""
        return self.mark(f"{self._forget}({', '.join('?' * count)})")

    def quoted(self, name: str) -> str:
        """Returns a table or a column as it stands in a statement, also if its name is a keyword."""
        sign = self.dialect.quote
        return ".".join(f"{sign}{part}{sign}" for part in self.parts(name))

    def parts(self, name: str) -> list[str]:
        """Returns the parts of a name as the database keeps them."""
        found: list[str] = IDENTIFIER.findall(name)
        folds = self.dialect.quote == '"'  # what stands without quotes is in small letters there
        plain = str.lower if folds else str
        return [part[1:-1] if part.startswith('"') else plain(part) for part in found]

    def place(self, table: str) -> tuple[str, str | None]:
        """Returns table, and schema or None, as the queries about tables take them."""
        *schema, name = self.parts(table)
        if self.dialect is POSTGRESQL:
            return f'"{name}"', f'"{schema[0]}"' if schema else None
        return name, schema[0] if schema else None

    def mark(self, text: str) -> str:
        """Returns `text` with the driver's own marks in place of `?`."""
        if self.style == "qmark":
            return text
        if self.style in ("format", "pyformat"):
            return text.replace("%", "%%").replace("?", "%s")
        if self.style in ("numeric", "numeric_dollar"):
            sign = ":" if self.style == "numeric" else "$"
            parts = text.split("?")
            marked = "".join(f"{part}{sign}{n}" for n, part in enumerate(parts[:-1], 1))
            return marked + parts[-1]
        raise ConfigError(f"SqlFence cannot mark values in the style {self.style!r}")


def encoder(sql: Statements) -> Any:
    """Returns the function that turns a text into what this database is given."""
    return str.encode if sql.dialect.binary else str


def text_of(value: Any) -> str:
    """Returns a text as it was before `encoder`."""
    return bytes(value).decode() if isinstance(value, bytes | bytearray | memoryview) else value


def identifier(what: str, name: object, pattern: re.Pattern[str] = IDENTIFIER) -> str:
    """Returns `name` if it may become part of a statement."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise ConfigError(
            f"{what} must be a plain SQL name, or one in double quotes, not {name!r:.80}"
        )
    return name


def fence_table(name: object) -> str:
    """Returns the name of a fence's table, perhaps with a schema, checked."""
    table = identifier("table", name, QUALIFIED)
    if len(IDENTIFIER.findall(table)[-1].strip('"').encode()) > ROOM:
        raise ConfigError(f"table must have at most {ROOM} letters, not {table!r:.80}")
    return table


def _longer(table: str, suffix: str) -> str:
    """Returns the name of another table beside this one."""
    return f'{table[:-1]}{suffix}"' if table.endswith('"') else f"{table}{suffix}"
