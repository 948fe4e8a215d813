"""What the document says of each path besides the summary of its handler: bodies, replies, streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sgl_runtime.server.openapi import anthropic_shapes, bodies, openai_bodies, replies, responses_shapes
from sgl_runtime.server.openapi.schemas import TEXT, Schema, integer, one_of_words, ref
from sgl_runtime.server.responses_routes import MAX_PAGE


@dataclass(frozen=True, kw_only=True)
class Described:
    """The shapes of one path.

    Attributes:
        reply: The reply; None where it is text.
        body: The body; None where the path takes none.
        needs_body: Whether there must be one.
        event: What each event of a stream holds; None where the path does not stream.
    """

    reply: Schema | None
    body: Schema | None = None
    needs_body: bool = True
    event: Schema | None = None


def _optional(body: Schema, reply: Schema) -> Described:
    return Described(body=body, needs_body=False, reply=reply)


_RERANK = Described(body=bodies.RERANK, reply=replies.RERANK)
_CLASSIFY = Described(body=bodies.CLASSIFY, reply=replies.CLASSIFY)
_SCORE = Described(body=bodies.SCORE, reply=replies.SCORE)
_DETOKENIZE = Described(body=bodies.DETOKENIZE, reply=replies.DETOKENIZE)
_MODEL_INFO = Described(reply=replies.MODEL_INFO)
_SERVER_INFO = Described(reply=replies.SERVER_INFO)
_STATUS = Described(reply=replies.STATUS)

NATIVE: Mapping[str, Described] = {
    "/generate": Described(body=ref("GenerateRequest"), reply=replies.GENERATE, event=ref("Generated")),
    "/role_affixes": Described(body=bodies.ROLE_AFFIXES, reply=replies.ROLE_AFFIXES),
    "/tokenize": Described(body=bodies.TOKENIZE, reply=replies.TOKENIZE),
    "/v1/tokenize": Described(body=bodies.TOKENIZE_PROMPT, reply=replies.TOKENIZE_PROMPT),
    "/detokenize": _DETOKENIZE,
    "/v1/detokenize": _DETOKENIZE,
    "/encode": Described(body=bodies.ENCODE, reply=replies.ENCODE),
    "/v1/embeddings": Described(body=bodies.EMBEDDINGS, reply=replies.EMBEDDINGS),
    "/rerank": _RERANK,
    "/v1/rerank": _RERANK,
    "/classify": _CLASSIFY,
    "/v1/classify": _CLASSIFY,
    "/score": _SCORE,
    "/v1/score": _SCORE,
    "/flush_cache": _optional(bodies.FLUSH_CACHE, replies.DONE),
    "/kv_events": _optional(bodies.KV_EVENTS, replies.EVENTS),
    "/abort_request": Described(body=bodies.ABORT_REQUEST, reply=replies.ABORTED),
    "/pause_generation": _optional(bodies.PAUSE_GENERATION, replies.DONE),
    "/continue_generation": _optional(bodies.NOTHING, replies.DONE),
    "/open_session": Described(body=bodies.OPEN_SESSION, reply=replies.SESSION),
    "/close_session": Described(body=bodies.CLOSE_SESSION, reply=replies.DONE),
    "/get_model_info": _MODEL_INFO,
    "/model_info": _MODEL_INFO,
    "/get_server_info": _SERVER_INFO,
    "/server_info": _SERVER_INFO,
    "/health": _STATUS,
    "/ping": _STATUS,
    "/ready": _STATUS,
    "/health_generate": Described(reply=replies.PROBED),
    "/configure_logging": Described(body=bodies.CONFIGURE_LOGGING, reply=replies.LOGGING),
    "/start_profile": _optional(bodies.START_PROFILE, replies.DONE),
    "/stop_profile": _optional(bodies.NOTHING, replies.DONE),
    "/freeze_gc": _optional(bodies.NOTHING, replies.DONE),
    "/get_load": Described(reply=replies.LOAD),
    "/parse_function_call": Described(body=bodies.PARSE_FUNCTION_CALL, reply=replies.PARSE_FUNCTION_CALL),
    "/separate_reasoning": Described(body=bodies.SEPARATE_REASONING, reply=replies.SEPARATE_REASONING),
    "/validate_grammar": Described(body=bodies.VALIDATE_GRAMMAR, reply=replies.VALIDATED),
    "/live_stats": Described(reply=replies.LIVE_STATS),
    "/request_history": _optional(bodies.REQUEST_HISTORY, replies.HISTORY),
    "/inspect_request": Described(body=bodies.INSPECT_REQUEST, reply=replies.INSPECTION),
}
"""Those of `NativeApi`."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """What is answered over HTTP alone.

    Attributes:
        path, method: Where it is found.
        summary: What it does.
        shapes: What it takes and gives.
        query: Schemas of its query parameters.
        error: The envelope of its errors.
    """

    path: str
    method: str
    summary: str
    shapes: Described
    query: Mapping[str, Schema] = field(default_factory=dict)
    error: Schema = field(default_factory=lambda: ref("Error"))


_RESPONSE = ref("Response")
ROUTES: Sequence[Route] = (
    Route(
        path="/v1/chat/completions",
        method="post",
        summary="Answer a chat.",
        shapes=Described(body=ref("ChatRequest"), reply=replies.CHAT, event=replies.CHAT_CHUNK),
    ),
    Route(
        path="/v1/completions",
        method="post",
        summary="Go on with a text.",
        shapes=Described(body=ref("CompletionRequest"), reply=replies.COMPLETION, event=replies.COMPLETION),
    ),
    Route(path="/v1/models", method="get", summary="The served model.", shapes=Described(reply=replies.MODELS)),
    Route(
        path="/v1/models/{name}",
        method="get",
        summary="The served model, by its name.",
        shapes=Described(reply=ref("Model")),
    ),
    Route(
        path="/v1/responses",
        method="post",
        summary="Answer a conversation, which may be kept.",
        shapes=Described(body=ref("ResponsesRequest"), reply=_RESPONSE, event=responses_shapes.EVENT),
    ),
    Route(
        path="/v1/responses/input_tokens",
        method="post",
        summary="How long the prompt of a body is.",
        shapes=Described(body=ref("ResponsesRequest"), reply=responses_shapes.COUNTED),
    ),
    Route(
        path="/v1/responses/{response_id}",
        method="get",
        summary="A response that is kept.",
        shapes=Described(reply=_RESPONSE, event=responses_shapes.EVENT),
        query={"stream": one_of_words(("true", "false")), "starting_after": integer(0)},
    ),
    Route(
        path="/v1/responses/{response_id}",
        method="delete",
        summary="Forget a response.",
        shapes=Described(reply=responses_shapes.DELETED),
    ),
    Route(
        path="/v1/responses/{response_id}/cancel",
        method="post",
        summary="End a response that is made in the background.",
        shapes=Described(reply=_RESPONSE),
    ),
    Route(
        path="/v1/responses/{response_id}/input_items",
        method="get",
        summary="What a response answered.",
        shapes=Described(reply=responses_shapes.ITEMS),
        query={"order": one_of_words(("asc", "desc")), "limit": integer(1, MAX_PAGE), "after": TEXT},
    ),
    Route(
        path="/v1/messages",
        method="post",
        summary="Answer a chat, as Anthropic's clients ask.",
        shapes=Described(body=ref("MessagesRequest"), reply=anthropic_shapes.MESSAGE, event=anthropic_shapes.EVENT),
        error=ref("AnthropicError"),
    ),
    Route(
        path="/v1/messages/count_tokens",
        method="post",
        summary="How long the prompt of a chat is.",
        shapes=Described(body=anthropic_shapes.COUNT_REQUEST, reply=anthropic_shapes.COUNTED),
        error=ref("AnthropicError"),
    ),
    Route(path="/metrics", method="get", summary="Metrics, in Prometheus' text form.", shapes=Described(reply=None)),
)
"""All others."""

COMPONENTS: Mapping[str, Schema] = {
    "GenerateRequest": bodies.GENERATE,
    "SamplingParams": bodies.SAMPLING_PARAMS,
    "SessionTurn": bodies.SESSION_TURN,
    "Message": bodies.MESSAGE,
    "Function": bodies.FUNCTION,
    "ToolCall": openai_bodies.TOOL_CALL,
    "ChatRequest": openai_bodies.CHAT,
    "CompletionRequest": openai_bodies.COMPLETION,
    "ResponsesRequest": responses_shapes.REQUEST,
    "ResponseItem": responses_shapes.ITEM,
    "Response": responses_shapes.RESPONSE,
    "MessagesRequest": anthropic_shapes.REQUEST,
    "Generated": replies.GENERATED,
    "Usage": replies.USAGE,
    "Model": replies.MODEL,
    "Error": replies.ERROR,
    "AnthropicError": anthropic_shapes.ERROR,
}
