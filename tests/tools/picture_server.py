"""An MCP server with pictures, over stdio: python -m tests.tools.picture_server."""

from __future__ import annotations

import argparse
from base64 import b64encode

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent

from tests.doubles.drawn import pdf, picture

server = MCPServer("pictures")


@server.tool()
def shoot(number: int) -> Image:
    """Take a picture."""
    return Image(data=picture(f"shot {number}"), format="png")


@server.tool()
def report() -> EmbeddedResource:
    """Give the report, a PDF."""
    blob = b64encode(pdf(["page 1", "page 2"])).decode()
    return EmbeddedResource(
        type="resource", resource=BlobResourceContents(uri="doc://report", blob=blob, mime_type="application/pdf")
    )


@server.tool()
def forge() -> list[ImageContent]:
    """Give a program as a picture, a picture of another kind than it is named, and one that is not in base64."""
    given = (b64encode(b"#!/bin/sh\n").decode(), b64encode(picture("a JPEG", "JPEG")).decode(), "?")
    return [ImageContent(type="image", data=data, mime_type="image/png") for data in given]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    server.run()
