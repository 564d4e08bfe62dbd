"""grpcio and nothing of ours: the transport contract of the seed as any gRPC client sees it."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import programs
from clients import BRIDGES

CALL = {"name": "demo_calculator_tool", "arguments": {"var1": 6, "var2": 7, "func": "multiply"}}


def status_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def test_a_tool_call_is_one_unary_call(demo):
    answer = demo.rpc("tools/call", CALL, id="my-id")
    assert answer["id"] == "my-id"
    assert answer["result"]["content"] == [{"type": "text", "text": "42"}]


@pytest.mark.parametrize("id", ["0", "-1", '"é\\u0041"', "9007199254740991", '""'])
def test_ids_come_back_byte_for_byte(demo, id):
    answer = demo.call_raw(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % id.encode())
    assert b'"id":' + id.encode() in answer.replace(b'"id": ', b'"id":')


@pytest.mark.parametrize("id", ["1.50", "9007199254740993", "null", "true"])
def test_an_id_that_could_not_come_back_exact_is_refused(demo, id):
    answer = json.loads(demo.call_raw(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % id.encode()))
    assert answer["error"]["code"] == -32600


def test_a_notification_gets_an_empty_body(demo):
    assert demo.call_raw(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == b""


def test_a_body_that_is_not_json_is_a_parse_error(demo):
    assert json.loads(demo.call_raw(b"{nonsense"))["error"]["code"] == -32700


@pytest.mark.parametrize("key", ["", "rmk_wrong"], ids=["none", "wrong"])
def test_no_key_or_a_wrong_one_is_unauthenticated(demo, key):
    assert status_of(lambda: demo.rpc("ping", key=key)) == grpc.StatusCode.UNAUTHENTICATED


def test_a_body_over_four_mebibytes_is_resource_exhausted(demo):
    limit = 4 * 1024 * 1024
    head = b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"'
    exact = head + b"a" * (limit - len(head) - 2) + b'"}'
    assert json.loads(demo.call_raw(exact))["id"] == 1
    assert status_of(lambda: demo.call_raw(exact[:-2] + b'a"}')) == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_many_calls_at_once_over_one_connection(demo):
    def call(number):
        arguments = {"var1": number, "var2": 2, "func": "multiply"}
        return demo.rpc("tools/call", {"name": "demo_calculator_tool", "arguments": arguments}, id=number)

    with ThreadPoolExecutor(32) as pool:
        for number, answer in enumerate(pool.map(call, range(500))):
            assert answer["id"] == number
            assert answer["result"]["content"][0]["text"] == str(2 * number)


def test_a_session_carries_progress_then_the_answer(probe):
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call",
               "params": {"name": "steps", "arguments": {"count": 3}, "_meta": {"progressToken": "t"}}}
    session = probe.channel.stream_stream(
        "/ramen.v1.Mcp/Session", request_serializer=programs.encode_body, response_deserializer=programs.decode_body)
    answers = session(iter([json.dumps(request).encode()]),
                      metadata=(("authorization", f"Bearer {probe.key}"),), timeout=programs.PATIENCE)
    messages = [json.loads(body) for body in answers]
    assert [m["params"]["progress"] for m in messages[:-1]] == [1, 2, 3]
    assert {m["params"]["progressToken"] for m in messages[:-1]} == {"t"}
    assert messages[-1]["id"] == 7
    assert messages[-1]["result"]["content"][0]["text"] == "done"


def test_a_deadline_ends_the_call_and_the_worker_goes_on(probe):
    call = {"name": "pause", "arguments": {"seconds": 30}}
    assert status_of(lambda: probe.rpc("tools/call", call, timeout=0.5)) == grpc.StatusCode.DEADLINE_EXCEEDED
    assert probe.rpc("tools/call", {"name": "echo", "arguments": {"text": "still here"}})["result"]["content"][0][
        "text"] == "still here"


def test_run04_a_tool_that_ends_its_process_fails_its_call_only(probe):
    die = {"name": "dies", "arguments": {"code": 3}}
    assert status_of(lambda: probe.rpc("tools/call", die)) == grpc.StatusCode.UNAVAILABLE
    again = probe.rpc("tools/call", {"name": "echo", "arguments": {"text": "next"}})
    assert again["result"]["content"][0]["text"] == "next"


def test_what_a_tool_prints_goes_to_the_log_and_not_to_the_client(probe):
    answer = probe.rpc("tools/call", {"name": "prints", "arguments": {"text": "loud-text"}})
    assert answer["result"]["content"] == [{"type": "text", "text": "ok"}]
    for text in ("loud-text", "loud-text-raw", "loud-text-child"):
        programs.until(lambda t=text: t in probe.log.read_text(), f"{text} is logged", probe.alive)


def test_a_secret_is_put_in_and_never_comes_out(probe):
    secret = "s3cret-value-of-the-test"
    length = probe.rpc("tools/call", {"name": "reveal", "arguments": {"text": "{{$probe.TOKEN}}"}})
    assert length["result"]["content"][0]["text"] == str(len(secret))
    leak = probe.rpc("tools/call", {"name": "leak", "arguments": {"text": "{{$probe.TOKEN}}"}})
    assert leak["result"]["isError"] is True
    assert secret not in json.dumps(leak)
    probe.rpc("tools/call", {"name": "prints", "arguments": {"text": "{{$probe.TOKEN}}"}})
    programs.until(lambda: "***-child" in probe.log.read_text(), "what it printed is logged", probe.alive)
    assert secret not in probe.log.read_text()


@pytest.mark.parametrize("service", ["", "ramen.v1.Mcp", "ramen.v1.Admin"])
def test_the_health_probe_needs_no_key(demo, service):
    stub = health_pb2_grpc.HealthStub(demo.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_an_unknown_service_is_not_found_by_the_health_probe(demo):
    stub = health_pb2_grpc.HealthStub(demo.channel)
    request = health_pb2.HealthCheckRequest(service="no.such.Service")
    assert status_of(lambda: stub.Check(request, timeout=10)) == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("bridge", BRIDGES)
def test_the_bridges_health_flag_tells_by_its_exit_code(demo, bridge):
    def health(target):
        command = [*BRIDGES[bridge], "--target", target, "--health"]
        return subprocess.run(command, env=programs.environment(), capture_output=True, text=True, timeout=60)

    good = health(demo.address)
    assert good.returncode == 0 and "SERVING" in good.stdout, good
    assert health("127.0.0.1:1").returncode == 1
