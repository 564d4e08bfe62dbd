"""`ramen bridge --config` with the files that people have already: each brings its good servers, whatever else is in it."""

import asyncio
import json
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters

import programs

SERVER = [sys.executable, str(programs.ROOT / "client" / "tests" / "python_servers" / "server.py"), "stdio"]
ENTRY = f'"command": {json.dumps(SERVER[0])}, "args": {json.dumps(SERVER[1:])}'
FILES = {
    "claude": f"""{{
        "globalShortcut": "Ctrl+Space",
        "mcpServers": {{
            "good": {{ {ENTRY} }},
            "old": {{ "type": "sse", "url": "https://mcp.example.com/sse" }},
            "unset": {{ "type": "http", "url": "https://mcp.example.com/mcp", "headers": {{ "Authorization": "Bearer ${{NO_SUCH}}" }} }},
            "off": {{ "command": "x", "disabled": true }}
        }}
    }}""",
    "cursor": f"""{{ "mcpServers": {{
        "good": {{ {ENTRY}, "env": {{ "HOME_OF_MINE": "${{env:HOME}}" }} }},
        "let-in": {{ "url": "https://mcp.example.com/mcp", "auth": {{ "CLIENT_ID": "x" }} }}
    }} }}""",
    "vscode": f"""{{
        // asked for once
        "inputs": [ {{ "type": "promptString", "id": "key", "description": "key", "password": true }}, ],
        "servers": {{
            "good": {{ "type": "stdio", {ENTRY}, "dev": {{ "watch": "src/**" }} }},
            "asks": {{ "type": "stdio", "command": "x", "env": {{ "KEY": "${{input:key}}" }} }},
        }},
    }}""",
}
TOLD = {
    "claude": ['server "old"', 'server "unset": headers.Authorization: the variable NO_SUCH is not set'],
    "cursor": ['server "let-in": the field "auth" is not supported'],
    "vscode": ['server "asks": env.KEY: `${input:key}` cannot be filled in here'],
}


@pytest.mark.parametrize("program", FILES)
def test_the_file_of_a_program_brings_its_good_servers(program, folder):
    file = folder / "mcp.json"
    file.write_text(FILES[program])
    environment = programs.environment(HOME=str(folder), XDG_CONFIG_HOME="", XDG_CACHE_HOME="", XDG_STATE_HOME="")

    async def run():
        parameters = StdioServerParameters(command=str(programs.BIN / "ramen"), args=["bridge", "--config", str(file)],
                                           env=environment)
        async with Client(parameters) as client:
            assert "good_add" in {tool.name for tool in (await client.list_tools()).tools}
            return await client.call_tool("good_add", {"a": 40, "b": 2})

    assert asyncio.run(asyncio.wait_for(run(), programs.PATIENCE)).content[0].text == "42"
    done = subprocess.run([programs.BIN / "ramen", "inspect", "--config", file], env=environment, capture_output=True, text=True,
                          timeout=programs.PATIENCE)
    assert done.returncode == 0, done.stderr
    for said in TOLD[program]:
        assert said in done.stderr
