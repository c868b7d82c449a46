"""Replies of models: what a prompt asks for, how a reply is read, and what becomes a vote."""
