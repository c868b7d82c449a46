"""Replies of models: the form that a prompt asks for, the reader of replies, and the vote in them."""
