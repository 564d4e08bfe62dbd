"""A library with a big dependency tree, loaded once when the host starts."""

import io

from markitdown import MarkItDown, StreamInfo

converter = MarkItDown(enable_plugins=False)


def convert(html):
    stream = io.BytesIO(html.encode())
    info = StreamInfo(mimetype="text/html", extension=".html", charset="utf-8")
    return converter.convert_stream(stream, stream_info=info).markdown
