"""The HTTP route of /metrics."""

import asyncio

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.metrics import ServerMetrics
from sgl_runtime.server.scheduler_questions import SchedulerQuestions

SCHEDULER_WAIT_S = 0.5
"""How long a scrape waits for the scheduler, which may be in the middle of a long pass."""


def metrics_routes(metrics: ServerMetrics, questions: SchedulerQuestions) -> list[Route]:
    """The route, as the only one of a list.

    Args:
        metrics: What is shown.
        questions: Asks the scheduler.
    """

    async def show(request: Request) -> Response:
        try:
            counters = await asyncio.wait_for(questions.stats(), SCHEDULER_WAIT_S)
        except (TimeoutError, SglRuntimeError):
            counters = None
        metrics.set_scheduler_counters(counters)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={"content-type": content_type})

    return [
        Route("/metrics", show, methods=["GET"]),
    ]
