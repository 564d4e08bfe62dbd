from base64 import b64decode

from ramen_runtime import content

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")


def run():
    data = '{"test": "data", "value": 123}'
    return [
        "Multiple content types test:",
        content.image(PNG, "image/png"),
        content.resource("test://mixed-content-resource", data, "application/json"),
    ]
