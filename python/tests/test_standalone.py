"""The package without a worker."""

import base64

import pytest

import ramen_runtime
from ramen_runtime import cancelled, content, log, progress, secrets


def test_secrets_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RAMEN_SECRET_MY_GROUP__API_KEY", "v1\n")
    assert secrets.resolve("a {{$my-group.api.key}} b") == "a v1 b"
    assert secrets.resolve("{{ $my-group.API_KEY }} {{$x}}") == "{{ $my-group.API_KEY }} {{$x}}"
    with pytest.raises(secrets.SecretNotFound, match=r"unknown secret reference \{\{\$g\.NOPE\}\}$"):
        secrets.resolve("{{$g.NOPE}}")
    with pytest.raises(TypeError):
        secrets.resolve(b"x")


def test_a_value_is_not_resolved_again(monkeypatch):
    monkeypatch.setenv("RAMEN_SECRET_G__A", "{{$g.B}}")
    monkeypatch.setenv("RAMEN_SECRET_G__B", "x")
    assert secrets.resolve("{{$g.A}}{{$g.B}}") == "{{$g.B}}x"


def test_progress_and_log_write_to_stderr(capsys):
    progress(1, 2, "half")
    progress(0.5)
    log("info", {"a": 1}, logger="me")
    assert capsys.readouterr().err == "[progress] 1/2 half\n[progress] 0.5\n[info] me: {'a': 1}\n"
    assert cancelled() is False


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: progress("1"), TypeError),
        (lambda: progress(True), TypeError),
        (lambda: progress(1, float("inf")), ValueError),
        (lambda: progress(1, message=2), TypeError),
        (lambda: log("loud", 1), ValueError),
        (lambda: log("info", 1, logger=2), TypeError),
        (lambda: content.image(5), TypeError),
        (lambda: content.text(5), TypeError),
        (lambda: content.text("a", colour=1), TypeError),
    ],
)
def test_wrong_use_is_told_at_once(call, error):
    with pytest.raises(error):
        call()


def test_content_is_what_mcp_wants(tmp_path):
    file = tmp_path / "x.wav"
    file.write_bytes(b"wave")
    encoded = base64.b64encode(b"wave").decode()
    assert content.audio(file) == {"type": "audio", "data": encoded, "mimeType": "audio/wav"}
    assert content.audio(str(file), "audio/mpeg")["mimeType"] == "audio/mpeg"
    assert content.image(b"wave", meta={"a": 1})["_meta"] == {"a": 1}
    assert content.resource("a://b", "t") == {
        "type": "resource",
        "resource": {"uri": "a://b", "text": "t"},
    }
    assert content.link("a://b") == {"type": "resource_link", "uri": "a://b", "name": "a://b"}


def test_an_interrupt_is_no_exception_but_a_base_exception():
    assert not issubclass(ramen_runtime.Interrupted, Exception)
    assert str(ramen_runtime.Interrupted()) == "the call was interrupted"
