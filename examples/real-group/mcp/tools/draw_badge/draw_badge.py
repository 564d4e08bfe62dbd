"""An image result, drawn by pillow."""

import io

from badge import draw_image
from ramen_runtime import content


def draw(label, value, colour):
    buffer = io.BytesIO()
    draw_image(label, value, colour).save(buffer, format="PNG")
    return content.image(buffer.getvalue(), "image/png")
