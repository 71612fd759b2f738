"""Sentinels that watch a primary and its replicas: throw-away, and quick to notice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from .ports import free_port
from .redis import READY_LIMIT, RedisServer, Tls

NAME = "the-locks"
QUICK = {"info_period": 100, "publish_period": 100, "ask_period": 100}
"""Milliseconds. Sentinel's own are seconds, which is long for a test."""


class Sentinel(RedisServer):
    """Watches what the others of its group watch."""

    def __init__(self, primary: int, *lines: str, password: str = "") -> None:
        self._lines = [
            "bind 127.0.0.1",
            f"sentinel monitor {NAME} 127.0.0.1 {primary} 2",
            # Longer than any process may stand still by itself.
            f"sentinel down-after-milliseconds {NAME} 1500",
            f"sentinel failover-timeout {NAME} 4000",
            *lines,
        ]
        super().__init__(password=password)
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
        with suppress(AssertionError):  # a server before 7.0 takes its time
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
    ) -> None:
        """Users as `user` lines have them. With TLS, all of them speak it with each other."""
        self._started: list[RedisServer] = []
        self._places: dict[int, RedisServer] = {}
        self.secure_ports: list[int] = []
        try:
            quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
            if user:
                quick += ["--user", *user]
            self.first = self._serve(tls, *quick, password=password)
            (place,) = self._places
            follow = ("--replicaof", "127.0.0.1", str(place))
            self.second = self._serve(tls, *quick, *follow, password=password)
            self.sentinels: list[Sentinel] = []
            lines = [f"sentinel auth-pass {NAME} {password}"] if password else []
            if sentinel_user:
                lines.append("user " + " ".join(sentinel_user))
            for _ in range(3):
                port = free_port()
                own = sentinel_tls.settings(port) if sentinel_tls else []
                self.secure_ports.append(port)
                words = [f"{name} {value}" for name, value in own]
                sentinel = Sentinel(place, *lines, *words, password=sentinel_password)
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

    def _serve(self, tls: Tls | None, *options: str, password: str) -> RedisServer:
        port = free_port()
        own = tls.settings(port) if tls else []
        words = [word for name, value in own for word in (f"--{name}", value)]
        server = RedisServer(*options, *words, password=password)
        self._started.append(server)
        self._places[port if tls else server.port] = server
        return server

    @property
    def url(self) -> str:
        return self._url(sentinel.port for sentinel in self.sentinels)

    @property
    def secure_url(self) -> str:
        """Of the ports where the sentinels speak TLS."""
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

    def await_(self, condition: object) -> None:
        assert callable(condition)
        limit = time.monotonic() + READY_LIMIT
        while True:
            with suppress(OSError):
                if condition():
                    return
            assert time.monotonic() < limit, "the sentinels did not agree in time"
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
                with suppress(AssertionError):
                    self.sentinels[0]("SENTINEL", "FAILOVER", NAME)
            return False

        self.await_(done)

    def _asked_to(self) -> bool:
        try:
            self.sentinels[0]("SENTINEL", "FAILOVER", NAME)
        except AssertionError as error:
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
