import pytest

from sgl_runtime.cli import main
from sgl_runtime.config import RuntimeConfig
from sgl_runtime.config_flags import build_config, config_flags
from sgl_runtime.errors import ConfigError
from sgl_runtime.start_options import parse_options


def test_every_field_has_a_flag_with_help() -> None:
    flags = {flag.flag: flag for flag in config_flags()}
    assert "--max-running-requests" in flags
    assert all(flag.help for flag in flags.values())
    assert len(flags) == len(config_flags()), "two sections have a field of one name"


def test_flags_reach_their_sections() -> None:
    config = parse_options(
        "sgl serve",
        [
            "--model-path",
            "m",
            "--port",
            "123",
            "--disable-radix-cache",
            "--mem-fraction-static=0.25",
            "--dtype",
            "float16",
        ],
    ).config
    assert (config.model.model_path, config.server.port, config.cache.disable_radix_cache) == ("m", 123, True)
    assert (config.cache.mem_fraction_static, config.model.dtype) == (0.25, "float16")
    assert config.scheduler == RuntimeConfig(model=config.model).scheduler


def test_an_option_is_known_by_its_old_name_too() -> None:
    for flag in ("--disable-grammar-disk-cache", "--disable-outlines-disk-cache"):
        assert parse_options("sgl serve", ["--model-path", "m", flag]).config.grammar.disable_grammar_disk_cache
    assert build_config({"model_path": "m", "disable_outlines_disk_cache": True}).grammar.disable_grammar_disk_cache


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "model_path is missing"),
        (["--model-path", "m", "--prot", "1"], "--prot is not an option; did you mean --port?"),
        (["--model-path", "m", "--zzzzzz"], "--zzzzzz is not an option (see sgl serve --help)"),
        (["--model-path", "m", "--port", "x"], "argument --port: invalid int value: 'x'"),
        (["--model-path", "m", "--port", "70000"], "port is 70000; it must be from 1 to 65535"),
        (["--model-path", "m", "--dtype", "int3"], "invalid choice: 'int3'"),
        (["--model-path", "m", "stray"], "stray is not an option"),
        (["--model-path", "m", "--grammar-backend", "x"], "invalid choice: 'x'"),
        (
            ["--model-path", "m", "--chunked-prefill-size", "0"],
            "chunked_prefill_size is 0; it must be at least 1, or -1 for prompts as a whole",
        ),
        (["--model-path", "m", "--cuda-graph-max-bs", "0"], "cuda_graph_max_bs is 0; it must be at least 1"),
        (
            ["--model-path", "m", "--grammar-compile-memory", "9"],
            "grammar_compile_memory is 9; it must be at least 256",
        ),
    ],
)
def test_wrong_flags_end_with_code_2_and_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_options("sgl serve", arguments)
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert sentence in said
    assert said.count("\n") == 1


def test_values_are_checked_by_type() -> None:
    with pytest.raises(ConfigError, match="zzz is not an option; options: model_path, "):
        build_config({"model_path": "m", "zzz": 1})
    with pytest.raises(ConfigError, match="port is True; it must be an integer"):
        build_config({"model_path": "m", "port": True})
    assert (
        build_config({"model_path": "m", "mem_fraction_static": 0.25, "context_length": None}).model.model_path == "m"
    )


def test_help_lists_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "serve" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--port N TCP port to listen on. (default: 30000)" in shown
    assert "{auto,float32,bfloat16,float16}" in shown


def test_version_and_wrong_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sgl ")
    assert main(["sevre"]) == 2
    assert "sevre is not a command; did you mean serve?" in capsys.readouterr().err
    assert main([]) == 2
