"""`holdfast token`: makes, lists and revokes the bearer tokens of the service."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..service.security import session_key, token_file
from ..service.security.badge import ROLES, Badge
from ..service.security.bearer import BEGINNING, ID_LENGTH, generate, parse
from . import encoding
from .arguments import Arguments, UsageError, read, unknown
from .drawing import BOLD, DIM, RED, Cell, Column, Pen, visible
from .durations import briefly, seconds
from .report import say

OPTIONS = {
    "--role": "ROLE",
    "--prefix": "PREFIX",
    "--namespace": "NAMESPACE",
    "--expires": "TIME",
    "--name": "TEXT",
    "--expired": "",
    "--token-file": "PATH",
    "--json": "",
}
VERBS = {
    "create": {"--role", "--prefix", "--namespace", "--expires", "--name"},
    "list": set[str](),
    "revoke": {"--expired"},
}
"""The verbs, each with the options that are its own."""
_TOKEN = re.compile(rf"({BEGINNING}[0-9A-Za-z]{{0,{ID_LENGTH}}}_?).+", re.ASCII | re.DOTALL)
_SECRET = re.compile(r"[0-9A-Za-z]{20,}", re.ASCII)
"""A word that is too long for an id: it may be a secret, or a part of one."""


def main(words: list[str]) -> int:
    """Does what the verb says, and returns the exit status."""
    given = read(words, OPTIONS, "create|list|revoke [ID…]")
    verb, *token_ids = given.operands
    if verb not in VERBS:
        raise unknown("token command", _shown(verb), list(VERBS))
    for option in given.options:
        if option not in VERBS[verb] | {"--token-file", "--json"}:
            raise UsageError(f"`holdfast token {verb}` takes no {option}")
    if token_ids and verb != "revoke":
        word = _shown(token_ids[0])
        raise UsageError(f"`holdfast token {verb}` takes no further word: {word!r:.80}")
    path = given.options.get("--token-file") or token_file.default_path()
    if verb == "create":
        return _create(path, given)
    return _list(path, given) if verb == "list" else _revoke(path, token_ids, given)


def _create(path: str, given: Arguments) -> int:
    options = given.options
    role = options.get("--role")
    if role is None:
        raise UsageError(f"say what the token allows: --role {'|'.join(ROLES)}")
    if role not in ROLES:
        raise unknown("role", role, ROLES)
    prefixes = tuple(dict.fromkeys(given.every("--prefix")))
    if not prefixes and role != "metrics":
        raise UsageError(
            "say which locks the token is for: --prefix billing: for those whose names start so, "
            "--prefix '' for all"
        )
    now = time.time()
    length = seconds("--expires", options["--expires"]) if "--expires" in options else None
    if length == 0:
        raise UsageError("--expires 0 would make a token that nobody can use")
    text, bearer = generate()
    badge = Badge(
        id=bearer.id,
        digest=bearer.digest,
        name=options.get("--name") or _user(),
        role=role,
        prefixes=prefixes,
        namespace=options.get("--namespace"),
        created=round(now, 3),
        expires=None if length is None else round(now + length, 3),
    )
    token_file.add(path, badge)
    session_key.ensure(path)
    pen = Pen(sys.stdout)
    if "--json" in options:
        pen.write(encoding.dumps({"token": text, **_record(badge, now)}) + "\n")
    else:
        pen.write(text + "\n")
        say(
            f"this token is shown once, and only its digest is kept; revoke it by its id, {badge.id}"
        )
    return 0


def _list(path: str, given: Arguments) -> int:
    badges = _badges(path)
    now = time.time()
    pen = Pen(sys.stdout)
    if "--json" in given.options:
        pen.write(encoding.dumps([_record(badge, now) for badge in badges.values()]) + "\n")
    elif not badges:
        say(f"there is no token in {path}")
    else:
        columns = [
            Column("ID"),
            Column("NAME", least=8),
            Column("ROLE"),
            Column("PREFIXES", least=8),
            Column("NAMESPACE", least=8, spare=2),
            Column("MADE", right=True, spare=1),
            Column("ENDS", right=True),
        ]
        rows = [_row(badge, now) for badge in badges.values()]
        pen.write("\n".join(pen.table(columns, rows)) + "\n")
    return 0


def _revoke(path: str, token_ids: Sequence[str], given: Arguments) -> int:
    expired = "--expired" in given.options
    if not token_ids and not expired:
        raise UsageError("ID is missing; `holdfast token list` has the ids")
    wanted = [_id_of(word) for word in token_ids]
    if expired:
        now = time.time()
        wanted += [badge.id for badge in _badges(path).values() if badge.expired(now)]
    removed = token_file.remove(path, wanted) if wanted else []
    if "--json" in given.options:
        record = [_record(badge, time.time()) for badge in removed]
        Pen(sys.stdout).write(encoding.dumps(record) + "\n")
    elif not removed:
        say("no token has expired")
    for badge in removed if "--json" not in given.options else ():
        say(f"the token {badge.id} of {badge.name} is revoked")
    return 0


def _id_of(word: str) -> str:
    """Returns the id in a word that may be the whole token, or nearly: its secret is never shown."""
    bearer = parse(word.strip())
    return _shown(word) if bearer is None else bearer.id


def _shown(word: str) -> str:
    """Returns a word that should have been another, without what may be the secret of a token in it."""
    return _SECRET.sub("…", _TOKEN.sub(r"\1…", word))


def _badges(path: str) -> Mapping[str, Badge]:
    try:
        return token_file.load(path)[0]
    except FileNotFoundError:
        return {}


def _record(badge: Badge, now: float) -> dict[str, Any]:
    """Returns a badge for programs, without its digest."""
    record = badge._asdict()
    del record["digest"]
    return {**record, "prefixes": list(badge.prefixes), "expired": badge.expired(now)}


def _row(badge: Badge, now: float) -> list[Cell]:
    if badge.expires is None:
        ends = Cell("never", DIM)
    elif badge.expired(now):
        ends = Cell("expired", RED)
    else:
        ends = Cell(f"in {briefly(badge.expires - now)}")
    names = ", ".join(prefix or "all names" for prefix in badge.prefixes) or "none"
    return [
        Cell(badge.id, BOLD),
        Cell(visible(badge.name)),
        Cell(badge.role),
        Cell(visible(names)),
        Cell(visible(badge.namespace or "all")),
        Cell(f"{briefly(now - badge.created)} ago", DIM),
        ends,
    ]


def _user() -> str:
    """Returns the name of the user who makes a token, for one that is given no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
