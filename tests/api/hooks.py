"""What schemathesis must be told about Longhaul's API."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """A batch is text already; anything else goes as one line of JSON."""
    return value if isinstance(value, (bytes, str)) else json.dumps(value)
