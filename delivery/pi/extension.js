// The bridge between Pi and a host of durable workflows. One file, no
// dependencies, documented extension APIs only. What it says and hears is
// described in PROTOCOL.md beside it.
//
// It decides nothing: it reports what the session does, in order, and carries
// out what the host asks for. Three rules are its own, because only it can see
// them in time: nothing is sent unless Pi is idle with nothing waiting, in the
// same synchronous step that looked; its own abort is not the person's; and
// whoever was replaced by another connection stays away.

import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs";
import fsp from "node:fs/promises";
import net from "node:net";
import path from "node:path";

const VERSION = 1;
const MAX_FRAME = 1 << 20;
const MAX_CONTENT = 4 << 20;
const MAX_CHUNK = 256 << 10;
const MAX_QUEUE = 8 << 20;
const MAX_REPORTS = 1000;
const MAX_TEXT = 8 << 10;
const MAX_REPLY = 128 << 10;
const HOLD_MS = 30_000; // for how long typed text that starts no turn holds sends
const START_MS = 1_000; // in which a turn that was asked for makes Pi busy
const DEFERRED_MS = 30_000; // the same, when settled handlers of others run
const CONNECT_MS = 1_500; // that a tool call waits for a connection
const ANSWER_MS = 20_000; // that a tool call waits for its answer
const OWN_MS = 1_000; // the same, once the host has stopped the turn that makes the call
const LEAVE_MS = 1_000; // that a shutdown waits for the host
const MIN_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 10_000;
const MESSAGE_TYPES = [
  "pi-workflows-deferred-turn",
  "pi-workflows-notice",
  "pi-workflows-step",
  "pi-workflows-checkpoint",
  "pi-workflows-decision",
  "pi-workflows-notification",
];

// What outlives a reload of the extension is kept on globalThis. The token goes
// there from the environment, so that no child process inherits it.
function processState() {
  const key = Symbol.for("piworkflows.extension.v1");
  const state = (globalThis[key] ??= { process: `${process.pid}-${randomUUID()}`, reports: new Map(), live: undefined });
  if (process.env.PIWORKFLOWS_TOKEN) {
    state.token = process.env.PIWORKFLOWS_TOKEN;
    state.socket = process.env.PIWORKFLOWS_SOCKET;
    delete process.env.PIWORKFLOWS_TOKEN;
  }
  return state;
}

// ---- text -------------------------------------------------------------------

// encode makes a line. The host refuses lone surrogates, which are replaced.
function encode(kind, id, body) {
  const text = JSON.stringify({ kind, id, body });
  return text.replace(/\\\\|\\u[dD][89a-fA-F][0-9a-fA-F]{2}/g, (m) => (m === "\\\\" ? m : "\\ufffd"));
}

// clip cuts a text to so many bytes of UTF-8, between characters.
function clip(text, max) {
  const bytes = Buffer.from(String(text ?? ""), "utf8");
  if (bytes.length <= max) return bytes.toString("utf8");
  let end = max;
  while (end > 0 && (bytes[end] & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end).toString("utf8");
}

// word makes a text fit for a field that takes a short printable key.
function word(text, max = 64) {
  return clip(String(text ?? "").replace(/[^\x20-\x7e]/g, "?"), max);
}

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.filter((c) => c?.type === "text").map((c) => c.text).join("\n");
}

// backoff is how long to wait before the n-th repeated try to connect, from 0.
function backoff(n, random = Math.random()) {
  return Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** Math.min(n, 20)) * (0.5 + random / 2);
}

// ---- reports that wait for the host -----------------------------------------------

// thin drops what decides nothing any more, when a host is long away: the oldest
// input, or the oldest turn that nobody's message opened, start and end at once.
// The last of each stays, and the last turn that the person stopped; so does all
// that tells whose a turn is.
function thin(out) {
  const id = (r) => r.body.turn ?? r.body.key;
  const loose = new Set(out.filter((r) => r.kind === "input" || (r.kind === "turnStarted" && !r.body.message)).map(id));
  for (const fits of [(r) => r.kind === "input", (r) => r.kind === "turnStarted", (r) => r.body.byPerson]) {
    loose.delete(id(out.findLast(fits) ?? { body: {} }));
  }
  const [first] = loose;
  return out.filter((r) => id(r) !== first);
}

