"""Writes the files in which Linux tells what energy was used."""

from __future__ import annotations

from pathlib import Path


def zone(classes: Path, name: str, kind: str, joules: float, limit: float = 1000.0) -> Path:
    """A counter's folder; the same call again sets it."""
    folder = classes / "powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(kind + "\n", "ascii")
    (folder / "energy_uj").write_text(f"{joules * 1e6:.0f}\n", "ascii")
    (folder / "max_energy_range_uj").write_text(f"{limit * 1e6:.0f}\n", "ascii")
    return folder


def battery(classes: Path, status: str = "Discharging", **values: float) -> None:
    folder = classes / "power_supply/BAT0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text(status + "\n", "ascii")
    for name, value in values.items():
        (folder / name).write_text(f"{value:.0f}\n", "ascii")
