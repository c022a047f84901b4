import { idMaker } from "./core/ids.ts";
import { systemClock, systemRandom } from "./engine/clock.ts";
import { serveStorage } from "./store/storageThread.ts";

// The file that the threads of `store/thread.ts` run: storage, with the real time and real chance.
serveStorage({ now: () => systemClock.now(), random: systemRandom, newId: idMaker(systemRandom) });