// ---- what the branch and the disk show ----------------------------------------

const messageOf = (entry) => (entry?.type === "custom_message" ? entry.details?.messageId : undefined);
const intentOf = (entry) => (entry?.type === "custom_message" ? entry.details?.turnIntentId : undefined);

// evidence says of each name whether the branch shows it. Structured metadata
// counts, never text.
function evidence(branch, names, onDisk) {
  return names.map((name) => {
    const at = branch.findIndex((e) => messageOf(e) === name);
    if (at < 0) return { message: name, present: false, durable: false, replied: false };
    let replied = false;
    for (const e of branch.slice(at + 1)) {
      if (e.type === "custom_message" || (e.type === "message" && e.message?.role === "user")) break;
      const stop = e.type === "message" && e.message?.role === "assistant" ? e.message.stopReason : undefined;
      replied ||= stop === "stop" || stop === "length";
    }
    return { message: name, present: true, durable: onDisk.has(branch[at].id), replied };
  });
}

// Disk knows which custom messages are in the session file, and reads only what
// was added since it looked last.
class Disk {
  constructor(file) {
    this.file = file;
    this.reset();
  }

  reset() {
    this.ids = new Set();
    this.offset = 0;
    this.inode = undefined;
    this.rest = Buffer.alloc(0);
  }

  async update() {
    let handle;
    try {
      handle = await fsp.open(this.file, "r");
    } catch {
      this.reset();
      return this.ids; // not there yet
    }
    try {
      const stat = await handle.stat();
      if (stat.size < this.offset || (this.inode !== undefined && this.inode !== stat.ino)) this.reset();
      this.inode = stat.ino;
      const chunk = Buffer.alloc(Math.min(256 << 10, Math.max(1, stat.size - this.offset)));
      const found = new Set();
      while (this.offset < stat.size) {
        const { bytesRead } = await handle.read(chunk, 0, chunk.length, this.offset);
        if (bytesRead === 0) break;
        this.offset += bytesRead;
        this.take(Buffer.concat([this.rest, chunk.subarray(0, bytesRead)]), found);
      }
      if (found.size > 0) await handle.datasync(); // Pi itself does not
      for (const id of found) this.ids.add(id);
    } catch {
      this.reset(); // the next look reads it again
    } finally {
      await handle.close().catch(() => {});
    }
    return this.ids;
  }

  take(bytes, found) {
    let from = 0;
    for (let at = bytes.indexOf(10, from); at >= 0; at = bytes.indexOf(10, from)) {
      const line = bytes.subarray(from, at);
      from = at + 1;
      if (!line.includes('"custom_message"')) continue;
      try {
        const entry = JSON.parse(line.toString("utf8"));
        if (entry.type === "custom_message") found.add(entry.id);
      } catch {
        // a torn line; Pi drops it too
      }
    }
    this.rest = Buffer.from(bytes.subarray(from));
  }
}

// ---- one connection -------------------------------------------------------------

// Link is one connection to the host: frames, requests and large frames.
class Link {
  constructor(socket, hooks) {
    this.socket = socket;
    this.hooks = hooks; // message(kind, id, body), closed()
    this.asked = 0;
    this.asks = new Map();
    this.held = new Map();
    this.large = new Map();
    this.parts = [];
    this.size = 0;
    this.open = true;
    this.ready = false;
    this.epoch = 0;
    this.since = Date.now();
    socket.unref();
    socket.on("data", (chunk) => this.data(chunk));
    socket.on("error", () => this.close());
    socket.on("close", () => this.close());
  }

  close() {
    if (!this.open) return;
    this.open = false;
    this.socket.destroy();
    for (const { reject } of this.asks.values()) reject(new Error("the connection is gone"));
    this.asks.clear();
    this.hooks.closed();
  }

