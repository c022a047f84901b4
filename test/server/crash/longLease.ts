import { hour } from "../../../src/engine/core/values/time.ts";
import { spans } from "../../../src/engine/core/values/limits.ts";

// Preloaded into a server by `--import`, so that its leases outlast a test, however slow the machine is.

Object.assign(spans, { lease: hour });
