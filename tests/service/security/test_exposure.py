"""Where the service may listen, and TLS."""

from __future__ import annotations

import ssl
import subprocess
import time
import warnings
from pathlib import Path

import httpx
import pytest

from cli.stage import HOLDFAST, LIMIT, Stage
from holdfast import ConfigError
from holdfast.chaos.servers.redis import certificate
from holdfast.cli.serve import main as serve_command
from holdfast.service import Settings
from holdfast.service.security.exposure import is_loopback
from holdfast.service.security.setup import secure
from service.security.served import make_token, read_all, serve


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


def settings(folder: Path, **options: object) -> Settings:
    return Settings(url="memory://", token_file=str(folder / "tokens.json"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback(tmp_path: Path, host: str) -> None:
    assert is_loopback(host)
    secure(settings(tmp_path, host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.1", "::ffff:10.0.0.1"]
)
def test_beyond_loopback_there_must_be_tokens_and_tls(
    tmp_path: Path, pair: tuple[str, str], host: str
) -> None:
    tls = {"tls_cert": pair[0], "tls_key": pair[1]}
    proxy = {"behind_tls_proxy": True}
    for options in ({}, tls, proxy):
        with pytest.raises(ConfigError, match="without tokens"):
            secure(settings(tmp_path, host=host, **options))
    make_token(tmp_path / "tokens.json", expires=time.time() - 1)
    for options in ({}, tls, proxy):  # a token that has expired lets nobody in
        with pytest.raises(ConfigError, match="without tokens"):
            secure(settings(tmp_path, host=host, **options))
    make_token(tmp_path / "tokens.json")
    with pytest.raises(ConfigError, match="--tls-cert"):
        secure(settings(tmp_path, host=host))
    for options in (tls, proxy):
        secure(settings(tmp_path, host=host, **options))
    with pytest.raises(ConfigError, match="exclude each other"):
        secure(settings(tmp_path, host=host, **tls, **proxy))


def test_certificates_that_cannot_be_used(tmp_path: Path, pair: tuple[str, str]) -> None:
    cert, key = pair
    (tmp_path / "noise.pem").write_text("noise")
    noise, nothing = str(tmp_path / "noise.pem"), str(tmp_path / "nothing.pem")
    other = certificate(tmp_path)[1]
    locked = str(tmp_path / "locked.pem")
    done = ["openssl", "ec", "-in", key, "-out", locked, "-aes256", "-passout", "pass:secret"]
    subprocess.run(done, check=True, capture_output=True)
    for one, two in ((noise, key), (cert, noise), (nothing, key), (cert, other), (cert, locked)):
        with pytest.raises(ConfigError) as raised:
            secure(settings(tmp_path, tls_cert=one, tls_key=two))
        assert "BEGIN" not in str(raised.value)
    with pytest.raises(ConfigError, match="need each other"):
        settings(tmp_path, tls_cert=cert)


def test_tls_and_nothing_older(tmp_path: Path, pair: tuple[str, str]) -> None:
    cert, key = pair
    token = make_token(tmp_path / "tokens.json")
    trusting = ssl.create_default_context(cafile=cert)
    with serve(tmp_path, tls_cert=cert, tls_key=key) as running:
        with running.as_(token, verify=trusting) as client:
            answer = client.get("/v1/locks")
            assert answer.status_code == 200
            headers = {"origin": running.url}
            assert client.get("/v1/locks", headers=headers).status_code == 200
            plain = {"origin": running.url.replace("https", "http")}
            assert client.get("/v1/locks", headers=plain).status_code == 403
            session = client.post("/v1/session", json={"token": token})
            assert session.headers["set-cookie"].startswith("__Host-")
            assert session.headers["set-cookie"].endswith("; Secure")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(cert)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with running.as_(token, verify=old) as client, pytest.raises(httpx.ConnectError):
            client.get("/healthz")
        # A client that speaks no TLS is told nothing.
        answered = running.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in answered


def test_a_handshake_has_as_long_as_a_request(tmp_path: Path, pair: tuple[str, str]) -> None:
    cert, key = pair
    with (
        serve(tmp_path, tls_cert=cert, tls_key=key, receive_within=1.5) as running,
        running.connect() as silent,
        running.connect() as halting,
    ):
        halting.sendall(b"\x16\x03\x01")  # a handshake begins so
        began = time.monotonic()
        assert read_all(silent) == read_all(halting) == b""
        assert time.monotonic() - began < 30  # and not a minute, which event loops give
        with running.as_(make_token(tmp_path / "tokens.json")) as client:
            assert client.get("/v1/locks").status_code == 200


def test_the_command_refuses_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SERVE_TOKEN_FILE", str(tmp_path / "none.json"))
    monkeypatch.setenv("HOLDFAST_URL", "memory://")
    damaged = tmp_path / "tokens.json"
    damaged.write_text("{")
    damaged.chmod(0o600)
    for words, said in (
        (["--host", "0.0.0.0"], "holdfast token create"),
        (["--allowed-host", "http://x"], "without a scheme"),
        (["--token-file", str(damaged)], "damaged"),
        (["--tls-cert", "x"], "need each other"),
        (["--behind-tls-proxy", "--host", "0.0.0.0"], "holdfast token create"),
    ):
        with pytest.raises(ConfigError, match=said):
            serve_command(["--port", "0", *words])


def test_the_command_with_a_token_made_by_the_command(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    try:
        made = stage.run(
            "token", "create", "--role", "hold", "--prefix", "a:", "--token-file", "t.json"
        )
        assert made.status == 0, made
        process = stage.start("serve", "--port", "0", "--token-file", "t.json", program=HOLDFAST)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        headers = {"authorization": f"Bearer {made.out.strip()}"}
        with httpx.Client(base_url=url, timeout=LIMIT, trust_env=False, verify=False) as client:
            assert client.get("/v1/locks").status_code == 401
            assert client.get("/v1/locks", headers=headers).status_code == 200
            revoked = stage.run("token", "revoke", made.out.strip(), "--token-file", "t.json")
            assert revoked.status == 0
            assert client.get("/v1/locks", headers=headers).status_code == 401
            (tmp_path / "t.json").write_text("{")
            closed = client.get("/v1/locks", headers=headers)
            assert closed.status_code == 503
            assert closed.json()["type"] == "/problems/closed"
            assert "t.json" not in closed.text
        process.terminate()
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        assert made.out.strip()[20:] not in out + err
    finally:
        stage.close()
