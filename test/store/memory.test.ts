import { memoryStore } from "../../src/store/memory.ts";
import { describeStore } from "./contract.ts";
import { sourceOf } from "./world.ts";

describeStore("memory", async (clock, node) => memoryStore(sourceOf(clock, node)));