  say(kind, id, body) {
    if (!this.open) return;
    let line = encode(kind, id, body);
    if (Buffer.byteLength(line) + 1 > MAX_FRAME) {
      const bytes = Buffer.from(line, "utf8");
      if (bytes.length > MAX_CONTENT || this.held.size >= 4) throw new Error("too large to send");
      const digest = createHash("sha256").update(bytes).digest("hex");
      this.held.set(digest, bytes);
      line = encode("large", 0, { digest, bytes: bytes.length });
    }
    this.socket.write(`${line}\n`);
    if (this.socket.writableLength > MAX_QUEUE) this.close();
  }

  ask(kind, body) {
    return new Promise((resolve, reject) => {
      if (!this.open) return reject(new Error("the connection is gone"));
      const id = ++this.asked;
      this.asks.set(id, { resolve, reject });
      try {
        this.say(kind, id, body);
      } catch (err) {
        this.asks.delete(id);
        reject(err);
      }
    });
  }

  data(chunk) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0 && this.open; at = chunk.indexOf(10, from)) {
      this.parts.push(chunk.subarray(from, at));
      from = at + 1;
      const line = Buffer.concat(this.parts);
      this.parts = [];
      this.size = 0;
      if (line.length >= MAX_FRAME) return this.close();
      this.take(line);
    }
    this.parts.push(Buffer.from(chunk.subarray(from)));
    this.size += chunk.length - from;
    if (this.size >= MAX_FRAME) this.close();
  }

  take(line) {
    let frame;
    try {
      frame = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(line));
    } catch {
      return this.close();
    }
    const { kind, id, body } = frame ?? {};
    if (typeof kind !== "string" || !Number.isSafeInteger(id) || typeof body !== "object" || body === null) return this.close();
    switch (kind) {
      case "ok":
      case "refused":
      case "toolResult": {
        const ask = this.asks.get(id);
        this.asks.delete(id);
        ask?.resolve({ kind, body });
        return;
      }
      case "fetch":
        return this.serve(id, body);
      case "large":
        if (!(body.bytes > 0 && body.bytes <= MAX_CONTENT) || this.large.size >= 4) return this.close();
        this.large.set(body.digest, { bytes: body.bytes, parts: [], got: 0 });
        return this.say("fetch", 0, { digest: body.digest, offset: 0 });
      case "chunk":
        return this.assemble(body);
      default:
        try {
          this.hooks.message(kind, id, body);
        } catch {
          this.close(); // the session is being replaced
        }
    }
  }

  serve(id, { digest, offset }) {
    const whole = this.held.get(digest);
    if (!whole || !(offset >= 0 && offset < whole.length)) return this.close();
    const data = whole.subarray(offset, offset + MAX_CHUNK);
    if (offset + data.length === whole.length) this.held.delete(digest);
    this.say("chunk", id, { digest, offset, data: data.toString("base64") });
  }

  assemble({ digest, offset, data }) {
    const a = this.large.get(digest);
    const bytes = Buffer.from(String(data), "base64");
    if (!a || offset !== a.got || bytes.length === 0 || a.got + bytes.length > a.bytes) return this.close();
    a.parts.push(bytes);
    a.got += bytes.length;
    if (a.got < a.bytes) return this.say("fetch", 0, { digest, offset: a.got });
    this.large.delete(digest);
    const whole = Buffer.concat(a.parts);
    if (createHash("sha256").update(whole).digest("hex") !== digest) return this.close();
    this.take(whole);
  }
}

// ---- the bridge -------------------------------------------------------------------

class Bridge {
  constructor(pi, state = processState(), now = Date.now) {
    this.pi = pi;
    this.state = state;
    this.now = now;
    this.waiters = new Set();
    this.renderers = new Set();
    this.calls = new Set();
    this.spec = undefined;
    this.forget();
  }

  // forget drops what belongs to one session.
  forget() {
    this.session = undefined; // {id, file}
    this.ctx = undefined;
    this.disk = undefined;
    this.link = undefined;
    this.out = []; // reports that are not confirmed
    this.away = false; // fenced
    this.epoch = 0; // of the last connection: no session is taken from who came later
    this.refused = ""; // why the host wants no connection with this extension
    this.turn = undefined; // {key, message, intent, started, own, leaf, stop}
    this.opening = undefined; // {message, intent, at, deferred}: asked for, not begun
    this.typed = 0; // when text was typed that has not begun a turn
    this.stopped = false; // the person stopped a turn, and the host may not know
    this.settling = false;
    this.leaving = false; // the session shuts down
    this.tries = 0;
    this.run = ""; // for the footer
  }

