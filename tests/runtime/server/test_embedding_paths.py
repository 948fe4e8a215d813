"""Vectors, scores and labels over HTTP, with tiny random models and OpenAI's client."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from fakes.served_model import ServedModel, served_model
from fakes.tiny_encoders import add_sentence_transformers, save_tiny_bert
from fakes.tiny_llama import save_tiny_llama


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = ("encoder", "classifier", "cross", "generator")
    folders = {name: tmp_path_factory.mktemp(name) for name in names}
    save_tiny_bert(folders["encoder"])
    add_sentence_transformers(folders["encoder"])
    save_tiny_bert(folders["classifier"], labels=["no", "yes", "maybe"])
    save_tiny_bert(folders["cross"], labels=["LABEL_0"], sbert_ce_default_activation_function="torch.nn.Identity")
    save_tiny_llama(folders["generator"])
    return folders


def test_openai_client_embeds(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["encoder"], served_model_name="tiny") as served:
            client = openai.AsyncOpenAI(api_key="-", base_url="http://served/v1", http_client=served.client)
            one = await client.embeddings.create(model="tiny", input="hello world")
            assert (one.model, one.object, one.usage.prompt_tokens, one.usage.total_tokens) == ("tiny", "list", 4, 4)
            vector = np.array(one.data[0].embedding)
            assert vector.shape == (32,)
            assert np.linalg.norm(vector) == pytest.approx(1)
            many = await client.embeddings.create(model="tiny", input=["a", "hello world"], encoding_format="float")
            assert [item.index for item in many.data] == [0, 1]
            np.testing.assert_allclose(many.data[1].embedding, vector, atol=1e-5)
            ids = (await served.post("/v1/tokenize", {"prompt": "hello world"}))[1]
            assert (ids["count"], ids["max_model_len"]) == (4, 64)
            for given in (ids["tokens"], [ids["tokens"]]):
                found = await client.embeddings.create(model="tiny", input=given)
                np.testing.assert_allclose(found.data[0].embedding, vector, atol=1e-5)
            short = await client.embeddings.create(model="tiny", input="hello world", dimensions=8)
            np.testing.assert_allclose(short.data[0].embedding, vector[:8] / np.linalg.norm(vector[:8]), atol=1e-5)
            raw = (await served.post("/v1/embeddings", {"input": "hello world", "encoding_format": "base64"}))[1]
            decoded = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), dtype="<f4")
            np.testing.assert_allclose(decoded, vector, atol=1e-6)
            with pytest.raises(openai.BadRequestError, match="from 1 to 32"):
                await client.embeddings.create(model="tiny", input="a", dimensions=33)

    asyncio.run(run())


def test_encode_is_native(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["encoder"]) as served:
            status, reply = await served.post("/encode", {"text": "hello", "rid": "mine", "sampling_params": {}})
            assert (status, reply.keys()) == (200, {"embedding", "meta_info"})
            meta = reply["meta_info"]
            assert (meta["id"], meta["prompt_tokens"], meta["cached_tokens"]) == ("mine", 3, 0)
            assert meta["finish_reason"] == {"type": "length", "length": 0}
            replies = (await served.post("/encode", {"text": ["hello", "a"], "rid": ["x", "y"]}))[1]
            assert [(item["index"], item["meta_info"]["id"]) for item in replies] == [(0, "x"), (1, "y")]
            np.testing.assert_allclose(replies[0]["embedding"], reply["embedding"], atol=1e-5)
            info = (await served.client.get("/get_model_info")).json()
            assert info["is_generation"] is False
            assert info["pooling"]["normalizes"] is True
            many = [{"text": ["hello " * (1 + index % 20)] * 8, "priority": index % 3} for index in range(12)]
            results = await asyncio.gather(*(served.post("/encode", body) for body in many))
            assert all(status == 200 and len(found) == 8 for status, found in results)
            state = (await served.client.get("/get_server_info")).json()["internal_states"][0]
            assert (state["free_slots"], state["num_running"], state["cached_slots"]) == (1024, 0, 0)

    asyncio.run(run())


def refused(reply: tuple[int, Any], param: str | None, sentence: str) -> None:
    status, body = reply
    assert status == 400
    assert sentence in body["error"]["message"]
    assert body["error"]["param"] == param


def test_what_is_wrong_is_told(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["encoder"]) as served:
            for path, body, param, sentence in (
                ("/v1/embeddings", {}, "input", "input is missing; it must be a string, a list of token ids"),
                ("/v1/embeddings", {"input": ""}, "input", "input is an empty string"),
                ("/v1/embeddings", {"input": []}, "input", "input is an empty list"),
                ("/v1/embeddings", {"input": ["a", ""]}, "input[1]", "input[1] is an empty string"),
                ("/v1/embeddings", {"input": [[]]}, "input[0]", "input[0] is an empty list"),
                ("/v1/embeddings", {"input": [1, "a"]}, "input[1]", "input[1] is 'a'; it must be a token id"),
                ("/v1/embeddings", {"input": [1, 100]}, "input[1]", "input[1] is 100; it must be from 0 to 99"),
                ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format", "'hex'"),
                ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions", "from 1 to 32"),
                ("/v1/embeddings", {"input": "a", "colour": 1}, "colour", "is not a known field"),
                ("/v1/embeddings", {"input": ["a", "b " * 90]}, "input[1]", "92 tokens; the model reads at most 64"),
                ("/v1/embeddings", {"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "from 1"),
                ("/encode", {"text": "a", "input_ids": [1]}, "text", "either text or input_ids"),
                ("/encode", {"text": ["a", "b"], "rid": "x"}, "rid", "rid gives 1 ids; the body holds 2 inputs"),
                ("/encode", {"text": ["a", "b"], "rid": ["x", "x"]}, "rid", "twice"),
                ("/encode", {"text": "a", "sampling_params": {"top_p": 7}}, "sampling_params.top_p", "top_p"),
                ("/rerank", {"query": "", "documents": ["a"]}, "query", "empty string"),
                ("/rerank", {"query": "a", "documents": []}, "documents", "at least one text"),
                ("/rerank", {"query": "a", "documents": [{"title": "x"}]}, "documents[0].title", "not a known field"),
                ("/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n", "from 1"),
                ("/score", {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]}, "text_2", "one, or as many"),
                ("/detokenize", {"tokens": [100]}, "tokens[0]", "from 0 to 99"),
            ):
                refused(await served.post(path, body), param, sentence)

    asyncio.run(run())


def test_the_wrong_kind_of_model_says_what_it_does(models: dict[str, Path]) -> None:
    async def vectors_only() -> None:
        async with served_model(models["encoder"]) as served:
            messages = [{"role": "user", "content": "a"}]
            for path, body in (
                ("/generate", {"text": "a"}),
                ("/v1/completions", {"prompt": "a"}),
                ("/v1/chat/completions", {"messages": messages}),
                ("/score", {"query": "a", "items": ["b"], "label_token_ids": [1]}),
            ):
                refused(await served.post(path, body), None, "generates nothing; use /v1/embeddings or /encode")
            refused(await served.post("/classify", {"input": "a"}), None, "has no labels")
            assert (await served.client.get("/health_generate")).status_code == 200

    async def generator() -> None:
        async with served_model(models["generator"]) as served:
            for path, body in (
                ("/encode", {"text": "a"}),
                ("/v1/embeddings", {"input": "a"}),
                ("/rerank", {"query": "a", "documents": ["b"]}),
                ("/classify", {"input": "a"}),
                ("/score", {"text_1": "a", "text_2": "b"}),
            ):
                refused(await served.post(path, body), None, "start the server with --is-embedding")

    async def classifier() -> None:
        async with served_model(models["classifier"]) as served:
            refused(await served.post("/v1/embeddings", {"input": "a"}), None, "classifies texts; use /v1/classify")
            refused(await served.post("/rerank", {"query": "a", "documents": ["b"]}), None, "has 3 labels")
            refused(await served.post("/generate", {"text": "a"}), None, "use /v1/classify")
            refused(await served.post("/encode", {"text": "a", "dimensions": 1}), "dimensions", "are not cut")

    for case in (vectors_only, generator, classifier):
        asyncio.run(case())


def test_classes_and_raw_scores(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["classifier"]) as served:
            reply = (await served.post("/v1/classify", {"input": ["hello", "a b"], "model": "m"}))[1]
            assert (reply["object"], len(reply["data"]), reply["usage"]["prompt_tokens"]) == ("list", 2, 7)
            assert all(sum(item["probs"]) == pytest.approx(1) for item in reply["data"])
            raw = (await served.post("/encode", {"text": "hello"}))[1]["embedding"]
            powers = np.exp(np.array(raw) - max(raw))
            np.testing.assert_allclose(reply["data"][0]["probs"], powers / powers.sum(), atol=1e-5)
        async with served_model(models["cross"]) as served:
            # The config says that scores are what the head gives.
            documents = ["a", {"text": "hello world"}, "b c"]
            body = {"query": "hello", "documents": documents, "return_documents": False}
            reply = (await served.post("/v1/rerank", body))[1]
            scores = [result["relevance_score"] for result in reply["results"]]
            assert scores == sorted(scores, reverse=True)
            assert sorted(result["index"] for result in reply["results"]) == [0, 1, 2]
            assert all("document" not in result for result in reply["results"])
            pair = (await served.post("/v1/score", {"text_1": "hello", "text_2": "hello world"}))[1]["data"][0]
            found = next(result for result in reply["results"] if result["index"] == 1)
            assert pair["score"] == pytest.approx(found["relevance_score"], abs=1e-5)

    asyncio.run(run())


def test_embeddings_are_compared_by_their_angle(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["encoder"]) as served:
            texts = ["hello", "hello world", "a b c"]
            data = (await served.post("/v1/embeddings", {"input": texts}))[1]["data"]
            first, *others = (np.array(item["embedding"]) for item in data)
            body = {"text_1": "hello", "text_2": texts}
            scores = [item["score"] for item in (await served.post("/v1/score", body))[1]["data"]]
            np.testing.assert_allclose(scores, [1, *(first @ other for other in others)], atol=1e-5)
            reply = (await served.post("/rerank", {"query": "hello", "documents": texts, "top_n": 1}))[1]
            assert [result["document"] for result in reply["results"]] == [{"text": "hello"}]

    asyncio.run(run())


def test_labels_are_scored_by_the_next_token(models: dict[str, Path]) -> None:
    async def scored(served: ServedModel, **body: Any) -> list[list[float]]:
        status, reply = await served.post("/v1/score", {"label_token_ids": [40, 41, 42], **body})
        assert status == 200, reply
        scores: list[list[float]] = reply["scores"]
        return scores

    async def run() -> None:
        async with served_model(models["generator"]) as served:
            query, items = "is this good? ", ["hello", "well"]
            plain = await scored(served, query=query, items=items)
            for text, scores in zip(items, plain, strict=True):
                probes = {"return_logprob": True, "token_ids_logprob": [40, 41, 42]}
                body = {"text": query + text, "sampling_params": {"max_new_tokens": 1}, **probes}
                meta = (await served.post("/generate", body))[1]["meta_info"]
                expected = [np.exp(entry[0]) for entry in meta["output_token_ids_logprobs"][0]]
                np.testing.assert_allclose(scores, expected, rtol=1e-4)
            soft = await scored(served, query=query, items=items, apply_softmax=True)
            np.testing.assert_allclose(soft, np.array(plain) / np.sum(plain, axis=1, keepdims=True), rtol=1e-4)
            turned = await scored(served, query=" hello", items="well", item_first=True)
            np.testing.assert_allclose(turned, await scored(served, query="well", items=[" hello"]), rtol=1e-4)
            by_ids = await scored(served, query=[5, 6], items=[[7], [8, 9]])
            np.testing.assert_allclose(by_ids[1], (await scored(served, query=[5], items=[[6, 8, 9]]))[0], rtol=1e-4)
            for body, param in (
                ({"query": "a", "items": [], "label_token_ids": [1]}, "items"),
                ({"query": "a", "items": ["b"], "label_token_ids": []}, "label_token_ids"),
                ({"query": "a", "items": ["b"], "label_token_ids": [300]}, "label_token_ids[0]"),
                ({"query": [1], "items": ["b"], "label_token_ids": [1]}, "items[0]"),
                ({"query": "a", "items": ["b"], "label_token_ids": [1], "text_1": "x"}, "text_1"),
            ):
                status, reply = await served.post("/v1/score", body)
                assert (status, reply["error"]["param"]) == (400, param)

    asyncio.run(run())


def test_aborted_requests_for_vectors_say_so(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["encoder"]) as served:
            await served.post("/pause_generation", {"mode": "in_place"})
            waiting = asyncio.ensure_future(served.post("/encode", {"text": "hello", "rid": "mine"}))
            while served.manager.num_live == 0:
                await asyncio.sleep(0)
            assert (await served.post("/abort_request", {"rid": "mine"}))[1] == {"aborted": ["mine"]}
            status, reply = await waiting
            assert (status, reply["error"]["code"]) == (499, "aborted")
            await served.post("/continue_generation", {})
            assert (await served.post("/encode", {"text": "hello", "rid": "mine"}))[0] == 200

    asyncio.run(run())


def test_tokens_become_text_again(models: dict[str, Path]) -> None:
    async def run() -> None:
        async with served_model(models["generator"]) as served:
            text = "hello wörld </s>!"
            tokens = (await served.post("/tokenize", {"text": text}))[1]["tokens"]
            for path in ("/detokenize", "/v1/detokenize"):
                whole = await served.post(path, {"tokens": tokens, "skip_special_tokens": False})
                assert whole == (200, {"text": text})
                assert await served.post(path, {"tokens": [tokens]}) == (200, {"text": ["hello wörld !"]})
            assert await served.post("/detokenize", {"tokens": []}) == (200, {"text": ""})
        async with served_model(models["encoder"]) as served:
            tokens = (await served.post("/v1/tokenize", {"prompt": ["hello abc"]}))[1]["tokens"][0]
            assert (await served.post("/detokenize", {"tokens": tokens}))[1] == {"text": "hello abc"}

    asyncio.run(run())
