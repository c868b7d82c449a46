"""Tools of agents, with the harm that each can do. A function of Python, or a tool of an MCP server."""
