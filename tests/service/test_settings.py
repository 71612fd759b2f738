"""Settings that could never work: refused when the service starts, and not when they are first used."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.service.settings import Settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fence_url": "nope://127.0.0.1"}, "unknown kind of store 'nope'"),
        ({"fence_url": "etcd://127.0.0.1:2379"}, "there is no fence that could be kept in etcd://"),
        ({"fence_url": ""}, "fence_url"),
        ({"proxies": ("nonsense",)}, "not 'nonsense'"),
        ({"proxies": ("127.0.0.1", "10.1.2.3/16")}, "a network such as 10.1.0.0/16"),
        ({"proxies": ("*",)}, r"not '\*'"),
        ({"proxies": ("",)}, "not ''"),
    ],
)
def test_what_could_never_work(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Settings(url="memory://settings", **settings)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        Settings(url="memory://settings", fence_url="etcd://root:secret@127.0.0.1:2379")
    assert "secret" not in str(refused.value)


def test_places_of_every_kind() -> None:
    proxies = ("127.0.0.1", "::1", "10.1.0.0/16", "fd00::/8")
    settings = Settings(url="memory://settings", fence_url="redis://127.0.0.1/0", proxies=proxies)
    assert settings.proxies == proxies
