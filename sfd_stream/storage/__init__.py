"""Where checkpoints live: disk or object store behind one small contract."""

from sfd_stream.storage.contract import Store, key_part, part_text
from sfd_stream.storage.disk import DiskStore
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.storage.objects import ObjectStore
from sfd_stream.storage.open import open_store
from sfd_stream.storage.probe import probe_store

__all__ = [
    "DiskStore",
    "MemoryStore",
    "ObjectStore",
    "Store",
    "key_part",
    "open_store",
    "part_text",
    "probe_store",
]
