import { z } from "zod";
import { serverSettings } from "../../src/server/config.ts";
import { spans } from "../../src/core/values/limits.ts";

// Loaded into a server by `--import`, so that a test need not wait half a minute for the end of a lease.

Object.assign(spans, { lease: 8_000 });

// A node is told from others by the region that its deliveries name, of which there are two only.
Object.assign(serverSettings.region, { takes: z.string() });
