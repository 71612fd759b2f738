"""Sentinels and servers that speak TLS, with certificates and users of their own each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import NEEDED, Tls, certificate
from holdfast.chaos.servers.sentinel import Watch
from worlds.aio import Job, eventually

LOOKING = ("+hello", "+sentinel|get-master-addr-by-name", "+sentinel|master")
WORKING = ("~holdfast:*", "&holdfast:*", *NEEDED)


class Guarded:
    """Sentinels that want a certificate and a user, and the options that fit them."""

    def __init__(self, folder: Path) -> None:
        pairs = []
        for name in ("servers", "sentinels"):
            (folder / name).mkdir()
            pairs.append(certificate(folder / name))
        trusted = folder / "trusted.pem"
        trusted.write_text("".join(Path(cert).read_text() for cert, _ in pairs))
        self.servers, self.sentinels = (Tls(*pair, str(trusted)) for pair in pairs)
        self.watch = Watch(
            password="m4ster",
            sentinel_password="m4ster2",
            user=("worker", "on", ">s3cret", *WORKING),
            sentinel_user=("looker", "on", ">sesame", *LOOKING),
            tls=self.servers,
            sentinel_tls=self.sentinels,
        )
        self.url = self.watch.secure_url.replace("//", "//worker:s3cret@")

    @property
    def options(self) -> dict[str, Any]:
        return {
            "tls_ca": self.servers.cert,
            "tls_cert": self.servers.cert,
            "tls_key": self.servers.key,
            "sentinel_tls_ca": self.sentinels.cert,
            "sentinel_tls_cert": self.sentinels.cert,
            "sentinel_tls_key": self.sentinels.key,
            "sentinel_user": "looker",
            "sentinel_password": "sesame",
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    yield made
    made.watch.stop()


async def test_a_lock_is_held_waited_for_and_taken_along_by_a_failover(guarded: Guarded) -> None:
    watch = guarded.watch
    async with holdfast.connect(guarded.url, **guarded.options) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            try:
                return len((await locks.inspect("x")).waiters) == 1
            except holdfast.BackendUnavailable:
                return False

        await eventually(waits)
        await eventually(lambda: watch.replica("LLEN", "holdfast:{x}:q") == 1)
        watch.fail_over()
        other = await locks.lock("y").acquire()
        while not watch.primary("EXISTS", "holdfast:{y}"):  # granted by the old primary
            await other.release()
            other = await locks.lock("y").acquire()
        await lease.renew()
        await eventually(waits)
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token


async def test_sentinels_without_tls_beside_servers_with_it(guarded: Guarded) -> None:
    url = guarded.watch.url.replace("//", "//worker:s3cret@")
    options = {k: v for k, v in guarded.options.items() if not k.startswith("sentinel_tls")}
    async with holdfast.connect(url, **options, sentinel_tls=False) as locks:
        assert (await locks.lock("z").acquire()).held


async def test_what_is_said_of_the_servers_alone_is_true_of_the_sentinels_too(
    guarded: Guarded,
) -> None:
    both = {k: v for k, v in guarded.options.items() if not k.startswith("sentinel_tls")}
    both["tls_ca"] = guarded.servers.trusted
    for said in (None, True):
        async with holdfast.connect(guarded.url, **both, sentinel_tls=said) as locks:
            assert (await locks.lock("both").acquire()).held


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sentinel_tls_ca": "of the servers"}, "no sentinel answers"),
        ({"tls_ca": "of the sentinels"}, "cannot reach"),
        ({"tls_cert": None, "tls_key": None}, "cannot reach|broke"),
        ({"sentinel_password": "wr0ng"}, "does not let us in"),
        ({"sentinel_user": None}, "does not let us in"),
        ({"password": "wr0ng"}, "does not let us in"),
    ],
)
async def test_nobody_is_let_in_with_what_is_wrong_and_no_secret_is_shown(
    guarded: Guarded, changed: dict[str, Any], words: str
) -> None:
    files = {"of the servers": guarded.servers.cert, "of the sentinels": guarded.sentinels.cert}
    given = guarded.options | {name: files.get(value, value) for name, value in changed.items()}
    url = guarded.url.replace("s3cret", given.pop("password", "s3cret"))

    async def refused() -> bool:
        """Checks that each connect is refused in these words, unless a server hung: then it says so."""
        locks = holdfast.connect(url, **given)
        try:
            with pytest.raises(holdfast.LockError) as raised:
                await locks.lock("x").acquire(timeout=1.0)
        finally:
            await locks.close()
        shown = f"{raised.value!r} {raised.value}"
        assert not any(word in shown for word in ("s3cret", "sesame", "wr0ng"))
        return re.search(words, shown) is not None

    await eventually(refused)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sentinel_tls": 2}, "sentinel_tls must be"),
        ({"sentinel_tls": False, "sentinel_tls_ca": "/x"}, "sentinel_tls_ca is given, but"),
        ({"sentinel_tls_ca": "/there/is/none"}, "sentinel_tls_ca cannot be read"),
        ({"sentinel_tls_context": "a context"}, "must be an ssl.SSLContext"),
    ],
)
async def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(holdfast.ConfigError, match=words):
        holdfast.connect("redis+sentinel://host/name", **options)
