"""Peer: grpcio's asyncio server with the least that answers a call. No key, no address, no schema check."""

import asyncio
import json

import grpc
from calculator import announce, calculator_func


def body_of(message):
    """The bytes of field 1."""
    index = 1
    while message[index] & 0x80:
        index += 1
    return message[index + 1:]


def message_of(body):
    size, header = len(body), bytearray(b"\x0a")
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    return bytes(header) + body


async def call(request, context):
    message = json.loads(body_of(request))
    result = calculator_func(**message["params"]["arguments"])
    answer = {"jsonrpc": "2.0", "id": message["id"],
              "result": {"content": [{"type": "text", "text": json.dumps(result)}], "isError": False}}
    return message_of(json.dumps(answer).encode())


async def main():
    server = grpc.aio.server()
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ramen.v1.Mcp", handlers),))
    announce(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


asyncio.run(main())
