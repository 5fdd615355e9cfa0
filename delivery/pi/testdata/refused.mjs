// The extension with a host that refuses it for good: SAYS is what its reason tells.
import assert from "node:assert/strict";
import path from "node:path";
import { Pi, until } from "./stub.mjs";

const pi = new Pi(path.join(process.env.DIR, "s.jsonl"), "s");
const { default: extension } = await import(process.env.EXTENSION);
extension(pi.api);
await pi.emit("session_start", { reason: "startup" });
const refused = () => pi.footer === "workflow: refused by the host; type /workflow to see why";
await until("refused", refused);
const { live } = globalThis[Symbol.for("piworkflows.extension.v1")];
assert.equal(live.timer, undefined, "no timer will connect again");

const told = await pi.call({ action: "list" });
assert.ok(told.isError && told.text.includes(process.env.SAYS) && told.text.length < 400, told.text);
assert.equal(live.link, undefined, "the model's call does not connect again");

await pi.command(""); // the person's does, once
assert.ok(pi.notes.at(-1).startsWith("error: ") && pi.notes.at(-1).includes(process.env.SAYS), pi.notes.at(-1));
assert.ok(refused() && live.timer === undefined);
console.log("ok");
process.exit(0);
