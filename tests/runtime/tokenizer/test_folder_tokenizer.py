"""Tokenizers of folders are those that transformers would choose, without torch where it has no choice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from fakes.tiny_llama import byte_level_tokenizer
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.tokenizer.folder_tokenizer import PLAIN_CLASSES, PLAIN_MODEL_TYPES, is_plain, load_from_folder

TEXTS = ("Hello, world!  12345", "ünïcode 🙂 \n\n tabs\t", "<s>special</s>", "")


def save(folder: Path, *, model_type: str = "llama", **facts: object) -> Path:
    fast = byte_level_tokenizer()
    fast.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    return folder


@pytest.mark.parametrize("model_type", sorted(PLAIN_MODEL_TYPES))
@pytest.mark.parametrize("name", sorted(PLAIN_CLASSES))
def test_a_plain_one_is_what_transformers_chooses(tmp_path: Path, name: str, model_type: str) -> None:
    folder = save(tmp_path, model_type=model_type, tokenizer_class=name, model_max_length=77)
    assert is_plain(folder)
    ours, theirs = load_from_folder(folder), AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert type(ours) is type(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.chat_template == theirs.chat_template
    assert ours.model_max_length == theirs.model_max_length == 77
    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert [ours(text).input_ids for text in TEXTS] == [theirs(text).input_ids for text in TEXTS]


def test_a_plain_one_needs_no_torch(tmp_path: Path) -> None:
    folder = save(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    code = (
        "import sys; from pathlib import Path; from sgl_runtime.tokenizer import folder_tokenizer as f;"
        f" folder = Path({str(folder)!r}); f.import_libraries(folder); f.load_from_folder(folder);"
        " print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("model_type", "facts"),
    [
        ("qwen2", {"tokenizer_class": "PreTrainedTokenizerFast"}),
        ("llama", {"tokenizer_class": "LlamaTokenizer"}),
        ("llama", {"tokenizer_class": None}),
        ("llama", {"tokenizer_class": "PreTrainedTokenizerFast", "auto_map": {"AutoTokenizer": ["a.B", None]}}),
    ],
)
def test_of_others_transformers_chooses_the_class(tmp_path: Path, model_type: str, facts: dict[str, object]) -> None:
    assert not is_plain(save(tmp_path, model_type=model_type, **facts))


def test_files_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    folder = save(tmp_path, tokenizer_class="PreTrainedTokenizerFast")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelLoadError, match="no tokenizer can be loaded from"):
        load_from_folder(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match=r"it holds no tokenizer\.json"):
        load_from_folder(folder)
    (folder / "config.json").write_text("[]")
    assert not is_plain(folder)
    (folder / "tokenizer_config.json").write_text("no json")
    with pytest.raises(ModelLoadError, match="no tokenizer can be loaded from"):
        load_from_folder(folder)
