// A stub of Pi's extension API over one session file, as far as the extension
// uses it. Messages reach the branch a moment after their turn has begun, and
// the file once there is a conversation, as with the real one.
import fs from "node:fs";
import { randomUUID } from "node:crypto";

export const tick = () => new Promise((r) => setImmediate(r));

export async function until(what, done) {
  for (let n = 0; n < 2000; n++) {
    if (await done()) return;
    await new Promise((r) => setTimeout(r, 5));
  }
  throw new Error(`never happened: ${what}`);
}

export class Pi {
  constructor(file, id) {
    this.file = file;
    this.id = id;
    this.entries = [];
    this.handlers = {};
    this.tools = {};
    this.commands = {};
    this.renderers = {};
    this.notes = [];
    this.sent = [];
    this.aborts = 0;
    this.busy = false;
    this.pendingMessages = false;
    this.settledActions = undefined;
    this.model = async () => ({ text: "ok" });
    this.ctx = {
      hasUI: true,
      ui: { setStatus: (_, text) => (this.footer = text), notify: (text, kind) => this.notes.push(`${kind}: ${text}`) },
      sessionManager: {
        getSessionFile: () => this.file,
        getSessionId: () => this.id,
        getEntries: () => this.entries,
        getBranch: () => this.entries,
        getLeafId: () => this.entries.at(-1)?.id ?? null,
      },
      isIdle: () => !this.busy,
      hasPendingMessages: () => this.pendingMessages,
      abort: () => {
        this.aborts++;
        this.cut?.();
      },
    };
    const api = {
      on: (name, handler) => (this.handlers[name] ??= []).push(handler),
      registerTool: (tool) => (this.tools[tool.name] = tool),
      registerCommand: (name, command) => (this.commands[name] = command),
      registerMessageRenderer: (type, renderer) => (this.renderers[type] = renderer),
      sendMessage: (message, options) => this.send(message, options),
    };
    this.api = api;
  }

  async emit(name, event = {}) {
    let last;
    for (const h of this.handlers[name] ?? []) last = await h({ type: name, ...event }, this.ctx);
    return last;
  }

  append(entry) {
    this.entries.push({ id: randomUUID().slice(0, 8), ...entry });
    const talk = this.entries.some((e) => e.type === "message");
    if (talk) fs.writeFileSync(this.file, this.entries.map((e) => `${JSON.stringify(e)}\n`).join(""));
  }

  send(message, options) {
    this.sent.push({ message, options });
    const entry = { type: "custom_message", ...message };
    if (!options.triggerTurn) return this.append(entry);
    if (this.settledActions) return void this.settledActions.push(() => this.run(entry));
    if (this.busy) throw new Error("the stub was sent a message while it was busy");
    void this.run(entry);
  }

  // prompt is what a person types.
  async prompt(text) {
    await this.emit("input", { text, source: "interactive" });
    await this.run({ type: "message", message: { role: "user", content: text } });
  }

  async run(opener) {
    this.busy = true;
    const custom = opener.type === "custom_message";
    await this.emit("before_agent_start", custom ? { messageType: "custom", message: opener } : { messageType: "user", prompt: "x" });
    await this.emit("agent_start");
    await tick();
    this.append(opener);
    if (custom) await this.emit("message_end", { message: { role: "custom", details: opener.details } });
    let aborted = false;
    const cut = new Promise((r) => (this.cut = () => ((aborted = true), r({ text: "" }))));
    const reply = await Promise.race([this.model(opener), cut]);
    const message = { role: "assistant", content: [{ type: "text", text: reply.text }], stopReason: aborted ? "aborted" : (reply.stop ?? "stop") };
    this.append({ type: "message", message });
    await this.emit("turn_end", { message });
    await this.emit("agent_end", { messages: [message] });
    this.busy = false;
    this.settledActions = [];
    await this.emit("agent_settled", { aborted });
    const actions = this.settledActions;
    this.settledActions = undefined;
    for (const a of actions) await a();
  }

  async call(args, id = "call_1", signal) {
    const r = await this.tools.workflow.execute(id, args, signal, undefined, this.ctx);
    return { text: r.content[0].text, details: r.details, isError: r.isError ?? false };
  }

  command(text) {
    return this.commands.workflow.handler(text, this.ctx);
  }
}
