"""Unique names for the objects of answers."""

import secrets


def new_id(prefix: str) -> str:
    """Such as `chatcmpl-6f1c...`."""
    return f"{prefix}{secrets.token_hex(12)}"
