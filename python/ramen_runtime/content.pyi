import os
from typing import Any, Dict, Optional, Union

Data = Union[bytes, bytearray, memoryview]
Path = Union[str, "os.PathLike[str]"]

class Block(Dict[str, Any]): ...

def text(
    value: str,
    *,
    annotations: Optional[Dict[str, Any]] = ...,
    meta: Optional[Dict[str, Any]] = ...,
) -> Block: ...
def image(
    data: Union[Data, Path, Any],
    mime_type: str = ...,
    *,
    annotations: Optional[Dict[str, Any]] = ...,
    meta: Optional[Dict[str, Any]] = ...,
) -> Block: ...
def audio(
    data: Union[Data, Path],
    mime_type: str = ...,
    *,
    annotations: Optional[Dict[str, Any]] = ...,
    meta: Optional[Dict[str, Any]] = ...,
) -> Block: ...
def resource(
    uri: Any,
    value: Union[str, Data],
    mime_type: Optional[str] = ...,
    *,
    annotations: Optional[Dict[str, Any]] = ...,
    meta: Optional[Dict[str, Any]] = ...,
) -> Block: ...
def link(
    uri: Any,
    name: Optional[str] = ...,
    mime_type: Optional[str] = ...,
    description: Optional[str] = ...,
    *,
    annotations: Optional[Dict[str, Any]] = ...,
    meta: Optional[Dict[str, Any]] = ...,
) -> Block: ...
