"""RoBERTa and XLM-RoBERTa: BERT by other names, whose positions begin behind the id of padding."""

from sgl_runtime.models.bert import Bert


class Roberta(Bert):
    """See `Bert`.

    Source: arXiv:1907.11692, arXiv:1911.02116.
    """

    prefix = "roberta."
    head = ("classifier.dense", "classifier.out_proj")
