"""Clients of the official Python SDK, old or new: `mcp_client.py TARGET`, where TARGET is an address or a command as JSON.

Reads calls as JSON Lines from standard input (`{"tool": ..., "arguments": ...}`) and prints one JSON line: the server's
instructions, its tools, and for each call whether it was an error and its text."""
import asyncio
import contextlib
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

try:
    from mcp import Client
except ImportError:
    Client = None


@contextlib.asynccontextmanager
async def connect(target):
    """A session, and what the server says about itself."""
    is_address = isinstance(target, str)
    command = None if is_address else StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
    if Client is not None:
        async with Client(target if is_address else command) as client:
            yield client, getattr(client, "instructions", None) or client.session.instructions
        return
    if is_address:
        from mcp.client.streamable_http import streamablehttp_client

        opened = streamablehttp_client(target)
    else:
        opened = stdio_client(command)
    async with opened as streams, ClientSession(streams[0], streams[1]) as session:
        started = await session.initialize()
        yield session, started.instructions


def first(thing, *names):
    """The SDK has renamed its fields once."""
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)


async def main():
    target = sys.argv[1] if sys.argv[1].startswith("http") else json.loads(sys.argv[1])
    calls = [json.loads(line) for line in sys.stdin if line.strip()]
    async with connect(target) as (session, instructions):
        listed = await session.list_tools()
        tools = {
            tool.name: {"reads": first(tool.annotations, "read_only_hint", "readOnlyHint"), "schema": first(tool, "input_schema", "inputSchema")}
            for tool in listed.tools
        }
        answers = []
        for call in calls:
            result = await session.call_tool(call["tool"], call["arguments"])
            answers.append({"is_error": bool(first(result, "is_error", "isError")), "text": "\n".join(part.text for part in result.content)})
    print(json.dumps({"instructions": instructions, "tools": tools, "answers": answers}))


asyncio.run(main())
