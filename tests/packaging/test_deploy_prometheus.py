"""The figures of several servers are summed as docs/deploy says, by Prometheus' own program."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="install the extra serve")

from prometheus_client.parser import text_string_to_metric_families

from edgedec.serve.metrics import ServerMetrics

# Two servers, of which one generates three times as many tokens, and drafts better.
SERIES = {
    'edgedec_generated_tokens_total{instance="one"}': "0+60x20",
    'edgedec_generated_tokens_total{instance="two"}': "0+180x20",
    'edgedec_drafted_tokens_total{instance="one"}': "0+60x20",
    'edgedec_drafted_tokens_total{instance="two"}': "0+180x20",
    'edgedec_accepted_tokens_total{instance="one"}': "0+30x20",
    'edgedec_accepted_tokens_total{instance="two"}': "0+150x20",
    'edgedec_waiting_requests{instance="one"}': "3x20",
    'edgedec_waiting_requests{instance="two"}': "4x20",
    'edgedec_requests_total{instance="one", route="/health", status="200"}': "0+60x20",
    'edgedec_requests_total{instance="two", route="/health", status="200"}': "0+60x20",
    'up{instance="one", job="edgedec"}': "1x20",
    'up{instance="two", job="edgedec"}': "0x20",
}
EXPECTED = {
    "edgedec:generated_tokens:rate5m": [("edgedec:generated_tokens:rate5m", 4.0)],
    "edgedec:acceptance:ratio5m": [("edgedec:acceptance:ratio5m", 0.75)],
    "edgedec:waiting_requests:sum": [("edgedec:waiting_requests:sum", 7.0)],
    "edgedec:requests:rate5m": [
        ('edgedec:requests:rate5m{route="/health", status="200"}', 2.0),
    ],
    'ALERTS{alertstate="firing"}': [
        (
            'ALERTS{alertname="EdgedecServerGone",alertstate="firing",instance="two",job="edgedec"}',
            1,
        ),
    ],
}


@pytest.fixture
def folder(repository: Path, tmp_path: Path) -> Path:
    """Both files, as they are copied to /etc/prometheus."""
    for name in ("prometheus.yml", "prometheus-rules.yml"):
        shutil.copy(repository / "docs" / "deploy" / name, tmp_path)
    (tmp_path / "edgedec-key").write_text("a key", "utf-8")
    return tmp_path


def promtool(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: on Debian, apt install prometheus")
    command = [program, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_prometheus_takes_both_files(folder: Path) -> None:
    done = promtool(folder, "check", "config", "prometheus.yml")
    assert done.returncode == 0, done
    rules = folder / "prometheus-rules.yml"
    rules.write_text(rules.read_text("utf-8").replace("sum(rate", "sums(rate"), "utf-8")
    assert promtool(folder, "check", "config", "prometheus.yml").returncode != 0


def summed(folder: Path) -> subprocess.CompletedProcess[str]:
    expected = [
        {
            "expr": expr,
            "eval_time": "10m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples],
        }
        for expr, samples in EXPECTED.items()
    ]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    test = {
        "rule_files": ["prometheus-rules.yml"],
        "tests": [
            {"interval": "1m", "input_series": series, "promql_expr_test": expected},
        ],
    }
    (folder / "test.yml").write_text(json.dumps(test), "utf-8")
    return promtool(folder, "test", "rules", "test.yml")


def test_figures_are_summed_over_servers(folder: Path) -> None:
    done = summed(folder)
    assert done.returncode == 0, done
    rules = folder / "prometheus-rules.yml"
    average = re.sub(r"sum\(rate\(edgedec_acc.*", "avg(edgedec_acceptance_rate)", rules.read_text())
    rules.write_text(average, "utf-8")
    assert summed(folder).returncode != 0  # the control


def test_each_figure_is_one_that_a_server_has(folder: Path) -> None:
    metrics = ServerMetrics(None)
    metrics.watch(lambda: 0, lambda: 0, lambda: 0)
    page = metrics.page().decode()
    known = {
        family.name + ending
        for family in text_string_to_metric_families(page)
        for ending in ("", "_total", "_bucket")
    }
    rules = (folder / "prometheus-rules.yml").read_text("utf-8")
    used = set(re.findall(r"(?m)^        expr:.*$", rules))
    names = set(re.findall(r"\bedgedec_\w+", " ".join(used)))
    assert len(names) > 6
    assert names <= known
    assert not {"edgedec_tokens_total"} <= known  # the control
