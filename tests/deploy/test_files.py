"""The files in deploy/ are valid, and set only what the server knows. Images are built where a container engine is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.cli.shell import Shell
from tests.server.kit import serving
from tests.server.test_rest import say
from tests.test_release import lint

from hansard.cli.configuration import Options
from hansard.server.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("*.yaml"))
OTHER_VARIABLES = {"HANSARD_URL", "HANSARD_CONFIG"}


@cache
def why_no_engine() -> str | None:
    docker = shutil.which("docker")
    if docker is None:
        return "there is no docker"
    asked = subprocess.run([docker, "info"], capture_output=True, text=True, check=False, timeout=30)
    return None if asked.returncode == 0 else "docker has no running engine"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes/hansard.yaml").read_text("utf-8")))


@pytest.mark.parametrize("file", COMPOSE, ids=lambda path: path.name)
def test_compose_files_match_their_schema(file: Path) -> None:
    lint("vendor.compose-spec", file)


def test_the_manifests_match_the_schemas_of_kubernetes() -> None:
    for manifest in manifests():
        kubernetes_validate.validate(manifest, "1.37", strict=True)
    broken = manifests()[1]
    broken["spec"]["replicas"] = "two"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


def test_the_deployment_has_probes_and_no_rights() -> None:
    (pod,) = [each["spec"]["template"]["spec"] for each in manifests() if each["kind"] == "Deployment"]
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_settings_of_the_manifests_are_valid(shell: Shell) -> None:
    (config,) = [each for each in manifests() if each["kind"] == "ConfigMap"]
    text = config["data"]["hansard.toml"]
    (shell.folder / "hansard.toml").write_text(text, encoding="utf-8")
    shown = {item["name"]: item for item in shell("config", "--json").json["items"]}
    for name in tomllib.loads(text):
        assert shown[name.replace("-", "_")]["origin"] == "hansard.toml"


def test_every_variable_is_a_setting() -> None:
    known = {f"HANSARD_{field.name.upper()}" for field in fields(Options)} | OTHER_VARIABLES
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert set(re.findall(r"\bHANSARD_[A-Z_]+\b", path.read_text("utf-8"))) <= known, path


def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed on this system")
    done = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text
    extras = re.search(r"EXTRAS=(\S+)", text)
    assert extras is not None
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(declared)


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    text = (DEPLOY / "systemd/hansard.service").read_text("utf-8")
    unit = tmp_path / "hansard.service"
    unit.write_text(text.replace("/opt/hansard/bin/hansard", sys.executable), encoding="utf-8")
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "hansard.service" not in done.stderr, done.stderr


def test_the_dashboard_uses_metrics_that_exist(tmp_path: Path) -> None:
    settings = Settings(spool=tmp_path / "spool")
    with serving(f"sqlite:///{tmp_path}/chats.db", settings=settings) as api:
        say(api, "c", "x")
        api.get("/conversations/never")
        exposed = set(re.findall(r"^(hansard_\w+)", api.get(api.address + "/metrics").text, re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana/hansard.json").read_text("utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for expression in expressions for name in re.findall(r"hansard_\w+", expression)}
    assert len(used) > 10
    assert used <= exposed


def test_the_scrape_configuration_is_as_documented() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert "credentials_file" in job["authorization"]


@pytest.mark.timeout(1200)
@pytest.mark.skipif(why_no_engine() is not None, reason=f"no container: {why_no_engine()}")
def test_the_image_is_built_and_serves() -> None:
    tag = "hansard-test"
    subprocess.run(["docker", "build", "-f", DEPLOY / "Dockerfile", "-t", tag, ROOT], check=True)
    done = subprocess.run(
        ["docker", "run", "--rm", tag, "config", "--json"], check=True, capture_output=True, text=True
    )
    assert {item["name"]: item["value"] for item in json.loads(done.stdout)["items"]}["host"] == "0.0.0.0"
