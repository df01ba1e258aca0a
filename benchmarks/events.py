"""One event of 20 fields in every format, and the schemas of it: what the benchmark of formats reads."""

from __future__ import annotations

import json
import random
from typing import Any

COUNTRIES = ("DE", "FR", "IT", "ES", "PL", "NL", "SE", "US", "JP", "BR")
PAGES = ("home", "search", "product", "basket", "checkout", "help", "account")
TAGS = tuple(f"tag-{number:03}" for number in range(400))
TEXTS = ("user", "country", "city", "device", "os", "browser", "page", "plan")
"""The fields that are texts and never null."""
NUMBERS = ("price", "score", "discount")
COUNTS = ("quantity", "duration_ms", "clicks")


def events(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [_event(rng) for _ in range(count)]


def _event(rng: random.Random) -> dict[str, Any]:
    return {
        "user": f"u{int(rng.paretovariate(0.6)) % 50_000:05}",
        "country": rng.choice(COUNTRIES),
        "city": f"city-{int(rng.paretovariate(0.8)) % 3_000}",
        "device": rng.choice(("phone", "tablet", "desktop")),
        "os": rng.choice(("android", "ios", "linux", "windows")),
        "browser": rng.choice(("firefox", "chrome", "safari")),
        "page": rng.choice(PAGES),
        "plan": rng.choice(("free", "basic", "gold")),
        "referrer": None if rng.random() < 0.5 else f"site-{rng.randrange(200)}",
        "campaign": None if rng.random() < 0.7 else f"spring-{rng.randrange(30)}",
        "price": round(rng.lognormvariate(3, 1), 2),
        "score": rng.random(),
        "discount": rng.choice((0.0, 0.05, 0.1)),
        "quantity": rng.randrange(1, 6),
        "duration_ms": rng.randrange(100, 90_000),
        "clicks": rng.randrange(12),
        "member": rng.random() < 0.4,
        "new": rng.random() < 0.2,
        "geo": {
            "lat": round(rng.uniform(35, 60), 5),
            "lon": round(rng.uniform(-10, 30), 5),
            "zone": f"z{rng.randrange(90)}",
        },
        "tags": rng.choices(TAGS, k=3),
    }


def as_json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()
