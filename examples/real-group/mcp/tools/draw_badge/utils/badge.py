"""The drawing itself."""

from PIL import Image, ImageDraw, ImageFont

PADDING = 6


def draw_image(label, value, colour):
    font = ImageFont.load_default()
    widths = [int(font.getlength(text)) + 2 * PADDING for text in (label, value)]
    image = Image.new("RGB", (sum(widths), 20), "dimgray")
    pen = ImageDraw.Draw(image)
    pen.rectangle([widths[0], 0, sum(widths), 20], fill=colour)
    pen.text((PADDING, 4), label, fill="white", font=font)
    pen.text((widths[0] + PADDING, 4), value, fill="white", font=font)
    return image
