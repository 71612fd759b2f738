"""The text of a bearer token: recognised as a whole, and by nothing less."""

from __future__ import annotations

import random

from holdfast.service.access_log import line_of
from holdfast.service.hooks import Finished
from holdfast.service.security.bearer import LENGTH, generate, parse


def test_a_token_is_recognised() -> None:
    text, bearer = generate()
    assert len(text) == LENGTH
    assert parse(text) == bearer
    assert bearer.id in text
    assert text[20:] not in repr(bearer)


def test_no_two_are_alike() -> None:
    made = [generate() for _ in range(200)]
    assert len({text for text, _ in made}) == len({bearer.id for _, bearer in made}) == 200


def test_a_character_that_was_mistyped_is_noticed() -> None:
    chance = random.Random(1)
    text, _ = generate()
    for place in range(len(text)):
        other = chance.choice([c for c in "abcXYZ019_-é" if c != text[place]])
        assert parse(text[:place] + other + text[place + 1 :]) is None


def test_what_is_around_it_is_no_part_of_it() -> None:
    text, _ = generate()
    for other in ("", text[:-1], text + "x", " " + text, text + "\n", text.upper(), text * 2):
        assert parse(other) is None
    # Digits of other scripts are digits to Python.
    assert parse(text[:9] + "٣" + text[10:]) is None


def test_one_that_gets_into_a_path_does_not_get_into_the_log() -> None:
    text, bearer = generate()
    for path in (f"/v1/locks/{text}", f"/{text}/{text}", f"/x{text}y", f"/{text[:-1]}"):
        line = line_of(Finished("", "GET", path, 404, 0.0, "", "127.0.0.1"), 0.0).decode()
        assert text[20:40] not in line
        assert bearer.id in line
