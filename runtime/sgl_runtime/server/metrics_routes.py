"""The HTTP route of /metrics."""

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.server.metrics import ServerMetrics
from sgl_runtime.server.scheduler_questions import SchedulerQuestions

SCHEDULER_WAIT_S = 0.5
"""How long a scrape waits for the scheduler, which may be in the middle of a long pass."""


def metrics_router(metrics: ServerMetrics, questions: SchedulerQuestions) -> APIRouter:
    """The route.

    Args:
        metrics: What is shown.
        questions: Asks the scheduler.
    """
    router = APIRouter()

    async def show(request: Request) -> Response:
        try:
            counters = await asyncio.wait_for(questions.stats(), SCHEDULER_WAIT_S)
        except (TimeoutError, SglRuntimeError):
            counters = None
        metrics.set_scheduler_counters(counters)
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), headers={"content-type": content_type})

    router.add_api_route("/metrics", show, methods=["GET"])
    return router
