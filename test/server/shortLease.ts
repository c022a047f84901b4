import { z } from "zod";
import { serverSettings } from "../../src/settings/config.ts";
import { spans } from "../../src/engine/core/values/limits.ts";

// Preloaded into a server by `--import`, so that a test need not wait 30 s until a lease expires. A test that
// must not see it expire sets TEST_LEASE, in milliseconds.

Object.assign(spans, { lease: Number(process.env["TEST_LEASE"] ?? 8_000) });

// Nodes are distinguished by the region in their deliveries, for which there are only two values.
Object.assign(serverSettings.region, { takes: z.string() });
