"""Tokenizer: text to ids, with the vocabulary and chat template of the served model."""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from sgl_runtime.config_values import cache_folder
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store.model_source import ModelSource
from sgl_runtime.tokenizer.chat_template import ChatTemplate
from sgl_runtime.tokenizer.folder_tokenizer import import_libraries, load_from_folder
from sgl_runtime.tokenizer.gguf_tokenizer import gguf_tokenizer
from sgl_runtime.tokenizer.vocabulary import build_vocabulary
from sgl_runtime.tokenizer.whole_text import WholeText

logger = logging.getLogger(__name__)

GGUF_CACHE_VERSION = 1


class Tokenizer:
    """The served tokenizer.

    Args:
        fast: A transformers fast tokenizer.
        add_bos: Whether it puts a beginning-of-sequence token in front of a text.

    Attributes:
        vocabulary: Bytes of every token.
        bos_id: Beginning-of-sequence id, None where the tokenizer has none.
        eos_id: End-of-sequence id of the tokenizer, None where it has none.
        chat_template: None where the model has none.
    """

    def __init__(self, fast: PreTrainedTokenizerFast, *, add_bos: bool) -> None:
        self._fast = fast
        self._add_bos = add_bos
        # Files may ask for texts to be cut and filled up to one length.
        fast.backend_tokenizer.no_truncation()
        fast.backend_tokenizer.no_padding()
        # Its state is the JSON of the file; of the whole tokenizer that would take a second.
        decoder = fast.backend_tokenizer.decoder
        kind = None if decoder is None else json.loads(decoder.__getstate__())
        added = {index: (token.content, token.special) for index, token in fast.added_tokens_decoder.items()}
        self.vocabulary = build_vocabulary(fast.get_vocab(), added, kind)
        self.bos_id: int | None = fast.bos_token_id
        self.eos_id: int | None = fast.eos_token_id
        self.chat_template = ChatTemplate(fast) if fast.chat_template else None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of a text; special tokens written out in it are recognised.

        Args:
            text: Any text.
            add_bos: Put the beginning-of-sequence id in front, if this tokenizer uses one and the text does not
                begin with it.
        """
        # The batched form lets other threads run meanwhile; the fast one keeps no offsets, which nobody asks for.
        ids: list[int] = self._fast.backend_tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        if add_bos and self._add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of ids, as the tokenizer writes it.

        Args:
            ids: Ids of the vocabulary.
            skip_special_tokens: Leave special tokens out.
        """
        return str(self._fast.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def encode_whole(self, text: str, pair: str | None = None, *, max_length: int | None = None) -> WholeText:
        """Ids of a text, or of two, with every token that the tokenizer puts around them.

        Args:
            text: Any text.
            pair: The second text; None for one.
            max_length: Cut the texts, the longer one first, so that there are at most so many ids; None: as long as
                they are.
        """
        backend = self._fast.backend_tokenizer
        texts = [text] if pair is None else [text, pair]
        first, *rest = backend.encode_batch_fast(texts, add_special_tokens=False)
        second = rest[0] if rest else None
        if max_length is not None:
            room = max(max_length - backend.num_special_tokens_to_add(is_pair=second is not None), 0)
            if second is None:
                first.truncate(room)
            else:
                kept = _kept(len(first), len(second), room)
                first.truncate(kept[0])
                second.truncate(kept[1])
        whole = backend.post_process(first, second, add_special_tokens=True)
        kinds = whole.type_ids
        return WholeText(whole.ids, kinds.index(1) if 1 in kinds else -1)


def _kept(first: int, second: int, room: int) -> tuple[int, int]:
    """How much is kept of two lengths, the longer one cut first."""
    if first + second <= room:
        return first, second
    half = room // 2
    if min(first, second) <= half:
        return (first, room - first) if first <= second else (room - second, second)
    return (half, room - half) if first <= second else (room - half, half)


def import_tokenizer_libraries(source: ModelSource) -> None:
    """Import what loads the tokenizer of a model's folder: see `folder_tokenizer.import_libraries`."""
    if source.files.form == "folder":
        import_libraries(source.files.path)


def load_tokenizer(
    source: ModelSource, *, tokenizer_path: str | None = None, chat_template: str | None = None
) -> Tokenizer:
    """The tokenizer of a model; that of a GGUF file is kept in the user's cache folder.

    Args:
        source: The model.
        tokenizer_path: A folder whose tokenizer is taken instead.
        chat_template: A file whose Jinja template replaces the tokenizer's.

    Raises:
        ModelLoadError: there is no fast tokenizer, or a given file does not exist.
    """
    if tokenizer_path is not None:
        fast = load_from_folder(Path(tokenizer_path))
    elif source.files.form == "folder":
        fast = load_from_folder(source.files.path)
    else:
        fast = _from_gguf(source)
    if chat_template is not None:
        try:
            fast.chat_template = Path(chat_template).read_text(encoding="utf-8")
        except OSError as error:
            raise ModelLoadError(f"chat template {chat_template!r} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ModelLoadError(f"chat template {chat_template!r} cannot be read: it is no text in UTF-8") from error
    return Tokenizer(fast, add_bos=_adds_bos(fast, source))


def _adds_bos(fast: PreTrainedTokenizerFast, source: ModelSource) -> bool:
    if source.files.form == "gguf":
        return bool(source.gguf.get("tokenizer.ggml.add_bos_token", False))
    bos_id = fast.bos_token_id
    return bos_id is not None and fast("x").input_ids[:1] == [bos_id]


def _from_gguf(source: ModelSource) -> PreTrainedTokenizerFast:
    folder = cache_folder() / "tokenizers" / _fingerprint(source.files.path)
    if (folder / "tokenizer_config.json").is_file():
        try:
            return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        # A damaged file makes the libraries behind it raise a plain Exception.
        except Exception as error:
            logger.warning("kept tokenizer is damaged, converting anew folder=%s error=%s", folder, error)
            shutil.rmtree(folder, ignore_errors=True)
    fast = gguf_tokenizer(source.gguf)
    try:
        _save(fast, folder)
    except OSError as error:
        logger.warning("tokenizer not kept, it will be converted at each start folder=%s error=%s", folder, error)
    return fast


def _save(fast: PreTrainedTokenizerFast, folder: Path) -> None:
    # Written beside its place and moved there at once: several processes may convert the same file.
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        written = Path(scratch) / "tokenizer"
        fast.save_pretrained(written)
        try:
            written.replace(folder)
        except OSError:
            # Another process was first.
            if not folder.is_dir():
                raise


def _fingerprint(path: Path) -> str:
    stat = path.stat()
    facts = f"{GGUF_CACHE_VERSION}:{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    return hashlib.sha256(facts.encode()).hexdigest()[:24]
