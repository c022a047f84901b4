import { spans } from "../../src/core/limits.ts";

// Loaded into a server by `--import`, so that a test need not wait half a minute for the end of a lease.

Object.assign(spans, { lease: 8_000 });
