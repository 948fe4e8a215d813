"""The line of the log that says where the seconds of a start went."""

import re

from fakes.tiny_llama import save_tiny_llama
from sgl_runtime.composition import ModelHost, build_scheduler
from sgl_runtime.config import CacheConfig, DeviceConfig, ModelSection, RuntimeConfig
from sgl_runtime.stopwatch import Stopwatch


def test_a_start_says_what_its_parts_took(tmp_path, caplog):
    save_tiny_llama(tmp_path)
    config = RuntimeConfig(
        model=ModelSection(model_path=str(tmp_path)),
        cache=CacheConfig(max_total_tokens=64),
        device=DeviceConfig(device="cpu"),
    )
    with caplog.at_level("INFO"):
        build_scheduler(config, ModelHost.open(config)).scheduler.close()
    line = re.search(r"model ready slots=64 seconds=(\S+) (.*)", caplog.text)
    assert line is not None
    parts = dict(part.split("=") for part in line[2].split())
    names = ["files", "imports", "device", "tokenizer", "weights", "memory", "kernels", "products", "graphs", "grammar"]
    assert list(parts) == names
    assert sum(map(float, parts.values())) <= float(line[1]) + 0.01 * len(parts)


def test_a_part_that_comes_twice_counts_once_with_both_times():
    watch = Stopwatch()
    for _ in range(2):
        with watch.part("weights"):
            pass
    with watch.part("graphs"):
        pass
    assert re.fullmatch(r"seconds=0\.\d\d weights=0\.\d\d graphs=0\.\d\d", watch.fields())
