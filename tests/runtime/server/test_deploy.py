"""The files in deploy/ name options, variables and paths that there are."""

import configparser
import json
import re
import shlex
from pathlib import Path

from prometheus_client import CollectorRegistry

from sgl_runtime.config_flags import config_flags, flag_of
from sgl_runtime.config_serving import ConnectionConfig
from sgl_runtime.foreign_options import ONLY_VALUES, OTHER_NAMES, REFUSED, SAYS_NOTHING
from sgl_runtime.server.metrics import GAUGES, ServerMetrics

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
FLAGS = {flag.flag for flag in config_flags()} | {"--config"}
VARIABLES = {f"SGL_{flag.name.upper()}" for flag in config_flags()} | {"SGL_CACHE_DIR"}


def test_the_service_starts_with_flags_that_there_are_and_waits_for_the_drain() -> None:
    text = (DEPLOY / "sgl.service").read_text(encoding="utf-8")
    # As systemd does, which allows names more than once.
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1] == "serve"
    assert {word for word in words if word.startswith("--")} <= FLAGS
    assert int(service["TimeoutStopSec"]) > ConnectionConfig().shutdown_timeout + 5
    assert set(re.findall(r"SGL_\w+", text)) <= VARIABLES


def test_the_image_sets_variables_that_there_are() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"SGL_\w+", text)) <= VARIABLES
    assert '"sgl", "serve"' in text
    assert "'/health'" in text
    extras = set(re.findall(r"extras=([\w,]+)", text))
    root = (DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = ", root, re.MULTILINE) for names in extras for extra in names.split(","))


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(target["expr"] for panel in panels for target in panel["targets"])


def test_operations_page_names_options_and_metrics_that_there_are() -> None:
    text = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    foreign = {flag_of(name) for table in (OTHER_NAMES, SAYS_NOTHING, ONLY_VALUES, REFUSED) for name in table}
    known = {"--url", "--speed", "--print-config"} | FLAGS | foreign
    assert set(re.findall(r"`(--[a-z][a-z-]+[a-z])\b", text.replace("--no-NAME", ""))) <= known
    assert set(re.findall(r"SGL_\w+", text)) <= VARIABLES
    metrics = ServerMetrics(CollectorRegistry(), model_name="m")
    there = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in metrics.registry.collect()}
    gauges = {f"sgl:{name}" for name in GAUGES}
    assert set(re.findall(r"sgl:\w+", text)) == there | gauges
