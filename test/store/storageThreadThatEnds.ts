import { serveStorage } from "../../src/store/storageThread.ts";

// A storage thread that ends in the middle of the first thing it is asked.
const end = (): never => process.exit(1);
serveStorage({ now: end, random: end, newId: end });
