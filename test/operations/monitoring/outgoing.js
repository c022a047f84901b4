// Preloaded into a server: records each connection, name lookup, datagram and program that it starts, on any
// of its threads.
import childProcess from "node:child_process";
import dgram from "node:dgram";
import dns from "node:dns";
import { appendFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import net, { isIP } from "node:net";

const note = (what, args) => appendFileSync(process.env.OUTGOING, `${what} ${JSON.stringify(args)}\n`);

function watch(owner, name, said) {
  const original = owner[name];
  owner[name] = function watched(...args) {
    const what = said(args);
    // Looking up an address sends no query.
    if (typeof what !== "string" || isIP(what) === 0) note(name, what);
    return Reflect.apply(original, this, args);
  };
}

/** Returns only the address from the arguments of `connect`. */
const place = (args) => {
  const [given] = Array.isArray(args[0]) ? args[0] : args;
  return typeof given === "object"
    ? (given.path ?? `${given.host ?? "localhost"}:${given.port}`)
    : String(given);
};

watch(net.Socket.prototype, "connect", place);
for (const name of ["send", "connect"]) watch(dgram.Socket.prototype, name, (args) => args.slice(1));
for (const name of ["spawn", "exec", "execFile", "fork", "spawnSync", "execSync", "execFileSync"])
  watch(childProcess, name, ([command]) => command);
const lookUps = (owner) => Object.keys(owner).filter((name) => /^(lookup|resolve|reverse)/.test(name));
for (const owner of [dns, dns.promises])
  for (const name of lookUps(owner)) watch(owner, name, ([host]) => host);
for (const owner of [dns.Resolver.prototype, dns.promises.Resolver.prototype])
  for (const name of Object.getOwnPropertyNames(owner).filter((one) => /^(resolve|reverse)/.test(one)))
    watch(owner, name, ([host]) => host);
syncBuiltinESMExports();
