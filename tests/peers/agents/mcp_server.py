"""A server of the official Python SDK, old or new: `mcp_server.py` over standard input and output, `mcp_server.py PORT`
over HTTP."""
import sys

try:
    from mcp.server import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer
try:
    from mcp_types import ToolAnnotations
except ImportError:
    from mcp.types import ToolAnnotations

server = MCPServer("shop")
hints = {"reads": {"readOnlyHint": True}, "adds": {"readOnlyHint": False, "destructiveHint": False}}


@server.tool(annotations=ToolAnnotations(**hints["reads"]))
def get_stock(article: str) -> dict:
    """How many of an article there are."""
    if article == "unicorn":
        raise ValueError("no such article: unicorn")
    return {"article": article, "in_stock": 12}


@server.tool(annotations=ToolAnnotations(**hints["adds"]))
def order(article: str, count: int = 1) -> str:
    """Orders more of an article."""
    return f"ordered {count} {article}"


@server.tool()
def clear_out() -> str:
    """Throws everything away."""
    return "all gone"


if len(sys.argv) == 1:
    server.run()
elif "host" in MCPServer.run.__annotations__ or not hasattr(server, "settings") or not hasattr(server.settings, "port"):
    server.run(transport="streamable-http", port=int(sys.argv[1]))
else:
    server.settings.port = int(sys.argv[1])
    server.run(transport="streamable-http")
