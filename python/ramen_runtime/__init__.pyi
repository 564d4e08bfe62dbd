from typing import Any, Literal, Optional, Union

from ramen_runtime import content as content
from ramen_runtime import secrets as secrets

Level = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]

class Interrupted(BaseException): ...

def progress(
    current: Union[int, float],
    total: Optional[Union[int, float]] = ...,
    message: Optional[str] = ...,
) -> None: ...
def log(level: Level, data: Any, logger: Optional[str] = ...) -> None: ...
def cancelled() -> bool: ...
