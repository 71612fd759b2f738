"""The values: errors, states, guarantees, events and URLs."""

from __future__ import annotations

import pickle

import pytest

import holdfast
from holdfast import lifecycle
from holdfast.stores import urls
from holdfast.stores.memory.guarantees import MEMORY
from holdfast.stores.sqlite.guarantees import SQLITE

ERRORS: list[holdfast.LockError] = [
    holdfast.LockError("text", name="x", owner="o", token=7),
    holdfast.LockTimeout("text", name="x"),
    holdfast.LeaseLost("text", name="x", owner="o", token=7, lost_at=1.5, reason="why"),
    holdfast.LockNotOwned("text", name="x"),
    holdfast.BackendUnavailable("text", name="x"),
    holdfast.GuaranteeError("text", name="x"),
    holdfast.StaleToken("row 7", 3, 9, name="x"),
    holdfast.ConfigError("text"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled_with_all_they_carry(error: holdfast.LockError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(holdfast.LockTimeout, TimeoutError)
    assert issubclass(holdfast.LockNotOwned, RuntimeError)
    assert issubclass(holdfast.BackendUnavailable, ConnectionError)
    assert issubclass(holdfast.ConfigError, ValueError)
    for error in ERRORS:
        assert isinstance(error, holdfast.LockError)


def test_a_stale_token_says_which_and_what_to_do() -> None:
    error = holdfast.StaleToken("row 7", 3, 9)
    assert (error.resource, error.token, error.highest) == ("row 7", 3, 9)
    assert "row 7" in str(error)
    assert "acquire again" in str(error)


def test_the_ends_of_a_lease_are_final() -> None:
    events = {event for _, event in lifecycle.TRANSITIONS}
    for end in (lifecycle.LOST, lifecycle.RELEASED):
        for event in events:
            assert lifecycle.after(end, event) == end


def test_uncertain_becomes_held_again_only_by_an_answer() -> None:
    leads = {e for (s, e), to in lifecycle.TRANSITIONS.items() if (s, to) == ("uncertain", "held")}
    assert leads == {lifecycle.RENEWED}


@pytest.mark.parametrize("ttl", [0.001, 0.1, 1.0, 30.0, 86400.0])
def test_the_margin_for_drift_leaves_something_of_the_ttl(ttl: float) -> None:
    margin = lifecycle.drift_margin(ttl)
    assert 0 < margin <= ttl / 2
    if ttl >= 1.0:
        assert margin == pytest.approx(ttl * 0.01 + 0.002)


def test_guarantees_are_frozen() -> None:
    with pytest.raises(AttributeError):
        MEMORY.fair = False  # type: ignore[misc]
    assert "correctness" not in MEMORY.safe_for
    assert "correctness" in SQLITE.safe_for


BAD_URLS = [
    ("", "no scheme"),
    ("locks.db", "no scheme"),
    ("://x", "no scheme"),
    ("ftp://x", "unknown kind"),
    ("Sqlit:///x", "unknown kind"),
    ("https://user:s3cret@localhost", "no user and password"),
    ("http://localhost,localhost", "same service twice"),
    ("http://localhost/a b", "written as %XX"),
    ("http://localhost?tls_ca=/there/is/none", "an option of https://"),
    ("http://:7420", "needs a host"),
    ("sqlite://", "no path"),
    ("sqlite://locks.db", "host"),
    ("sqlite:///", "no path"),
    ("sqlite:///tmp/", "folder"),
    ("sqlite:///a#b", "fragment"),
    ("redis://u:pa?ss=word@h", "%3F"),
    ("sqlite:///a\x00b", "control"),
    ("memory://a/b", "path"),
    ("memory://?clock=5", "cannot be given in the URL"),
    ("memory://?nonsense=5", "nonsense"),
]


@pytest.mark.parametrize(("url", "words"), BAD_URLS)
def test_a_bad_url_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(holdfast.ConfigError, match=words):
        holdfast.connect(url)


def test_a_url_that_is_no_text_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="must be a str"):
        holdfast.connect(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:sesame@host:port",
        "sqlite://me:sesame@/tmp/x",
        "nosuch://me:sesame@host/0",
        "me:sesame@host",
        "memory://me:sesame@x",
        "postgresql://me:sesame@host:port/db?password=sesame",
    ],
)
def test_credentials_never_appear_in_an_error(url: str) -> None:
    with pytest.raises(holdfast.ConfigError) as raised:
        holdfast.connect(url)
    assert "sesame" not in str(raised.value)


def test_credentials_are_taken_out_of_every_host() -> None:
    target = urls.Target("redlock", "a:b@one:1,c:d@two:2/path@x", {})
    assert str(target) == "redlock://one:1,two:2/path@x"
