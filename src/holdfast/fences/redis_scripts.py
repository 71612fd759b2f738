"""The scripts of `RedisFence`: the check of a token, and behind it the write that it guards."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha1
from typing import NamedTuple

_FOLDER = os.path.join(os.path.dirname(__file__), "scripts")


class Script(NamedTuple):
    """The text of a script, and the name by which the server knows it."""

    text: str
    sha: str


SET = "return redis.call('SET', KEYS[1], ARGV[1])"
SET_PX = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"
DELETE = "return redis.call('DEL', KEYS[1])"


@cache
def script_for(body: str) -> Script:
    """Returns the check, and behind it a body that sees its own keys and arguments.

    A refusal is a list of three. What a body of the user's answers is put into a list of one.
    """
    check = read_script("check.lua")
    if not body:
        text = f"{check}\nreturn 1"
    elif body in (SET, SET_PX, DELETE):  # ours, whose answers are no lists
        own = body.replace("ARGV[2]", "ARGV[5]").replace("ARGV[1]", "ARGV[4]")
        text = f"{check}\n{own.replace('KEYS[1]', 'KEYS[3]')}"
    else:
        text = (
            f"{check}\nlocal function body(KEYS, ARGV)\n{body}\nend\n"
            "local answer = body({unpack(KEYS, 3)}, {unpack(ARGV, 4)})\n"
            "if type(answer) == 'table' and answer.err then return answer end\n"
            "return {answer or false}"
        )
    return script_of(text)


@cache
def read_script(name: str) -> str:
    """Returns a script without its comments, which would be kept in the server's memory."""
    with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
        lines = file.read().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))


@cache
def script_of(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
