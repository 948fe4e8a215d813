"""RequestBooks: everything that is written down of requests, put together from the configuration."""

from dataclasses import dataclass
from typing import Self

from prometheus_client import CollectorRegistry

from sgl_runtime.config_serving import LogConfig
from sgl_runtime.server.http_call import CurrentCall
from sgl_runtime.server.metrics import ServerMetrics
from sgl_runtime.server.request_dump import RequestDump
from sgl_runtime.server.request_history import RequestHistory
from sgl_runtime.server.request_log import RequestLog
from sgl_runtime.server.request_traces import RequestTraces, open_traces
from sgl_runtime.server.request_watch import RequestWatch, RequestWatcher


@dataclass(frozen=True)
class RequestBooks:
    """What the parts of the API process share.

    Attributes:
        watch: Is told what becomes of requests.
        log, metrics, dump, history: Keep book.
        traces: Sends spans; None where no collector is named.
        current: Which HTTP request a task answers.
    """

    watch: RequestWatch
    log: RequestLog
    metrics: ServerMetrics
    dump: RequestDump
    history: RequestHistory
    traces: RequestTraces | None
    current: CurrentCall

    @classmethod
    def open(cls, config: LogConfig, *, model_name: str, traces: RequestTraces | None = None) -> Self:
        """The books of one process.

        Args:
            config: What is to be written.
            model_name: Name of the served model.
            traces: Take the place of those that the configuration asks for.

        Raises:
            ConfigError: traces are wanted, and the packages for them are not installed.
        """
        current = CurrentCall()
        log = RequestLog(is_on=config.log_requests, level=config.log_requests_level)
        metrics = ServerMetrics(CollectorRegistry(), model_name=model_name)
        dump = RequestDump(
            folder=config.dump_requests_folder,
            threshold=config.dump_requests_threshold,
            crash_folder=config.crash_dump_folder,
        )
        history = RequestHistory(capacity=config.request_history)
        endpoint = config.otlp_traces_endpoint
        if traces is None and endpoint is not None:
            traces = open_traces(endpoint, model_name=model_name)
        watchers: list[RequestWatcher] = [log, metrics, history, *([] if traces is None else [traces])]
        watch = RequestWatch(watchers, counter=metrics, current=current)
        return cls(watch, log, metrics, dump, history, traces, current)

    async def close(self) -> None:
        """Write and send what is left."""
        await self.dump.close()
        if self.traces is not None:
            self.traces.close()
