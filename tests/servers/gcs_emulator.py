"""An emulator of Google Cloud Storage, by its JSON API."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote

META = "x-goog-meta-"


class Object(NamedTuple):
    generation: int
    body: bytes
    headers: dict[str, str]


class GcsEmulator:
    """One that runs, such as Google's storage-testbench."""

    def __init__(self, url: str) -> None:
        import httpx

        self._client = httpx.Client(base_url=url, trust_env=False, timeout=30.0)

    def make_bucket(self, name: str) -> None:
        path = "/storage/v1/b?project=tests"
        self._client.post(path, json={"name": name}).raise_for_status()

    def get(self, bucket: str, name: str) -> Object | None:
        while True:
            found = self._client.get(_path(bucket, name))
            if found.status_code == 404:
                return None
            told = found.raise_for_status().json()
            which = {"alt": "media", "generation": told["generation"]}
            data = self._client.get(_path(bucket, name), params=which)
            if data.status_code != 404:  # it has been replaced meanwhile
                return _object(told, data.raise_for_status().content)

    def put(
        self, bucket: str, name: str, wanted: str | None, body: bytes, headers: dict[str, str]
    ) -> Object | None:
        condition = {} if wanted is None else {"ifGenerationMatch": wanted}
        kind = headers["Content-Type"]
        metadata = {
            header.removeprefix(META): value
            for header, value in headers.items()
            if header.startswith(META)
        }
        about = json.dumps({"name": name, "contentType": kind, "metadata": metadata})
        parts = f"--part\r\nContent-Type: application/json\r\n\r\n{about}\r\n"
        parts += f"--part\r\nContent-Type: {kind}\r\n\r\n"
        answer = self._client.post(
            f"/upload/storage/v1/b/{bucket}/o",
            params={"uploadType": "multipart", **condition},
            content=parts.encode() + body + b"\r\n--part--",
            headers={"Content-Type": "multipart/related; boundary=part"},
        )
        if answer.status_code == 412:
            return None
        return _object(answer.raise_for_status().json(), body)

    def delete(self, bucket: str, name: str) -> None:
        answer = self._client.delete(_path(bucket, name))
        assert answer.is_success or answer.status_code == 404, answer.text


def _path(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"


def _object(told: dict[str, Any], body: bytes) -> Object:
    headers = {META + name: value for name, value in told.get("metadata", {}).items()}
    headers["Content-Type"] = told.get("contentType") or "application/octet-stream"
    return Object(int(told["generation"]), body, headers)