  // -- connection

  start(reason, ctx) {
    const file = ctx.sessionManager.getSessionFile();
    const id = ctx.sessionManager.getSessionId();
    if (file && this.session?.id === id && this.session.file === path.resolve(file) && this.state.live === this) {
      this.ctx = ctx; // said twice
      this.away = false;
      this.epoch = 0;
      this.refused = "";
      return this.connect(reason);
    }
    this.state.live?.leave();
    this.forget();
    this.ctx = ctx;
    this.state.live = this;
    if (!file) return this.status("needs a saved session");
    this.session = { id, file: path.resolve(file) };
    this.disk = new Disk(this.session.file);
    const key = `${id}\n${this.session.file}`;
    if (!this.state.reports.has(key)) this.state.reports.set(key, []);
    this.out = this.state.reports.get(key);
    for (const entry of ctx.sessionManager.getEntries()) if (messageOf(entry)) this.render(entry.customType);
    this.connect(reason);
  }

  // leave ends the connection without a word; a reload or another session goes on.
  leave() {
    clearTimeout(this.timer);
    const link = this.link;
    this.link = undefined;
    link?.close();
    this.session = undefined;
    if (this.state.live === this) this.state.live = undefined;
    this.wake();
  }

  connect(reason) {
    clearTimeout(this.timer);
    if (!this.session || this.away || this.refused || this.link || !this.state.socket || !this.state.token) return this.status();
    const socket = net.connect(this.state.socket);
    const link = new Link(socket, {
      message: (kind, id, body) => this.message(link, kind, id, body),
      closed: () => this.closed(link),
    });
    this.link = link;
    socket.once("connect", () =>
      link.say("hello", 0, {
        version: VERSION,
        token: this.state.token,
        session: this.session,
        process: this.state.process,
        pid: process.pid,
        reason: word(reason),
        durable: true,
        ...(this.epoch > 0 && { after: this.epoch }),
      }),
    );
    this.status();
  }

  closed(link) {
    if (this.link !== link) return;
    this.link = undefined;
    if (Date.now() - link.since > 1_000 && link.ready) this.tries = 0;
    this.wake();
    this.status();
    if (!this.session || this.away || this.refused) return;
    this.timer = setTimeout(() => this.connect("reconnect"), backoff(this.tries++));
    this.timer.unref();
  }

  message(link, kind, id, body) {
    if (this.link !== link) return;
    switch (kind) {
      case "welcome":
        if (body.version !== VERSION) return this.refuse(link, "its protocol has another version; type /reload in Pi, or start it from this host again");
        link.epoch = this.epoch = body.epoch;
        this.offer(body.tool);
        void this.flush();
        return this.status();
      case "look":
        this.look(link, id, body.names).catch(() => link.close());
        return;
      case "send":
        return link.say("sent", id, this.send(link, body));
      case "abort":
        this.abort(body.message);
        return link.say("aborted", id, {});
      case "fenced":
        this.away = true;
        link.close();
        for (const call of this.calls) call.lost();
        return this.status();
      case "status":
        this.run = word(`${body.run} ${body.status}`, 128);
        return this.status();
      case "bye":
        return body.final ? this.refuse(link, body.reason) : link.close();
      default:
        return link.close();
    }
  }

  // refuse ends a connection that would end in the same way every time.
  refuse(link, reason) {
    this.refused = word(reason, 200);
    link.close();
    for (const call of this.calls) call.lost();
  }

  // act lifts a fence or a refusal: the person, or a new session start, asked for
  // it.
  act() {
    if (!this.away && !this.refused) return;
    this.away = false;
    this.epoch = 0;
    this.refused = "";
    this.connect("person");
  }

  // -- reports

  report(kind, body) {
    if (!this.session) return;
    if (kind === "turnStarted" && this.out.some((r) => r.kind === kind && r.body.turn === body.turn)) return; // a retry
    this.out.push({ kind, body });
    if (this.out.length > MAX_REPORTS) this.out.splice(0, this.out.length, ...thin(this.out));
    void this.flush();
  }

