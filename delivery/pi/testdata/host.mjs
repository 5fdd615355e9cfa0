// The extension with a real host behind its socket. The test closes and opens the
// endpoint, or loses an answer, when a file asks for it.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { Pi, until } from "./stub.mjs";

const ask = async (what) => {
  fs.writeFileSync(path.join(process.env.DIR, `ask-${what}`), "");
  await until(`the test answers ${what}`, () => fs.existsSync(path.join(process.env.DIR, `done-${what}`)));
};

const pi = new Pi(path.join(process.env.DIR, "s.jsonl"), "s");
const { default: extension } = await import(process.env.EXTENSION);
extension(pi.api);
assert.equal(process.env.PIWORKFLOWS_TOKEN, undefined, "no child process inherits the token");
assert.ok(pi.tools.workflow, "the tool is there before the session is");
const early = await pi.call({ action: "list" });
assert.ok(early.isError && /Nothing was done/.test(early.text), early.text);

await pi.emit("session_start", { reason: "startup" });
await pi.emit("session_start", { reason: "resume" }); // some versions say it twice
await until("connected", () => pi.footer === "workflow: connected");

// a start in a turn, its run after the turn, one turn about it
let told;
pi.model = async (opener) => {
  if (opener.type === "custom_message") return { text: "I have seen it." };
  told = await pi.call({ action: "start", workflow: "greet", input: { topic: "Ada" } });
  assert.match(told.text, /queued/);
  const { text } = await pi.call({ action: "status", runId: told.details.runId });
  assert.match(text, /launch queued/, "nothing runs while its turn is active");
  return { text: "started" };
};
await pi.prompt("start it");
await until("the successor turn", () => pi.entries.at(-2)?.type === "custom_message" && !pi.busy);
assert.equal(pi.sent.length, 1);
assert.ok(pi.sent[0].message.content.includes(told.details.runId));
await until("the footer shows the run", () => pi.footer === `workflow: ${told.details.runId} completed`);

// a person
await pi.command("list");
assert.match(pi.notes.at(-1), /^info: greet/);
await pi.command("dance");
assert.match(pi.notes.at(-1), /^error: invalid input: there is no such command/);
await pi.command("cancel"); // of the run on display
assert.match(pi.notes.at(-1), /already ended: done/);

// what the host refuses is an answer, and the connection stays
assert.match((await pi.call({ action: "start", workflow: "greet", input: { topic: "\ud800" } })).text, /^invalid input/);

// large arguments go by reference
const big = await pi.call({ action: "start", workflow: "greet", input: { topic: "x".repeat(1_040_000) } });
assert.ok(!big.isError, big.text.slice(0, 200));
await until("its successor turn", () => pi.sent.length === 2 && !pi.busy);
assert.ok((await pi.call({ action: "start", workflow: "greet", input: { topic: "x".repeat(1_060_000) } })).isError);
assert.ok((await pi.call({ action: "start", workflow: "greet", input: { topic: "x".repeat(5_000_000) } })).isError);

// the host is away: nothing is sent, and what the session did is told later
pi.model = async (opener) => ({ text: opener.type === "custom_message" ? "seen" : (await pi.call({ action: "start", workflow: "greet" })).text });
await ask("stop");
await pi.prompt("while it is away");
assert.match(pi.entries.at(-1).message.content[0].text, /not running.*Nothing was done/);
await ask("start");
await until("connected again", () => !/away|connecting/.test(pi.footer));
await pi.prompt("now");
assert.match(pi.entries.at(-1).message.content[0].text, /queued/);
await until("its successor turn", () => pi.sent.length === 3 && !pi.busy);

// a lost answer: the call is repeated with its key and adopts the first
await ask("lose");
let again; // the last run's outcome may not be reported yet
await until("a start", async () => !(again = await pi.call({ action: "start", workflow: "greet" })).text.startsWith("session busy"));
assert.match(again.text, /queued/);
await until("its successor turn", () => pi.sent.length === 4 && !pi.busy);
await ask("count");

// the end
await pi.emit("session_shutdown", { reason: "quit" });
assert.ok((await pi.call({ action: "list" })).isError);
console.log("ok");
