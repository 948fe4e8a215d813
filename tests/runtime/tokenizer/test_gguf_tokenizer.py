"""The tokenizer of the small real model's GGUF file, and that of a tiny one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.tiny_llama import byte_level_tokenizer, save_tiny_gguf
from sgl_runtime.config import ModelSection
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.tokenizer import tokenizer as tokenizer_module
from sgl_runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer

TEXTS = [
    "Hello, world!",
    "  two spaces, a\ttab\n\n\nand lines\r\n",
    "Grüße aus Köln – naïve café, „Zitat“",
    "Съешь же ещё этих мягких французских булок",
    "これは日本語の文章です。漢字も。",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 🎉 e\u0301",
    "def f(x):\n    return x ** 2  # 3.14159",
    "\x00\x01\x7f",
    "",
]


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(tokenizer.vocabulary.token_bytes[token_id] for token_id in ids).decode()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def source_of(model_path: Path | str) -> ModelSource:
    return ModelSource.open(ModelSection(model_path=str(model_path)))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(source_of("smollm2"))


@pytest.mark.model
class TestSmolLM2:
    @pytest.mark.parametrize("text", TEXTS)
    def test_text_comes_back_from_its_ids(self, tokenizer: Tokenizer, text: str) -> None:
        assert text_of(tokenizer, tokenizer.encode(text, add_bos=False)) == text

    def test_each_digit_is_a_token(self, tokenizer: Tokenizer) -> None:
        ids = tokenizer.encode("in 2024, 1234567", add_bos=False)
        pieces = [text_of(tokenizer, [token_id]) for token_id in ids]
        assert [piece.strip() for piece in pieces if piece.strip().isdigit()] == list("20241234567")

    def test_special_tokens_are_recognised_in_text(self, tokenizer: Tokenizer) -> None:
        start, end = tokenizer.encode("<|im_start|><|im_end|>", add_bos=False)
        assert (start, end) == (1, 2)
        assert {start, end} <= tokenizer.vocabulary.special_ids
        assert tokenizer.encode("a<|im_end|>b", add_bos=False)[1] == end
        assert tokenizer.eos_id == end

    def test_no_beginning_is_put_in_front(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.encode("Hi", add_bos=True) == tokenizer.encode("Hi", add_bos=False)

    def test_every_byte_has_a_token(self, tokenizer: Tokenizer) -> None:
        ordinary = {
            raw
            for token_id, raw in enumerate(tokenizer.vocabulary.token_bytes)
            if token_id not in tokenizer.vocabulary.special_ids
        }
        missing = [byte for byte in range(256) if bytes([byte]) not in ordinary]
        # UTF-8 text never holds these, or only in ways that pieces of several bytes spell.
        assert not [byte for byte in missing if byte < 0x80 and byte not in range(0x20)]

    @pytest.mark.slow
    def test_the_conversion_is_kept(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = source_of("smollm2")
        first = load_tokenizer(source)
        assert list(cache.glob("tokenizers/*/tokenizer_config.json"))

        def again(file: object) -> None:
            raise AssertionError("converted a second time")

        monkeypatch.setattr(tokenizer_module, "gguf_tokenizer", again)
        second = load_tokenizer(source_of("smollm2"))
        for text in TEXTS:
            assert second.encode(text, add_bos=True) == first.encode(text, add_bos=True)
        assert second.vocabulary == first.vocabulary
        messages = [{"role": "user", "content": "Hi"}]
        assert first.chat_template is not None
        assert second.chat_template is not None
        assert second.chat_template.render(messages, add_generation_prompt=True) == first.chat_template.render(
            messages, add_generation_prompt=True
        )


def test_tiny_file_encodes_as_the_tokenizer_that_it_was_made_from(tmp_path: Path, cache: Path) -> None:
    loaded = load_tokenizer(source_of(save_tiny_gguf(tmp_path / "m.gguf")))
    made = byte_level_tokenizer()
    for text in ("hello world", "</s>a<|turn|>", "é€", "he l ll"):
        assert loaded.encode(text, add_bos=False) == made.encode(text, add_special_tokens=False)


CONVERT = """
import sys
from sgl_runtime.config import ModelSection
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.tokenizer.tokenizer import load_tokenizer
tokenizer = load_tokenizer(ModelSource.open(ModelSection(model_path=sys.argv[1])))
print(tokenizer.encode("hello", add_bos=False))
"""


def test_processes_that_convert_at_once_all_succeed(tmp_path: Path, cache: Path) -> None:
    path = str(save_tiny_gguf(tmp_path / "m.gguf"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CONVERT, path]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(set(outputs)) == 1
    assert outputs[0].startswith("[")
    # Nothing is left beside the one folder.
    assert len(list((cache / "tokenizers").iterdir())) == 1


def test_another_file_at_the_same_place_is_converted_anew(tmp_path: Path, cache: Path) -> None:
    path = save_tiny_gguf(tmp_path / "m.gguf")
    load_tokenizer(source_of(path))
    path.write_bytes(path.read_bytes() + bytes(32))
    load_tokenizer(source_of(path))
    assert len(list((cache / "tokenizers").iterdir())) == 2


def test_a_cache_folder_that_cannot_be_written_costs_only_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SGL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    tokenizer = load_tokenizer(source_of(save_tiny_gguf(tmp_path / "m.gguf")))
    assert tokenizer.encode("hello", add_bos=False)
    assert "tokenizer not kept" in caplog.text


def test_a_damaged_cache_entry_is_replaced(tmp_path: Path, cache: Path) -> None:
    path = save_tiny_gguf(tmp_path / "m.gguf")
    wanted = load_tokenizer(source_of(path)).encode("hello", add_bos=False)
    (entry,) = cache.glob("tokenizers/*")
    (entry / "tokenizer.json").write_text("{")
    assert load_tokenizer(source_of(path)).encode("hello", add_bos=False) == wanted
    assert (entry / "tokenizer.json").stat().st_size > 10


def test_given_folder_and_template_are_checked(tmp_path: Path, cache: Path) -> None:
    source = source_of(save_tiny_gguf(tmp_path / "m.gguf"))
    with pytest.raises(ModelLoadError, match=r"tokenizer folder '.*nowhere' does not exist"):
        load_tokenizer(source, tokenizer_path=str(tmp_path / "nowhere"))
    with pytest.raises(ModelLoadError, match=r"chat template '.*none.jinja' cannot be read: No such file"):
        load_tokenizer(source, chat_template=str(tmp_path / "none.jinja"))
    (tmp_path / "binary.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelLoadError, match=r"chat template '.*binary.jinja' cannot be read"):
        load_tokenizer(source, chat_template=str(tmp_path / "binary.jinja"))
    (tmp_path / "t.jinja").write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    loaded = load_tokenizer(source, chat_template=str(tmp_path / "t.jinja"))
    assert loaded.chat_template is not None
    assert loaded.chat_template.render([{"role": "user", "content": "x"}], add_generation_prompt=False) == "[x]"
