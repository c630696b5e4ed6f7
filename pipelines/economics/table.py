"""Schema of the lake's `ledger` table: scalar columns to query by, and `body`, the exact entry as JSON.

`pipelines.economics.ledger` owns what an entry means.
"""

import pyarrow as pa

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("cycle", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("resource", pa.string(), nullable=False),
        pa.field("quantity", pa.float64(), nullable=False),
        pa.field("cost_usd", pa.float64()),
        pa.field("body", pa.string(), nullable=False),
    ]
)
