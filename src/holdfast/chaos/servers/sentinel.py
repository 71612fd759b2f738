"""Sentinels that watch a primary and its replicas: throw-away, and quick to notice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from .errors import ServerError
from .ports import free_port
from .redis import READY_LIMIT, RedisServer, Tls
from .sites import HERE, Site

NAME = "the-locks"
QUICK = {"info_period": 100, "publish_period": 100, "ask_period": 100}
"""Milliseconds. Sentinel's own are seconds, which is long for a test."""


class Sentinel(RedisServer):
    """Watches what the others of its group watch."""

    def __init__(
        self,
        primary: int,
        *lines: str,
        password: str = "",
        started: Callable[[int], None] = lambda pid: None,
        host: str = HERE.host,
        site: Site = HERE,
    ) -> None:
        """Watches the primary at a port of `host`."""
        self._lines = [
            f"bind {site.host}",
            *(["protected-mode no"] if site.far else []),
            f"sentinel monitor {NAME} {host} {primary} 2",
            # Longer than any process may stand still by itself.
            f"sentinel down-after-milliseconds {NAME} 1500",
            f"sentinel failover-timeout {NAME} 4000",
            *lines,
        ]
        super().__init__(password=password, started=started, site=site)
        self.hurry(**QUICK)

    def _arguments(self) -> list[str]:
        config = self.folder / "sentinel.conf"
        if not config.exists():  # it writes into it what it has learned
            where = [f"port {self.port}", f'dir "{self.folder}"']
            if self.password:
                where.append(f"requirepass {self.password}")
            config.write_text("\n".join([*where, *self._lines]) + "\n")
        return [str(config), "--sentinel"]

    def hurry(self, **periods: int) -> None:
        words = [word for name, ms in periods.items() for word in (name.replace("_", "-"), ms)]
        with suppress(ServerError):  # a server before 7.0 takes its time
            self("SENTINEL", "DEBUG", *words)

    def place(self) -> tuple[int, int]:
        """The configuration epoch, and the port of the primary."""
        words = self("SENTINEL", "MASTER", NAME)
        known = dict(zip(words[::2], words[1::2], strict=True))
        return int(known[b"config-epoch"]), int(
            self("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1]
        )


class Watch:
    """A primary, a replica, and three sentinels that know all of them and each other."""

    def __init__(
        self,
        *,
        password: str = "",
        sentinel_password: str = "",
        user: Sequence[str] = (),
        sentinel_user: Sequence[str] = (),
        tls: Tls | None = None,
        sentinel_tls: Tls | None = None,
        door: Callable[[int], int] | None = None,
        named: Callable[[int, str], None] = lambda pid, name: None,
        options: Sequence[str] = (),
        site: Callable[[str], Site] = lambda name: HERE,
    ) -> None:
        """Users as `user` lines have them. With TLS, all of them speak it with each other.

        Through `door`, which is given a server's port and returns another, all others reach that
        server. `named` is told the id and the name of each process that was started. `site` returns
        where the process of a name is to run.
        """
        self._door = door
        self._named = named
        self._site = site
        names = iter(("first", "second", "sentinel 1", "sentinel 2", "sentinel 3"))
        self._started: list[RedisServer] = []
        self._places: dict[int, RedisServer] = {}
        self.secure_ports: list[int] = []
        try:
            quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *options]
            if user:
                quick += ["--user", *user]
            self.first = self._serve(next(names), tls, *quick, password=password)
            (place,) = self._places
            host = self.first.site.host
            follow = ("--replicaof", host, str(place))
            self.second = self._serve(next(names), tls, *quick, *follow, password=password)
            self.sentinels: list[Sentinel] = []
            lines = [f"sentinel auth-pass {NAME} {password}"] if password else []
            if sentinel_user:
                lines.append("user " + " ".join(sentinel_user))
            for _ in range(3):
                port = free_port()
                own = sentinel_tls.settings(port) if sentinel_tls else []
                self.secure_ports.append(port)
                words = [f"{name} {value}" for name, value in own]
                name = next(names)
                sentinel = Sentinel(
                    place,
                    *lines,
                    *words,
                    password=sentinel_password,
                    started=partial(self._tell, name),
                    host=host,
                    site=site(name),
                )
                self.sentinels.append(sentinel)
                self._started.append(sentinel)
            self.await_(self._complete)
            for sentinel in self.sentinels:
                # Now that they know each other. Four times this is how long a replica may call
                # itself primary, before those who have not heard of the failover undo it.
                sentinel.hurry(publish_period=1000)
        except BaseException:
            self.stop()
            raise

    def _tell(self, name: str, pid: int) -> None:
        self._named(pid, name)

    def _serve(self, name: str, tls: Tls | None, *options: str, password: str) -> RedisServer:
        secure, plain = free_port(), free_port()
        own = tls.settings(secure) if tls else []
        words = [word for name, value in own for word in (f"--{name}", value)]
        place = secure if tls else plain
        if self._door is not None:
            place = self._door(place)
            words += ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(place)]
        tell = partial(self._tell, name)
        server = RedisServer(
            *options, *words, password=password, port=plain, started=tell, site=self._site(name)
        )
        self._started.append(server)
        self._places[place] = server
        return server

    @property
    def url(self) -> str:
        return self._url(sentinel.port for sentinel in self.sentinels)

    @property
    def secure_url(self) -> str:
        """The URL of the ports where the sentinels speak TLS."""
        return self._url(self.secure_ports)

    def _url(self, ports: Iterable[int]) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"redis+sentinel://{hosts}/{NAME}"

    @property
    def primary(self) -> RedisServer:
        """Which sentinels may learn of one after the other."""
        _, port = max(sentinel.place() for sentinel in self.sentinels if sentinel.running)
        return self._places[port]

    @property
    def replica(self) -> RedisServer:
        return self.second if self.primary is self.first else self.first

    def _complete(self) -> bool:
        for sentinel in self.sentinels:
            words = sentinel("SENTINEL", "MASTER", NAME)
            known = dict(zip(words[::2], words[1::2], strict=True))
            if (known[b"num-slaves"], known[b"num-other-sentinels"]) != (b"1", b"2"):
                return False
        return b"master_link_status:up" in self.replica("INFO", "replication")

    def wait_ready(self) -> None:
        """Wait until all know of all, and the replica follows."""
        self.await_(self._complete)

    def await_(self, condition: Callable[[], object]) -> None:
        limit = time.monotonic() + READY_LIMIT
        while True:
            with suppress(OSError):
                if condition():
                    return
            if time.monotonic() > limit:
                raise ServerError("the sentinels did not agree in time")
            time.sleep(0.02)

    def fail_over(self) -> None:
        """On command: the primary is demoted, and told so."""
        before = self.primary
        self.await_(self._complete)
        self.await_(self._asked_to)
        asked = time.monotonic()

        def done() -> bool:
            nonlocal asked
            if self.primary is not before:
                return True
            if time.monotonic() > asked + 6:  # given up, because somebody stood still
                asked = time.monotonic()
                with suppress(ServerError):
                    self.sentinels[0]("SENTINEL", "FAILOVER", NAME)
            return False

        self.await_(done)

    def _asked_to(self) -> bool:
        try:
            self.sentinels[0]("SENTINEL", "FAILOVER", NAME)
        except ServerError as error:
            if "NOGOODSLAVE" not in str(error):  # it has not heard of the replica lately
                raise
            return False
        return True

    def calm(self) -> Watch:
        """From now on it takes a minute of silence until a server counts as down."""
        for sentinel in self.sentinels:
            sentinel("SENTINEL", "SET", NAME, "down-after-milliseconds", 60_000)
        return self

    def hurry(self) -> None:
        """After a failover: an old primary that comes back is told of it soon."""
        for sentinel in self.sentinels:
            sentinel.hurry(publish_period=100)

    def stop(self) -> None:
        for server in reversed(self._started):
            server.stop()
