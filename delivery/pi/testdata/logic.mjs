// The extension's pure logic, and its rules about sends, without a host.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { Pi, tick } from "./stub.mjs";

const { internals } = await import(process.env.EXTENSION);
const { Bridge, Disk, backoff, clip, cut, encode, evidence, renderMessage, thin } = internals;

// text
assert.equal(clip("aäb", 2), "a", "cut between characters");
assert.equal(clip("😀x", 4), "😀");
assert.equal(clip("a\ud800", 9), "a\ufffd", "a lone surrogate is replaced");
assert.equal(encode("k", 1, { a: "\ud800", b: "\\ud800", c: "😀" }), '{"kind":"k","id":1,"body":{"a":"\\ufffd","b":"\\\\ud800","c":"😀"}}');
assert.equal(cut("ab\x1b[31mä", 5), "ab [3", "control characters go");
assert.equal(cut("ää", 3), "ä", "what is not ASCII may be two columns wide");
for (let n = 0; n < 40; n++) {
  assert.ok(backoff(n, 0) >= 50 && backoff(n, 0) <= 5000 && backoff(n, 1) <= 10000, "capped");
}
assert.ok(backoff(3, 0.9) > backoff(3, 0.1), "with jitter");

// evidence
const msg = (id, messageId) => ({ id, type: "custom_message", details: { messageId } });
const says = (stopReason) => ({ id: "r", type: "message", message: { role: "assistant", stopReason } });
const user = { id: "u", type: "message", message: { role: "user", content: "the messageId is m9" } };
assert.deepEqual(
  evidence([msg("a", "m1"), says("aborted"), msg("b", "m2"), says("toolUse"), says("stop"), user, msg("c", "m3"), user, says("stop")], ["m1", "m2", "m3", "m9"], new Set(["a"])),
  [
    { message: "m1", present: true, durable: true, replied: false },
    { message: "m2", present: true, durable: false, replied: true },
    { message: "m3", present: true, durable: false, replied: false },
    { message: "m9", present: false, durable: false, replied: false },
  ],
);

// the disk
const file = path.join(process.env.DIR, "disk.jsonl");
const disk = new Disk(file);
const line = (id) => JSON.stringify({ id, type: "custom_message" });
assert.deepEqual([...(await disk.update())], [], "no file");
fs.writeFileSync(file, `${line("a")}\n${"x".repeat(300_000)}"custom_message"\n${line("b").slice(0, 9)}`);
assert.deepEqual([...(await disk.update())], ["a"], "a torn line does not count");
fs.appendFileSync(file, `${line("b").slice(9)}\n`);
assert.deepEqual([...(await disk.update())], ["a", "b"], "until its rest came");
fs.writeFileSync(file, `${line("c")}\n`);
assert.deepEqual([...(await disk.update())], ["c"], "a file that was written anew");

// the renderer
const shown = renderMessage({ content: "one\ntwo" }, { expanded: false }, undefined);
assert.deepEqual(shown.render(8), ["◆ one", "  … 1 m"]);
assert.deepEqual(renderMessage({ content: "one\ntwo" }, { expanded: true }, undefined).render(80), ["◆ one", "  two"]);

