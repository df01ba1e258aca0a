"""A real S3 for references."""

from __future__ import annotations

from tests.parts.seaweed import s3_server

__all__ = ["s3_server"]
