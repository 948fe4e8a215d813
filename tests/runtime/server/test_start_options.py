"""Flags, environment, file and defaults: who wins, what is said, and what users of other servers bring."""

from pathlib import Path

import pytest
import yaml

from sgl_runtime.cli import main
from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_flags import build_config
from sgl_runtime.errors import ConfigError
from sgl_runtime.foreign_options import ONLY_VALUES, OTHER_NAMES, REFUSED, SAYS_NOTHING
from sgl_runtime.start_options import StartOptions, parse_options


def parse(*arguments: str) -> StartOptions:
    return parse_options("sgl serve", arguments)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text('model-path = "from-file"\nport = 1001\n[scheduler]\nmax_running_requests = 7\n')
    return path


def test_flags_win_over_environment_over_file_over_defaults(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_PORT", "1002")
    monkeypatch.setenv("SGL_MAX_RUNNING_REQUESTS", "8")
    monkeypatch.setenv("SGL_CACHE_DIR", "/is/no/option")
    options = parse("--config", str(file), "--max-running-requests", "9")
    assert options.config.model.model_path == "from-file"
    assert options.config.server.port == 1002
    assert options.config.scheduler.max_running_requests == 9
    assert options.origins == {"model_path": str(file), "port": "environment", "max_running_requests": "flag"}
    assert options.differences() == [
        f"model_path=from-file from {file}",
        "port=1002 (default 30000) from environment",
        "max_running_requests=9 (default 256) from flag",
    ]


def test_yaml_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump({"model_path": "m", "api-key": ["a", "b"], "disable_radix_cache": True}))
    options = parse("--config", str(path))
    assert options.config.access.api_key == ("a", "b")
    assert options.config.cache.disable_radix_cache
    # A switch that is on in the file can be turned off.
    assert not parse("--config", str(path), "--no-disable-radix-cache").config.cache.disable_radix_cache


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("True", True), ("0", False), ("false", False)]
)
def test_switches_in_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv("SGL_LOG_REQUESTS", text)
    assert parse("--model-path", "m").config.logs.log_requests is value


def test_lists_and_words_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGL_API_KEY", "one, two")
    monkeypatch.setenv("SGL_DTYPE", "float32")
    monkeypatch.setenv("SGL_LOG_REQUESTS_LEVEL", "2")
    config = parse("--model-path", "m").config
    assert config.access.api_key == ("one", "two")
    assert (config.model.dtype, config.logs.log_requests_level) == ("float32", 2)


def test_wrong_values_name_their_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SGL_PORT", "tcp://10.0.0.1")
    said = refusal(capsys, "--model-path", "m")
    assert "environment variable SGL_PORT: port is 'tcp://10.0.0.1'; it must be an integer" in said
    monkeypatch.delenv("SGL_PORT")
    for content, sentence in (
        ("prot = 1", "server.toml: prot is not an option; did you mean port?"),
        ("port = 'x'", "port is 'x'; it must be an integer"),
        ("port = ", "server.toml', which is no TOML"),
        ("[a]\nmax-queued-requests = 1\n[b]\nmax_queued_requests = 2", "which sets max_queued_requests twice"),
    ):
        path = tmp_path / "server.toml"
        path.write_text(content)
        assert sentence in refusal(capsys, "--model-path", "m", "--config", str(path))
    assert "which cannot be read: No such file" in refusal(capsys, "--model-path", "m", "--config", "nowhere.toml")
    path = tmp_path / "server.yaml"
    path.write_text("- a\n- b")
    assert "it must hold names and values" in refusal(capsys, "--model-path", "m", "--config", str(path))
    path.write_text("# port: 1\n")
    assert parse("--model-path", "m", "--config", str(path)).config.server.port == 30000


def test_what_is_printed_is_read_again_and_has_no_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model-path", 'a "quoted" \\ name', "--port", "5", "--allowed-origins", "x", "y", "--log-requests"]
    assert main(["serve", *given, "--print-config"]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "again.toml"
    path.write_text(printed)
    assert parse("--config", str(path)).config == parse(*given).config
    assert "port = 5  # from flag" in printed
    assert main(["serve", *given, "--print-config", "--api-key", "h1dden", "--admin-api-key", "h1dden"]) == 0
    printed = capsys.readouterr().out
    assert "h1dden" not in printed
    # Nor does it become a key when it is read again.
    path.write_text(printed)
    assert parse("--config", str(path)).config.access.api_key == ()
    assert not any("h1dden" in line for line in parse(*given, "--api-key", "h1dden").differences())


def test_several_keys_are_given_in_any_way() -> None:
    for arguments in (["--api-key", "a", "b"], ["--api-key", "a", "--api-key", "b"], ["--api-key=a", "--api-key=b"]):
        assert parse("--model-path", "m", *arguments).config.access.api_key == ("a", "b")


def test_options_of_other_servers_are_taken_by_their_names() -> None:
    config = parse("--model", "m", "--tokenizer", "t", "--max-model-len", "99", "--max-num-seqs", "3").config
    assert (config.model.model_path, config.model.tokenizer_path, config.model.context_length) == ("m", "t", 99)
    assert config.scheduler.max_running_requests == 3


def test_what_changes_nothing_is_said_once() -> None:
    options = parse("--model", "m", "--enable-metrics", "--tp", "1", "--trust-remote-code")
    assert options.config == RuntimeConfig(model=options.config.model)
    assert sorted(note.partition(" ")[0] for note in options.notes) == ["enable_metrics", "tp", "trust_remote_code"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tp-size", "2"], "tp_size is 2; it must be 1: a model runs on one device"),
        (["--speculative-algorithm", "EAGLE"], "speculative_algorithm is not supported: there is no speculative"),
        (["--enable-torch-compile"], "enable_torch_compile is not supported"),
        (["--enforce-eager"], "--disable-cuda-graph"),
    ],
)
def test_what_would_change_something_is_refused_by_name(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refusal(capsys, "--model-path", "m", *arguments)
    name, value = arguments[0].removeprefix("--").replace("-", "_"), arguments[1] if arguments[1:] else "true"
    with pytest.raises(ConfigError, match=sentence):
        build_config({"model_path": "m", name: value})


def test_no_name_means_two_things() -> None:
    own = {field for section in vars(build_config({"model_path": "m"})).values() for field in vars(section)}
    tables = [set(table) for table in (OTHER_NAMES, SAYS_NOTHING, ONLY_VALUES, REFUSED)]
    assert sum(map(len, tables)) == len(set.union(*tables))
    assert set(OTHER_NAMES.values()) <= own


def test_help_is_readable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        parse("--help")
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    for text in ("access:", "--api-key TEXT", "--log-format {text,json}", "Options come from flags, then"):
        assert text in shown
    # What is only understood does not fill the page.
    assert "--tp" not in shown
    assert "--no-log-requests" not in shown
