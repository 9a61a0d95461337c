"""How a work is awaited: `result = await group.all_reduce(a, async_op=True)`."""
import asyncio
from collections.abc import Generator
from typing import Any

from choir._choir import Work


def wait_for(work: Work[Any]) -> Generator[Any, None, Any]:
    """The iterator behind `await work`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def done(_: Work[Any]) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
            pass

    work.add_done_callback(done)
    yield from future
    return work.wait()