// sends
let now = 1000;
function bridge() {
  const pi = new Pi(path.join(process.env.DIR, "s.jsonl"), "s");
  const b = new Bridge(pi.api, { process: "p", socket: "/nowhere", token: "x", reports: new Map(), live: undefined }, () => now);
  pi.api.on("before_agent_start", (e) => b.before(e));
  pi.api.on("agent_start", (_e, ctx) => b.agentStart(ctx));
  pi.api.on("agent_end", (e) => b.agentEnd(e));
  pi.api.on("agent_settled", (e, ctx) => b.settled(e, ctx));
  pi.api.on("input", (e, ctx) => b.input(e, ctx));
  b.start("startup", pi.ctx);
  const link = { open: true, ready: true, epoch: 7, says: [], say: (...s) => link.says.push(s), close() {}, ask: () => new Promise(() => {}) };
  b.link = link;
  return { pi, b, link };
}
const m = (more) => ({ message: "m1", others: ["m0"], intent: "i1", epoch: 7, deadline: 5000, triggerTurn: true, customType: "c", content: "x", details: { messageId: "m1", turnIntentId: "i1" }, ...more });
const verdict = ({ b, link }, more) => b.send(link, m(more)).verdict;
{
  const w = bridge();
  let open;
  w.pi.model = () => new Promise((r) => (open = r));
  assert.equal(verdict(w), "taken");
  assert.deepEqual(w.pi.sent[0].options, { deliverAs: "followUp", triggerTurn: true });
  assert.equal(verdict(w), "present", "on its way, and on no branch yet: asking again never sends twice");
  assert.equal(verdict(w, { message: "m2", others: [], intent: "i2", details: { messageId: "m2" } }), "occupied", "a run is about to start");
  await tick(), await tick(), await tick();
  assert.equal(w.b.turn.message, "m1");
  assert.equal(verdict(w), "present");
  assert.equal(verdict(w, { message: "m2", others: ["m1"], intent: "", details: { messageId: "m2" } }), "present", "another issue of its subject is there");
  assert.equal(verdict(w, { message: "m3", others: [], details: { messageId: "m3" } }), "present", "its intent is there");
  w.b.abort("m9");
  assert.equal(w.pi.aborts, 0, "another message's turn is not aborted");
  w.b.abort("m1");
  assert.equal(w.pi.aborts, 1);
  await tick(), await tick();
  open({ text: "" });
  const end = w.b.out.find((r) => r.kind === "turnSettled").body;
  assert.equal(end.end, "aborted");
  assert.equal(end.byPerson, false, "its own abort is not the person's");
  assert.equal(w.pi.sent.length, 1);
}
{
  const w = bridge();
  for (const [why, more, want] of [
    ["another connection's epoch", { epoch: 6 }, "refused"],
    ["details that name another message", { details: { messageId: "m2" } }, "refused"],
    ["after its deadline", { deadline: 1000 }, "refused"],
  ]) assert.equal(verdict(w, more), want, why);
  w.pi.busy = true;
  assert.equal(verdict(w), "occupied", "a run or compaction is under way");
  w.pi.busy = false;
  w.pi.pendingMessages = true;
  assert.equal(verdict(w), "occupied", "the person's text is queued");
  w.pi.pendingMessages = false;
  await w.pi.emit("input", { text: "hi", source: "interactive" });
  assert.equal(verdict(w, { deadline: 0 }), "occupied", "text was typed and its run has not begun");
  now += 30_000;
  assert.equal(verdict(w, { deadline: 0 }), "taken", "it never began one");
  assert.equal(w.pi.sent.length, 1);
}
{
  const w = bridge();
  w.pi.model = () => new Promise(() => {});
  const turn = w.pi.prompt("hi");
  await tick(), await tick(), await tick();
  w.pi.ctx.abort(); // Escape
  await turn;
  const end = w.b.out.find((r) => r.kind === "turnSettled").body;
  assert.deepEqual([end.end, end.byPerson, end.aborted, end.prompt], ["aborted", true, true, "hi"]);
  await tick(), await tick();
  assert.equal(verdict(w, { deadline: 0 }), "occupied", "the person stopped a turn and the host has not looked since");
}
{
  const w = bridge(); // asked for in the settled handler of another extension
  let mine;
  w.pi.api.on("agent_settled", () => (mine ??= [verdict(w, { deadline: 0 }), verdict(w, { deadline: 0 })]));
  await w.pi.prompt("hi");
  await tick(), await tick();
  assert.deepEqual(mine, ["occupied", "occupied"], "a turn may be about to start");
  await tick();
  assert.equal(verdict(w, { deadline: 0, triggerTurn: false }), "taken");
  assert.equal(w.pi.entries.at(-1).details.messageId, "m1");
}
{
  const w = bridge(); // a provider error, and a retry that repeats agent_start
  const told = [];
  w.pi.model = async () => {
    await w.pi.emit("agent_start"); // while the first report waits: it is one
    told.push(...w.b.out.splice(0)); // the host confirms
    await w.pi.emit("agent_start");
    return { text: "", stop: "error" };
  };
  await w.pi.prompt("hi");
  const starts = [...told, ...w.b.out].filter((r) => r.kind === "turnStarted").map((r) => r.body.turn);
  const turn = starts[0];
  assert.deepEqual(starts, [turn, turn], "the same turn again");
  const end = w.b.out.at(-1).body;
  assert.deepEqual([end.turn, end.end, end.byPerson], [turn, "error", false]);
}
{
  const w = bridge(); // a call that led to the stop of its own turn is answered, another one is lost
  let answer;
  w.link.ask = (kind) => (kind === "tool" ? new Promise((r) => (answer = r)) : new Promise(() => {}));
  const call = () => {
    const stop = new AbortController();
    return { stop, result: w.b.tool({}, "", false, stop.signal) };
  };
  w.b.turn = { own: true };
  const own = call();
  await tick();
  own.stop.abort();
  await tick();
  answer({ kind: "toolResult", body: { text: "it is cancelled" } });
  assert.equal((await own.result).text, "it is cancelled");
  w.b.turn = { own: false };
  const other = call();
  await tick();
  other.stop.abort();
  assert.match((await other.result).text, /may or may not have been carried out/);
}
{
  const w = bridge(); // what a person can complete
  w.b.spec = { commands: [{ name: "resume", usage: "resume [runId]" }, { name: "restart", usage: "restart [runId]" }] };
  assert.deepEqual(w.b.completions("res").map((c) => c.value), ["resume", "restart"]);
  assert.equal(w.b.completions("resume"), null, "a list would take the Enter");
}
{
  const w = bridge(); // fenced
  w.b.message(w.link, "fenced", 0, {});
  assert.ok(w.b.away);
  assert.match((await w.b.tool({}, "", false)).text, /taken this session over. Nothing was done/);
  await w.pi.emit("input", { text: "hi", source: "extension" });
  assert.ok(w.b.away, "another extension is no person");
  await w.pi.emit("input", { text: "hi", source: "interactive" });
  assert.ok(!w.b.away, "a person acted");
}
{
  const w = bridge(); // the host says that connecting again is of no use
  w.link.close = () => w.b.closed(w.link);
  w.b.message(w.link, "bye", 0, { reason: `wrong\n${"x".repeat(500)}`, final: true });
  assert.equal(w.b.timer, undefined, "no timer will connect again");
  assert.match(w.pi.footer, /refused by the host; type \/workflow/);
  const { text } = await w.b.tool({}, "", false);
  assert.match(text, /Nothing was done. It says: wrong\?x/);
  assert.ok(text.length < 400, "the host's reason is bounded");
  await w.pi.emit("input", { text: "hi", source: "interactive" });
  assert.ok(w.b.link && !w.b.refused, "a person acted");
}
{
  const w = bridge(); // the host is away for long
  w.b.link = undefined;
  const chat = (turn, end = {}, start = {}) => {
    if (!start.message) w.b.report("input", { key: `i-${turn}` });
    for (let n = 0; n < 3; n++) w.b.report("turnStarted", { turn, ...start }); // with retries
    w.b.report("turnSettled", { turn, byPerson: false, ...end });
  };
  w.b.report("turnSettled", { turn: "confirmed" }); // the host knows whose it is
  chat("owned", {}, { message: "m1" });
  chat("stopped", { byPerson: true });
  for (let n = 0; n < 2000; n++) chat(`t${n}`);
  assert.ok(w.b.out.length <= 1000, "bounded");
  assert.deepEqual(w.b.out.slice(0, 5).map((r) => [r.kind, r.body.turn]),
    [["turnSettled", "confirmed"], ["turnStarted", "owned"], ["turnSettled", "owned"], ["turnStarted", "stopped"], ["turnSettled", "stopped"]]);
  assert.deepEqual(w.b.out.slice(-3).map((r) => r.body.turn ?? r.body.key), ["i-t1999", "t1999", "t1999"]);
  const starts = w.b.out.filter((r) => r.kind === "turnStarted").map((r) => r.body.turn);
  const ends = w.b.out.filter((r) => r.kind === "turnSettled").map((r) => r.body.turn);
  assert.deepEqual(["confirmed", ...starts], ends, "no turn loses one of its ends, and the order stays");
  const kept = [{ kind: "turnStarted", body: { turn: "t", message: "m" } }];
  assert.deepEqual(thin(kept), kept, "nothing that may go");
}
console.log("ok");
process.exit(0);
