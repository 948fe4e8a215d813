"""Answers to requests for profiles of passes."""

from pathlib import Path

from sgl_runtime.errors import SglRuntimeError
from sgl_runtime.executor.base import Executor
from sgl_runtime.ipc.messages import ControlReply, ProfileRequest


def answer_profile(executor: Executor, message: ProfileRequest) -> ControlReply:
    """Start or stop a profile; what came of it.

    Args:
        executor: Records.
        message: What is wanted.
    """
    try:
        if message.output_dir is None:
            text = executor.stop_profile()
        else:
            text = executor.start_profile(
                Path(message.output_dir),
                num_passes=message.num_steps,
                activities=message.activities,
                record_shapes=message.record_shapes,
                with_stack=message.with_stack,
            )
    except SglRuntimeError as error:
        return ControlReply(request_id=message.request_id, message=error.message, code=error.code, param=error.param)
    return ControlReply(request_id=message.request_id, message=text)
