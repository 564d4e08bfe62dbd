import io
import wave

from ramen_runtime import content


def run():
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(160))
    return content.audio(buffer.getvalue(), "audio/wav")