  // flush makes the reports one by one, then says that they are all made.
  async flush() {
    if (this.flushing) return;
    this.flushing = true;
    try {
      for (let link = this.link; link?.open && link.epoch && this.link === link; ) {
        if (this.out.length === 0) {
          const first = !link.ready;
          link.ready = true;
          if (first) this.changed("connected");
          for (const call of this.calls) call.transmit();
          this.wake();
          if (first) this.status();
          break;
        }
        const out = this.out;
        const r = out[0];
        await link.ask(r.kind, r.body); // refused means that repeating is of no use
        if (out[0] === r) out.shift();
      }
    } catch {
      // the connection is gone; the next one repeats it
    } finally {
      this.flushing = false;
    }
    // a newer connection, or a report made in the last step
    const link = this.link;
    if (link?.open && link.epoch && (this.out.length > 0 || !link.ready)) void this.flush();
  }

  changed(why) {
    const link = this.link;
    if (!link?.ready || this.out.length > 0) return; // flush says it at its end
    link.say("changed", 0, { why });
  }

  // soon says that something changed once Pi has written it.
  soon(why) {
    if (this.soonAt) return;
    this.soonAt = setImmediate(() => {
      this.soonAt = undefined;
      this.changed(why);
    });
  }

  wake() {
    for (const w of [...this.waiters]) w();
  }

