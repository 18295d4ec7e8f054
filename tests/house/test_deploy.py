"""The files for deployment can be read, and name what is there; no container was started by a test."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path
from typing import Any

import yaml

from perdure.monitoring.catalogue import METRICS
from tests.house.tree import ROOT

DEPLOY = ROOT / "deploy"
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
COMMANDS = {"perdure": {"worker", "migrate"}, "uvicorn": {"examples.web.fastapi_app:app"}}


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: name and arguments, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def test_the_image_is_built_of_files_that_are_there() -> None:
    every = instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert {name for name, _ in every} <= KNOWN
    stages = {rest.rpartition(" AS ")[2] for name, rest in every if name == "FROM" and " AS " in rest}
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name, rest in every:
        if name != "COPY":
            continue
        *places, _ = rest.split()
        if places[0].startswith("--from="):
            assert places[0].removeprefix("--from=") in stages
        else:
            assert [place for place in places if not (ROOT / place).exists() or f"!{place}" not in allowed] == []


def test_the_first_process_of_every_container_reaps_what_programs_of_hard_steps_leave_behind() -> None:
    every = instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    last = every[max(n for n, (name, _) in enumerate(every) if name == "FROM") :]
    assert [json.loads(rest) for name, rest in last if name == "ENTRYPOINT"] == [["tini", "--"]]
    assert any(name == "RUN" and re.search(r"apt-get install [^&]*\btini\b", rest) for name, rest in last)
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    pods = [part["spec"]["template"]["spec"] for part in parts if part["kind"] == "Deployment"]
    ours = [service for service in services.values() if service["image"] == "orders"]
    # Kubernetes calls the entrypoint "command": either would take the place of tini.
    assert [one for one in ours if "entrypoint" in one or "init" in one] == []
    assert [one for pod in pods for one in pod["containers"] if "command" in one] == []


def _is_of_ours(command: list[str]) -> bool:
    return command[1] in COMMANDS[command[0]] and all(isinstance(word, str) for word in command)


def test_the_compose_file_starts_a_database_two_workers_and_a_web_application() -> None:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {"postgres", "migrate", "worker", "web", "prometheus"}
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in ("migrate", "worker", "web"):
        assert _is_of_ours(services[name]["command"])
        assert (DEPLOY / services[name]["build"]["context"] / services[name]["build"]["dockerfile"]).exists()
        assert set(services[name]["depends_on"]) <= set(services)


def _stop(command: list[str]) -> int:
    return int(command[command.index("--stop") + 1])


def test_who_stops_a_worker_waits_longer_than_it_takes() -> None:
    worker = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["worker"]
    assert int(worker["stop_grace_period"].removesuffix("s")) > _stop(worker["command"])
    pod = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")).__next__()["spec"]["template"][
        "spec"
    ]
    assert pod["terminationGracePeriodSeconds"] > _stop(pod["containers"][0]["args"])
    unit = _unit(DEPLOY / "perdure-worker@.service")
    assert int(unit["Service"]["TimeoutStopSec"]) > _stop(unit["Service"]["ExecStart"].split())


def _unit(path: Path) -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(path, encoding="utf-8")
    return read


def test_what_is_on_kubernetes_finds_its_image_secret_and_labels() -> None:
    parts = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
    deployments = {part["metadata"]["name"]: part["spec"] for part in parts if part["kind"] == "Deployment"}
    assert set(deployments) == {"orders-worker", "orders-web"}
    for spec in deployments.values():
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        (container,) = spec["template"]["spec"]["containers"]
        assert _is_of_ours(container["args"]) and container["env"][0]["name"] == "PERDURE_URL"
    (service,) = (part["spec"] for part in parts if part["kind"] == "Service")
    assert service["selector"] == deployments["orders-web"]["template"]["metadata"]["labels"]


def test_the_page_on_deployment_shows_what_the_unit_says() -> None:
    page = (ROOT / "docs" / "guide" / "17-deployment.md").read_text(encoding="utf-8")
    shown = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    unit = (DEPLOY / "perdure-worker@.service").read_text(encoding="utf-8").splitlines()
    assert [line for line in "".join(shown).splitlines() if line and line not in unit] == []


SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def unknown(expression: str) -> list[str]:
    """The metrics of an expression that no worker tells, and labels by which it groups that they do not have."""
    told = {name + suffix: metric for name, metric in METRICS.items() for suffix in SUFFIXES[metric.kind]}
    names = re.findall(r"perdure_\w+", expression)
    labels = {label for name in names if name in told for label in told[name].labels} | {"le"}
    by = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    return [*(name for name in names if name not in told), *sorted(by - labels)]


def test_the_board_of_grafana_shows_metrics_that_workers_tell_by_labels_that_they_have() -> None:
    board = json.loads((DEPLOY / "grafana" / "perdure.json").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(shown) > 20 and all("perdure_" in one for one in shown)
    assert [fault for one in shown for fault in unknown(one)] == []
    for wrong in ("perdure_absent", "perdure_queue_in", "sum by (pid) (perdure_queue_depth)"):
        assert unknown(wrong), wrong


def test_prometheus_scrapes_the_port_that_the_workers_of_the_compose_file_serve() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    [job] = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    [found] = job["dns_sd_configs"]
    command = services["worker"]["command"]
    assert found["names"] == ["worker"] and str(found["port"]) == command[command.index("--metrics") + 1]
    assert services["prometheus"]["volumes"][0].startswith("./prometheus.yaml:")


def test_prometheus_sends_the_token_that_the_workers_of_the_compose_file_ask_for() -> None:
    whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    [job] = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    [secret] = whole["services"]["prometheus"]["secrets"]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{secret}"}
    variable = whole["secrets"][secret]["environment"]
    assert f"${{{variable}:?" in whole["services"]["worker"]["environment"]["PERDURE_METRICS_TOKEN"]
