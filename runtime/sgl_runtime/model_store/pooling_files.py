"""What a model's files say of vectors: pooling, normalisation, labels.

Two forms are read: the folders of sentence-transformers (`modules.json` and what it names), and the labels in the
config of a model with a classifying head.
"""

from pathlib import Path

from sgl_runtime.config import ModelSection
from sgl_runtime.errors import ModelLoadError
from sgl_runtime.model_info import PoolingInfo, PoolingMethod, ScoreActivation
from sgl_runtime.model_store.config_fields import ConfigFields, read_json, read_json_objects
from sgl_runtime.model_store.model_source import ModelSource

BARE_ARCHITECTURES = frozenset({"LlamaModel", "Qwen3Model"})
"""Decoders without a head."""

_CLASSIFIER = "ForSequenceClassification"
_METHODS: dict[str, PoolingMethod] = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}
_ACTIVATIONS: dict[str, ScoreActivation] = {"Identity": "none", "Sigmoid": "sigmoid", "Softmax": "softmax"}


def read_pooling(source: ModelSource, section: ModelSection) -> PoolingInfo | None:
    """How a model makes vectors; None where it generates.

    A model makes vectors if its architecture can do nothing else, if its folder is one of sentence-transformers, or if
    the configuration says so.

    Raises:
        ModelLoadError: the files ask for what is not supported, or the configuration does not fit the model.
    """
    architecture = source.outline.architecture
    folder = source.files.path if source.files.form == "folder" else None
    modules = _modules(folder)
    is_classifier = architecture.endswith(_CLASSIFIER)
    cannot_generate = is_classifier or source.is_encoder or architecture in BARE_ARCHITECTURES
    if not (section.is_embedding or modules or cannot_generate):
        if section.pooling_method is not None:
            raise ModelLoadError(
                f"pooling_method is {section.pooling_method!r}, but the model generates; give is_embedding too"
            )
        return None
    default: PoolingMethod = "cls" if source.is_encoder and is_classifier else "mean" if source.is_encoder else "last"
    found = None if folder is None or is_classifier else _method(folder, modules)
    if is_classifier and section.pooling_method not in (None, default):
        raise ModelLoadError(
            f"pooling_method is {section.pooling_method!r}; the head of a {architecture} was made for {default!r}"
        )
    labels = _labels(folder) if is_classifier and folder is not None else None
    return PoolingInfo(
        method=section.pooling_method or found or default,
        size=source.outline.hidden_size if labels is None else len(labels),
        # Where nothing is said, vectors of length 1 are what users of embeddings expect.
        normalizes="Normalize" in modules if modules else labels is None,
        labels=labels,
        activation="none" if labels is None or folder is None else _activation(folder, len(labels)),
        reads_pairs=source.is_encoder and source.encoder.num_segments > 1,
        max_length=None if folder is None else _max_length(folder),
    )


def _modules(folder: Path | None) -> dict[str, str]:
    """Kind and subfolder of each module that sentence-transformers would run; empty for another kind of folder.

    Raises:
        ModelLoadError: one is of a kind that is not supported.
    """
    path = None if folder is None else folder / "modules.json"
    if path is None or not path.is_file():
        return {}
    modules: dict[str, str] = {}
    for entry in read_json_objects(path):
        kind = str(entry.get("type", "")).rpartition(".")[2]
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise ModelLoadError(
                f"{path}: module {kind!r} is not supported; supported: Transformer, Pooling, Normalize"
            )
        modules[kind] = str(entry.get("path", ""))
    return modules


def _method(folder: Path, modules: dict[str, str]) -> PoolingMethod | None:
    """The method that the Pooling module names; None without one.

    Raises:
        ModelLoadError: it names another, or several.
    """
    path = folder / modules.get("Pooling", "") / "config.json"
    if "Pooling" not in modules or not path.is_file():
        return None
    data = read_json(path)
    chosen = [name.removeprefix("pooling_mode_") for name, value in data.items() if value is True]
    chosen = [name for name in chosen if name != "include_prompt"]
    named = data.get("pooling_mode")
    if named is not None:
        chosen = {"mean": ["mean_tokens"], "cls": ["cls_token"], "lasttoken": ["lasttoken"]}.get(
            str(named), [str(named)]
        )
    if len(chosen) != 1 or chosen[0] not in _METHODS:
        raise ModelLoadError(f"{path}: pooling by {chosen} is not supported; supported is one of {', '.join(_METHODS)}")
    return _METHODS[chosen[0]]


def _max_length(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    return ConfigFields(read_json(path), str(path)).optional("max_seq_length") if path.is_file() else None


def _labels(folder: Path) -> list[str]:
    """Names of the classes, in the order of their numbers.

    Raises:
        ModelLoadError: they are not numbered from 0 on.
    """
    path = folder / "config.json"
    data = read_json(path)
    names = data.get("id2label")
    if names is None:
        count = ConfigFields(data, str(path)).optional("num_labels") or 2
        return [f"LABEL_{index}" for index in range(count)]
    numbers = [str(index) for index in range(len(names))] if isinstance(names, dict) else []
    if not numbers or set(numbers) != set(names):
        raise ModelLoadError(f"{path}: id2label is {names!r}; it must name the classes 0, 1, ...")
    return [str(names[number]) for number in numbers]


def _activation(folder: Path, num_labels: int) -> ScoreActivation:
    """What the config says, or what is usual for so many labels.

    Raises:
        ModelLoadError: the config names another.
    """
    data = read_json(folder / "config.json")
    own = data.get("sentence_transformers")
    name = data.get("sbert_ce_default_activation_function")
    name = own.get("activation_fn", name) if isinstance(own, dict) else name
    if name is not None:
        kind = str(name).rpartition(".")[2]
        if kind not in _ACTIVATIONS:
            raise ModelLoadError(
                f"{folder / 'config.json'}: activation {name!r} is not supported; supported: {', '.join(_ACTIVATIONS)}"
            )
        return _ACTIVATIONS[kind]
    is_multi_label = data.get("problem_type") == "multi_label_classification"
    return "sigmoid" if num_labels == 1 or is_multi_label else "softmax"