  // until waits, for a bounded time, for something that wake tells of.
  until(done, ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => finish(false), ms);
      const finish = (value) => {
        clearTimeout(timer);
        this.waiters.delete(check);
        resolve(value);
      };
      const check = () => {
        if (done()) finish(true);
      };
      this.waiters.add(check);
      check();
    });
  }

  reported(link) {
    return link.open && link.ready && this.out.length === 0;
  }

  // -- what the host asks for

  async look(link, id, names) {
    if (!Array.isArray(names)) return link.close();
    for (let n = 0; n < 100; n++) {
      const onDisk = names.length > 0 ? await this.disk.update() : new Set();
      await this.until(() => !link.open || this.reported(link), ANSWER_MS);
      if (!link.open || this.link !== link) return;
      if (!this.reported(link)) break;
      let body;
      try {
        body = {
          idle: this.free(),
          pending: this.typed !== 0 || this.ctx.hasPendingMessages(),
          evidence: evidence(this.ctx.sessionManager.getBranch(), names, onDisk),
        };
      } catch {
        break; // the session is being replaced
      }
      this.stopped = false; // the host knows by now
      return link.say("report", id, body);
    }
    link.say("unable", id, { reason: "the session is not at rest" });
  }

  // free is Pi's isIdle without the times in which a turn is about to start.
  free() {
    return this.ctx.isIdle() && !this.settling && !this.leaving && !this.turn?.started && !this.starting();
  }

  starting() {
    const o = this.opening;
    if (!o) return false;
    if (!this.ctx.isIdle() || this.now() - o.at < (o.deferred ? DEFERRED_MS : START_MS)) return true;
    this.opening = undefined; // Pi refused to start it
    return false;
  }

  holding() {
    return this.typed !== 0 && this.now() - this.typed < HOLD_MS;
  }

  // shows reports whether the message is on the branch, or on its way there.
  shows(m) {
    const ids = new Set([m.message, ...m.others]);
    const match = (id, intent) => (id && ids.has(id)) || (intent && intent === m.intent);
    return (
      (this.starting() && match(this.opening.message, this.opening.intent)) ||
      (this.turn?.started && match(this.turn.message, this.turn.intent)) ||
      this.ctx.sessionManager.getBranch().some((e) => match(messageOf(e), intentOf(e)))
    );
  }

  // send is one synchronous step: it looks, then appends.
  send(link, m) {
    const occupied = (reason) => ({ verdict: "occupied", reason });
    const refused = (reason) => ({ verdict: "refused", reason });
    try {
      if (this.link !== link || this.away || m.epoch !== link.epoch) return refused("the connection is not the current one");
      if (!m.message || m.details?.messageId !== m.message) return refused("the details do not name the message");
      if (this.shows(m)) return { verdict: "present" };
      if (m.deadline && this.now() >= m.deadline) return refused("the deadline has passed");
      if (!this.free()) return occupied("the session is busy");
      if (this.holding() || this.ctx.hasPendingMessages()) return occupied("the person's input waits");
      if (this.out.length >= MAX_REPORTS) return occupied("too many reports wait for the host");
      if (this.stopped) return occupied("the person stopped a turn");
      this.render(m.customType);
      const message = { customType: m.customType, content: m.content, display: true, details: m.details };
      if (!m.triggerTurn) {
        this.pi.sendMessage(message, { triggerTurn: false });
        this.soon("message");
        return { verdict: "taken" };
      }
      this.opening = { message: m.message, intent: m.details.turnIntentId, at: this.now(), deferred: false };
      this.pi.sendMessage(message, { deliverAs: "followUp", triggerTurn: true });
      this.opening.deferred = this.ctx.isIdle(); // settled handlers of others run
      const timer = setTimeout(() => this.changed("start"), (this.opening.deferred ? DEFERRED_MS : START_MS) + 10);
      timer.unref();
      return { verdict: "taken" };
    } catch (err) {
      this.opening = undefined;
      return refused(word(`Pi refused the message: ${err?.name ?? "error"}`));
    }
  }

  abort(message) {
    const t = this.turn;
    if (!t?.started || !message || t.message !== message) return;
    try {
      if (this.ctx.isIdle()) return;
      t.own = true; // the settled event does not tell whose abort it was
      this.ctx.abort();
    } catch {
      t.own = false;
    }
  }

  // -- what Pi does

  before(event) {
    const d = event.messageType === "custom" ? event.message?.details : undefined;
    this.turn = { key: randomUUID(), message: d?.messageId ?? "", intent: d?.turnIntentId, started: false, own: false };
    this.typed = 0;
  }

  agentStart(ctx) {
    this.ctx = ctx;
    this.typed = 0;
    if (!this.turn) {
      const o = this.opening; // a Pi that does not say what opens a turn
      this.turn = { key: randomUUID(), message: o?.message ?? "", intent: o?.intent, started: false, own: false };
    }
    const t = this.turn;
    if (!t.started) t.leaf = ctx.sessionManager.getLeafId();
    t.started = true;
    if (this.opening && this.opening.message === t.message) this.opening = undefined;
    const body = { turn: t.key };
    if (t.message) body.message = t.message;
    this.report("turnStarted", body); // again after a retry
  }

  agentEnd(event) {
    const last = (event.messages ?? []).findLast((m) => m?.role === "assistant");
    if (this.turn && last) this.turn.stop = last.stopReason;
  }

  settled(event, ctx) {
    const t = this.turn;
    this.turn = undefined;
    this.ctx = ctx;
    this.settling = true; // others may ask for a turn in their handlers
    setImmediate(() => {
      this.settling = false;
      this.changed("settled");
    });
    if (!t?.started) return;
    const aborted = event.aborted ?? t.stop === "aborted";
    const end = aborted ? "aborted" : t.stop === "error" ? "error" : "completed";
    const byPerson = aborted && !t.own;
    this.stopped ||= byPerson;
    const body = { turn: t.key, end, byPerson, aborted };
    if (t.stop) body.stopReason = word(t.stop);
    const branch = ctx.sessionManager.getBranch();
    const mine = branch.slice(branch.findIndex((e) => e.id === t.leaf) + 1);
    const prompt = mine.find((e) => e.type === "custom_message" || (e.type === "message" && e.message?.role === "user"));
    const reply = mine.findLast((e) => e.type === "message" && e.message?.role === "assistant");
    if (prompt) {
      body.promptEntry = word(prompt.id);
      body.prompt = clip(textOf(prompt.content ?? prompt.message?.content), MAX_TEXT);
    }
    if (reply) {
      body.replyEntry = word(reply.id);
      const text = textOf(reply.message.content);
      body.reply = clip(text, MAX_REPLY);
      // Whole is a finished text of the message's own turn, to which nobody added.
      const typed = mine.some((e) => e.type === "message" && e.message?.role === "user");
      body.whole = end === "completed" && reply.message.stopReason === "stop" && body.reply === text && prompt?.type === "custom_message" && !typed;
    }
    this.report("turnSettled", body);
  }

  input(event, ctx) {
    this.ctx = ctx;
    const person = event.source !== "extension";
    if (person) this.act();
    if (ctx.isIdle()) {
      this.typed = this.now();
      const timer = setTimeout(() => {
        if (this.holding()) return;
        this.typed = 0; // it was handled, or could not start
        this.changed("input");
      }, HOLD_MS + 10);
      timer.unref();
    }
    if (person) this.report("input", { key: randomUUID(), source: word(event.source ?? "unknown") });
  }

  async shutdown(reason) {
    const link = this.link;
    this.leaving = true;
    if (link?.open && link.epoch) {
      const bye = async () => {
        await this.until(() => !link.open || this.reported(link), LEAVE_MS);
        if (this.reported(link)) await link.ask("shutdown", { reason: word(reason) });
      };
      await Promise.race([bye().catch(() => {}), new Promise((r) => setTimeout(r, LEAVE_MS))]);
    }
    for (const call of [...this.calls]) call.lost();
    this.leave();
  }

  // -- the tool and the command

  offer(spec) {
    if (typeof spec?.name !== "string" || JSON.stringify(spec) === JSON.stringify(this.spec)) return;
    this.spec = spec;
    this.pi.registerTool({
      name: spec.name,
      label: "Workflow",
      description: spec.description,
      parameters: spec.parameters,
      executionMode: "sequential",
      execute: async (toolCallId, params, signal) => {
        const r = await this.tool(params, String(toolCallId ?? ""), false, signal);
        return { content: [{ type: "text", text: r.text }], details: r.details ?? {}, ...(r.isError ? { isError: true } : {}) };
      },
    });
  }

  fail(text) {
    return { text, isError: true, details: { error: "unavailable" } };
  }

  // tool makes one call. Its key is random, and kept when the call is repeated
  // because its answer was lost.
  async tool(params, toolCallId, person, signal) {
    if (!this.session) return this.fail("Workflows need a saved session; this one has no file. Nothing was done.");
    if (!this.state.socket) return this.fail("This Pi was not started by a workflow host. Nothing was done.");
    if (person) this.act();
    if (this.away) return this.fail("Another Pi process has taken this session over. Nothing was done; use that one, or type here to take it back.");
    this.connect("tool");
    const current = () => this.link && this.reported(this.link);
    if (!(await this.until(() => current() || this.refused, CONNECT_MS))) {
      return this.fail("The workflow host is not running or not reachable. Nothing was done; try again when it is back.");
    }
    if (this.refused) return this.fail(`The workflow host takes no call from this Pi. Nothing was done. It says: ${this.refused}`);
    const body = { key: randomUUID(), person, args: person ? params : JSON.stringify(params ?? {}) };
    if (toolCallId) body.toolCallId = clip(toolCallId, 512);
    return new Promise((resolve) => {
      const finish = (result) => {
        clearTimeout(timer);
        signal?.removeEventListener?.("abort", stopped);
        this.calls.delete(call);
        resolve(result);
      };
      const call = {
        via: undefined,
        transmit: () => {
          const link = this.link;
          if (!link || call.via === link) return;
          call.via = link;
          link.ask("tool", body).then(
            (a) => finish(a.kind === "toolResult" ? a.body : this.fail("The call was refused. Nothing was done.")),
            (err) => {
              if (err?.message === "too large to send") finish(this.fail("The arguments are too large. Nothing was done."));
            }, // otherwise it is repeated on the next connection
          );
        },
        lost: () => finish(this.fail("The workflow host did not answer. The call may or may not have been carried out; look at the status before you repeat it.")),
      };
      let timer = setTimeout(call.lost, ANSWER_MS);
      const stopped = () => {
        if (!this.turn?.own) return call.lost();
        clearTimeout(timer); // this very call may have led to it; then its answer follows
        timer = setTimeout(call.lost, OWN_MS);
      };
      if (signal?.aborted) return call.lost();
      signal?.addEventListener?.("abort", stopped, { once: true });
      this.calls.add(call);
      call.transmit();
    });
  }

  async command(text, ctx) {
    this.act();
    const r = await this.tool(clip(text.trim(), MAX_FRAME / 8), "", true);
    ctx.ui.notify(r.text, r.isError ? "error" : "info");
  }

  completions(prefix) {
    const commands = this.spec?.commands ?? [];
    // A list for a word that is complete would take the Enter that sends it.
    const items = commands.filter((c) => c.name.startsWith(prefix) && c.name !== prefix).map((c) => ({ value: c.name, label: c.usage }));
    return items.length > 0 ? items : null;
  }

  // -- what the person sees

  status(text) {
    const link = this.link;
    text ??= this.away
      ? "taken over by another Pi"
      : this.refused
        ? "refused by the host; type /workflow to see why"
        : link?.ready
          ? this.run || "connected"
          : link
            ? "connecting"
            : "host away";
    try {
      if (this.ctx?.hasUI) this.ctx.ui.setStatus("workflow", `workflow: ${text}`);
    } catch {
      // the session was replaced
    }
  }

  render(customType) {
    if (typeof customType !== "string" || this.renderers.has(customType)) return;
    this.renderers.add(customType);
    this.pi.registerMessageRenderer?.(customType, renderMessage);
  }
}

