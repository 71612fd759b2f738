"""The container, compose, Kubernetes and systemd files: they read, agree, and call what there is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from holdfast.cli.serve import OPTIONS
from holdfast.service.settings import PORT
from holdfast.stores import urls

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = (DEPLOY / "systemd" / "holdfast.service").read_text()
USER = 10001


def kubernetes() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "holdfast.yaml").read_text()))


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def lock_services() -> dict[str, dict[str, Any]]:
    return {
        name: service for name, service in compose()["services"].items() if name.endswith("-locks")
    }


def pod() -> dict[str, Any]:
    (deployment,) = [one for one in kubernetes() if one["kind"] == "Deployment"]
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def check_words(words: list[str]) -> None:
    """Fails if `holdfast serve` does not take these words."""
    assert words[0] == "serve"
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    assert set(options) <= set(OPTIONS)


# The image.


def test_the_image_is_for_a_user_without_rights() -> None:
    assert f"USER {USER}:{USER}" in CONTAINERFILE
    assert f"EXPOSE {PORT}" in CONTAINERFILE
    assert "ADD " not in CONTAINERFILE
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for path in source.split():
            assert (DEPLOY.parent / path).exists(), path


def test_the_image_has_what_the_package_is_built_from() -> None:
    hatch = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["tool"]["hatch"]
    needed = [hatch["metadata"]["hooks"]["custom"]["path"]]
    needed += hatch["build"]["targets"]["wheel"]["shared-data"]
    for path in needed:
        assert f"COPY {path} {path}\n" in CONTAINERFILE


def test_the_build_is_sent_what_it_copies_and_nothing_else() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    assert sent == {path for source in copied for path in source.split()}


def test_the_image_has_what_the_service_needs() -> None:
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", CONTAINERFILE)
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    assert "server" in extras.split(",")
    (words,) = re.findall(r"^CMD \[(.*)\]$", CONTAINERFILE, re.MULTILINE)
    check_words([word.strip(' "') for word in words.split(",")])


# Compose.


def test_there_is_a_service_beside_each_store() -> None:
    profiles = {profile for one in compose()["services"].values() for profile in one["profiles"]}
    assert set(lock_services()) == {f"{profile}-locks" for profile in profiles}
    schemes = {
        service["environment"]["HOLDFAST_URL"].partition(":")[0]
        for service in lock_services().values()
    }
    assert {"redis", "redlock", "etcd", "zookeeper", "postgresql", "mysql", "sqlite"} == schemes
    for service in lock_services().values():
        urls.parse(service["environment"]["HOLDFAST_URL"])


def test_compose_names_only_what_it_has() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    for name, service in services.items():
        for other in service.get("depends_on", []):
            assert other in services
            assert services[other]["profiles"] == service["profiles"], name
        for mount in service.get("volumes", []):
            assert mount.partition(":")[0] in volumes
    for name, service in lock_services().items():
        hosts = re.findall(r"[@/,]([a-z0-9-]+):\d+", service["environment"]["HOLDFAST_URL"])
        assert set(hosts) <= set(service.get("depends_on", [])), name


def test_a_composed_redis_lets_the_service_in() -> None:
    """Redis refuses whoever is not on its own machine, unless its image has been patched."""
    servers = [one for one in compose()["services"].values() if "redis:" in one["image"]]
    assert len(servers) == 4
    for server in servers:
        words = server["command"]
        assert words[words.index("--protected-mode") + 1] == "no"
        assert "ports" not in server  # only those on its own network reach it


def test_a_composed_service_is_published_on_this_machine_only() -> None:
    for service in lock_services().values():
        check_words(service["command"])
        assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()


# Kubernetes.


@pytest.mark.parametrize("thing", kubernetes(), ids=lambda thing: thing["kind"])
def test_kubernetes_takes_the_manifest(thing: dict[str, Any]) -> None:
    kubernetes_validate.validate(thing, "1.37", strict=True)


def test_the_parts_of_the_manifest_find_each_other() -> None:
    things = {thing["kind"]: thing for thing in kubernetes()}
    labels = things["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        things["Deployment"]["spec"]["selector"]["matchLabels"],
        things["Service"]["spec"]["selector"],
        things["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        things["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    (container,) = pod()["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == PORT
    assert things["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod()["volumes"]}
    for probe, path in (
        ("livenessProbe", "/healthz"),
        ("startupProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert container[probe]["httpGet"]["path"] == path
        assert container[probe]["httpGet"]["port"] == port["name"]


def test_a_pod_has_no_rights_and_ends_gracefully() -> None:
    (container,) = pod()["containers"]
    check_words(container["args"])
    assert pod()["securityContext"]["runAsUser"] == USER
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod()["terminationGracePeriodSeconds"] > 10


def test_the_pod_reads_files_where_they_are_mounted() -> None:
    (container,) = pod()["containers"]
    folders = tuple(f"{mount['mountPath']}/" for mount in container["volumeMounts"])
    paths = [word.partition("=")[2] for word in container["args"] if "=/" in word]
    paths += [one["value"] for one in container["env"] if one.get("value", "").startswith("/")]
    assert len(paths) >= 3
    for path in paths:
        assert path.startswith(folders)


# systemd.


def test_the_unit_calls_what_there_is() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == "/usr/bin/env"
    assert words[0] == "holdfast"
    check_words(words[1:])
    (user,) = re.findall(r"^User=(.*)$", UNIT, re.MULTILINE)
    assert (DEPLOY / "systemd" / "holdfast.sysusers").read_text().split()[1] == user


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit() -> None:
    unit = DEPLOY / "systemd" / "holdfast.service"
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
