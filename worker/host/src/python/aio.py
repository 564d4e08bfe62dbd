"""One event loop for every ``async def`` callable, on a thread of its own, for the life of the process.

Things made at import time or in an earlier call (locks, HTTP clients) so stay on one loop.
"""

import asyncio
import contextvars
import threading
from functools import partial

import _ramen_native as native

loop = asyncio.new_event_loop()
current = contextvars.ContextVar("ramen_call")
waiting = {}
tasks = {}
ident = None


def run():
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(explain)
    while True:
        try:
            loop.run_forever()
        except BaseException:
            # SystemExit and KeyboardInterrupt of a task leave run_forever; the task has them too.
            rescue()


def explain(loop, context):
    if type(context.get("exception")).__name__ == "Interrupted":
        rescue()
    else:
        loop.default_exception_handler(context)


def rescue():
    """An interrupt that came too late for its task hit a callback of the loop: do those again."""
    for call in list(waiting):
        loop.call_soon(begin, call)
    for call, task in list(tasks.items()):
        if native.is_cancelled(call):
            task.cancel()


def start():
    global ident
    thread = threading.Thread(target=run, name="ramen-asyncio", daemon=True)
    thread.start()
    ident = thread.ident


def submit(call, awaitable):
    """Hand in an awaitable from any thread."""
    waiting[call] = awaitable
    try:
        loop.call_soon_threadsafe(begin, call)
    except BaseException:
        waiting.pop(call, None)
        raise


def begin(call):
    awaitable = waiting.pop(call, None)
    if awaitable is None:
        return
    try:
        context = contextvars.copy_context()
        context.run(current.set, call)
        if not asyncio.iscoroutine(awaitable):
            awaitable = wait(awaitable)
        task = tasks[call] = loop.create_task(awaitable, context=context)
        task.add_done_callback(partial(done, call))
        if native.is_cancelled(call):
            task.cancel()
    except BaseException as error:
        native.failed(call, error)


async def wait(awaitable):
    return await awaitable


def done(call, task):
    tasks.pop(call, None)
    try:
        if task.cancelled():
            native.failed(call, asyncio.CancelledError("the call was cancelled"))
        elif task.exception() is not None:
            native.failed(call, task.exception())
        else:
            native.finished(call, task.result())
    except BaseException as error:
        native.failed(call, error)


def cancel(call):
    """From any thread."""
    loop.call_soon_threadsafe(cancel_here, call)


def cancel_here(call):
    task = tasks.get(call)
    if task is not None:
        task.cancel()


def blocking(call):
    """Ident of the loop's thread when this very call keeps it from turning, else ``None``."""
    task = tasks.get(call)
    if task is not None and asyncio.current_task(loop) is task:
        return ident
    return None