// cut keeps what surely fits: whatever is not ASCII counts as two columns.
function cut(line, width) {
  let used = 0;
  let out = "";
  for (const c of line.replace(/[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, " ")) {
    used += c.charCodeAt(0) < 0x80 ? 1 : 2;
    if (used > width) return out;
    out += c;
  }
  return out;
}

// renderMessage shows a workflow message as one line, or as all when expanded.
function renderMessage(message, options, theme) {
  const lines = textOf(message.content).split("\n");
  const paint = (color, text) => theme?.fg?.(color, text) ?? text;
  return {
    render(width) {
      const shown = options?.expanded ? lines : lines.slice(0, 1);
      const out = shown.map((line, i) => (i === 0 ? paint("accent", cut(`◆ ${line}`, width)) : paint("muted", cut(`  ${line}`, width))));
      if (!options?.expanded && lines.length > 1) out.push(paint("dim", cut(`  … ${lines.length - 1} more lines`, width)));
      return out;
    },
    invalidate() {},
  };
}

function readSpec(state) {
  if (!state.socket) return undefined;
  try {
    return JSON.parse(fs.readFileSync(path.join(path.dirname(state.socket), "tool.json"), "utf8"));
  } catch {
    return undefined; // it comes with the welcome
  }
}

export default function piworkflows(pi) {
  const state = processState();
  const bridge = new Bridge(pi, state);
  for (const type of MESSAGE_TYPES) bridge.render(type);
  bridge.offer(readSpec(state));
  pi.registerCommand("workflow", {
    description: "Start and follow durable workflows",
    getArgumentCompletions: (prefix) => bridge.completions(prefix),
    handler: (args, ctx) => bridge.command(args ?? "", ctx),
  });
  pi.on("session_start", (event, ctx) => bridge.start(event.reason, ctx));
  pi.on("session_shutdown", (event) => bridge.shutdown(event.reason));
  pi.on("input", (event, ctx) => bridge.input(event, ctx));
  pi.on("before_agent_start", (event) => bridge.before(event));
  pi.on("agent_start", (_event, ctx) => bridge.agentStart(ctx));
  pi.on("agent_end", (event) => bridge.agentEnd(event));
  pi.on("agent_settled", (event, ctx) => bridge.settled(event, ctx));
  pi.on("message_end", (event) => {
    if (event.message?.role === "custom" && event.message.details?.messageId) bridge.soon("message");
  });
  pi.on("turn_end", () => {
    if (bridge.turn?.message) bridge.soon("reply");
  });
  pi.on("session_tree", () => bridge.changed("tree"));
  pi.on("session_compact", () => bridge.soon("compaction"));
  pi.on("session_compact_failed", () => bridge.soon("compaction"));
}

// For tests.
export const internals = { Bridge, Disk, Link, backoff, clip, cut, encode, evidence, processState, renderMessage, thin };
