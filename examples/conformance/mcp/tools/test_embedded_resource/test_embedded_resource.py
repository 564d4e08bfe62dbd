from ramen_runtime import content


def run():
    text = "This is an embedded resource content."
    return content.resource("test://embedded-resource", text, "text/plain")
