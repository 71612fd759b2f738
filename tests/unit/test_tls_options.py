"""The options for TLS, which all networked stores take in the same way and refuse in the same words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.stores.tls import TLS_OPTIONS, context_of

URLS = [
    "rediss://h",
    "redis+sentinel://h/main",
    "redis+cluster://h",
    "redlock://h1,h2,h3",
    "etcd://h",
    "zookeeper://h",
]


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that a user may name: good ones, one with both parts, and bad ones."""
    folder = tmp_path_factory.mktemp("pem")
    cert, key, locked = folder / "cert.pem", folder / "key.pem", folder / "locked.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    _openssl(
        "req", "-x509", *curve, "-nodes", "-subj", "/CN=h", "-keyout", str(key), "-out", str(cert)
    )
    _openssl("ec", "-in", str(key), "-aes128", "-passout", "pass:sesame", "-out", str(locked))
    both, text = folder / "both.pem", folder / "text"
    both.write_text(cert.read_text() + key.read_text())
    text.write_text("no certificate")
    files = {path.name.partition(".")[0]: str(path) for path in (cert, key, locked, both, text)}
    return {**files, "none": str(folder / "none"), "folder": str(folder)}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"tls_ca": "none"}, "tls_ca cannot be read"),
        ({"tls_ca": "folder"}, "tls_ca cannot be read"),
        ({"tls_ca": "text"}, "tls_ca is not a PEM file"),
        ({"tls_cert": "text", "tls_key": "key"}, "tls_cert is not a PEM file"),
        ({"tls_cert": "cert"}, "tls_cert and tls_key go together"),
        ({"tls_key": "key"}, "tls_key is given without tls_cert"),
        ({"tls_cert": "key", "tls_key": "key"}, "cannot be used"),
        ({"tls_cert": "cert", "tls_key": "locked"}, "is encrypted"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(
    url: str, files: dict[str, str], words: str, pem: dict[str, str]
) -> None:
    with pytest.raises(holdfast.ConfigError, match=words):
        holdfast.connect(url, **{name: pem[which] for name, which in files.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("url", URLS)
def test_a_number_is_no_file(url: str) -> None:
    with open(os.devnull, "rb") as file:
        given: Any = file.fileno()
        with pytest.raises(holdfast.ConfigError, match="tls_ca cannot be read"):
            holdfast.connect(url, tls_ca=given)


@pytest.mark.parametrize("url", URLS[1:])
@pytest.mark.parametrize("value", [2, "yes", None])
def test_tls_is_on_or_off(url: str, value: Any) -> None:
    with pytest.raises(holdfast.ConfigError, match="tls must be True or False"):
        holdfast.connect(url, tls=value)


def test_one_file_may_have_both_the_certificate_and_its_key(pem: dict[str, str]) -> None:
    assert context_of({**TLS_OPTIONS, "tls_cert": Path(pem["both"])}) is not None


def test_without_an_option_there_is_no_tls() -> None:
    assert context_of(TLS_OPTIONS) is None
