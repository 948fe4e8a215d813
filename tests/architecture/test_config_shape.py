"""The configuration: frozen sections of at most twelve fields, each field described and reachable by a flag."""

import dataclasses
import re
from pathlib import Path
from typing import get_type_hints

from sgl_runtime.config import RuntimeConfig

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = [RuntimeConfig, *get_type_hints(RuntimeConfig).values()]


def test_sections_are_frozen_and_small():
    assert len(SECTIONS) >= 7
    for section in SECTIONS:
        assert section.__dataclass_params__.frozen, section
        assert len(dataclasses.fields(section)) <= 12, section


def test_every_field_is_described():
    for section in SECTIONS:
        if section is RuntimeConfig:
            continue
        for field in dataclasses.fields(section):
            assert re.search(rf"^\s+{field.name}:", section.__doc__ or "", re.MULTILINE), (
                f"{section.__name__}.{field.name}"
            )


def test_field_names_are_unique_over_the_sections():
    names = [f.name for section in SECTIONS if section is not RuntimeConfig for f in dataclasses.fields(section)]
    assert len(names) == len(set(names))


def test_only_config_reads_the_environment():
    readers = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "runtime").rglob("*.py")
        if re.search(r"os\.environ|os\.getenv", path.read_text(encoding="utf-8"))
    ]
    assert readers == ["runtime/sgl_runtime/config_values.py"]
