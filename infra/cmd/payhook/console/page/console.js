// The page shows what the stream says, and asks for what the buttons do. It writes what
// comes from outside as text only.
"use strict";

const byId = (id) => document.getElementById(id);
const list = byId("deliveries");
const maxDeliveries = 300; // on the page
const maxEvents = 25; // of one delivery

// element makes an element with content, which is shown as text.
function element(name, className, ...content) {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.append(...content);
  return e;
}

// region makes a preformatted text that the keyboard can scroll.
function region(label, text) {
  const e = element("pre", "", text);
  e.tabIndex = 0;
  e.setAttribute("role", "region");
  e.setAttribute("aria-label", label);
  return e;
}

function time(stamp) {
  const e = element("time", "", new Date(stamp).toLocaleTimeString([], { hour12: false }));
  e.dateTime = e.title = stamp;
  return e;
}

const counted = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");

// What happened to an event: the text by the name in the log of the webhook function, and its
// color.
const { fates } = JSON.parse(document.querySelector("meta[name=data]").content);
const colors = { published: "good", duplicate: "plain", unrecorded: "bad" };

// Item is one event of a delivery. Its content is read each time it is opened.
class Item {
  constructor(id) {
    this.id = id;
    this.summary = element("summary");
    this.details = element("details", "", this.summary);
    this.details.addEventListener("toggle", () => this.load());
    this.node = element("li", "", this.details);
  }

  draw() {
    const text = Object.hasOwn(fates, this.fate) ? fates[this.fate] : this.fate;
    const color = Object.hasOwn(colors, this.fate) ? colors[this.fate] : "wait";
    this.summary.replaceChildren(element("span", color, text + (this.late ? " later, by redrive" : "")), " ",
      element("span", "", this.name || ""), " ", element("span", "id", this.id));
    return this.node;
  }

  async load() {
    if (!this.details.open) return;
    let parts = [];
    try {
      const answer = await fetch("/event/" + encodeURIComponent(this.id));
      if (!answer.ok) throw new Error(await answer.text());
      const { state, content, rules } = await answer.json();
      if (content) {
        parts = [element("p", "", "Rules that match: ", element("strong", "", (rules || []).join(", ") || "none")),
          region("Event", content)];
      } else {
        parts = [element("p", "hint", "The page shows what is in an event when it arrives.")];
      }
      parts.push(region("State", state));
    } catch (problem) {
      parts = [element("p", "bad", "This cannot be read: " + problem.message)];
    }
    this.details.replaceChildren(this.summary, ...parts);
  }
}

// Delivery is one entry of the timeline: a webhook, or events whose webhook is not known.
class Delivery {
  constructor(deliveryId) {
    this.deliveryId = deliveryId;
    this.webhook = null;
    this.events = new Map(); // items by id
    this.node = element("li");
    this.buttons = element("div", "row");
    this.result = element("output");
    list.prepend(this.node);
    while (list.children.length > maxDeliveries) list.lastChild.remove();
  }

  event(id) {
    if (!this.events.has(id)) this.events.set(id, new Item(id));
    return this.events.get(id);
  }

  setWebhook(w) {
    this.webhook = w;
    for (const [fate, ids] of Object.entries(w.ids || {})) {
      for (const id of ids) {
        const e = this.event(id);
        // An event that arrived is published, whatever the log said before.
        if (!e.arrived) e.fate = fate;
      }
    }
    if (w.captured) this.addButton("Explain", { do: "explain", name: w.captured });
    if (w.parked && w.parked.startsWith("conflict/")) {
      this.addButton("Compare and decide …", { do: "compare", name: w.parked }, (b) => compare(b, w.parked));
    } else if (w.parked) {
      this.addButton("Replay", { do: "replay", name: w.parked });
    }
    this.draw();
  }

  addEvent(a) {
    const e = this.event(a.eventId);
    e.late = e.fate === "pending" || e.late;
    Object.assign(e, { fate: "published", arrived: true, name: a.name });
    this.draw();
  }

  addButton(text, action, click = (button) => act(button, action)) {
    const button = element("button", "", text);
    button.type = "button";
    button.addEventListener("click", () => click(button));
    this.buttons.append(button);
  }

  // setResult shows what a command about this delivery wrote.
  setResult({ action, right, output }) {
    if (action.do === "replay" && right) {
      this.decision = action.version === "first" ? "dismissed: the first version stays" : "replayed";
      this.buttons.replaceChildren();
      this.result.replaceChildren();
    } else {
      this.result.replaceChildren(region("Result", output.replace(/^the captured webhook .*\n/, "")));
    }
    this.draw();
  }

  state() {
    const w = this.webhook;
    if (w && w.status >= 400) return w.status === 401 ? "wait" : "bad";
    if (w && w.parked && !this.decision) return "wait";
    return [...this.events.values()].some((e) => e.fate === "pending") ? "wait" : "good";
  }

  draw() {
    const focused = document.activeElement; // which loses the focus where it moves
    const w = this.webhook;
    const state = this.state();
    const head = element("h3");
    const id = element("div", "id", "delivery " + this.deliveryId);
    if (w) {
      const ms = Object.values(w.ms || {}).reduce((sum, step) => sum + step, 0);
      head.append(time(w.time), element("span", "status " + (w.status < 400 ? "good" : state), String(w.status)),
        element("span", "", w.outcome));
      if (w.deliveryId) head.append(element("span", "", counted(w.events, "event")));
      head.append(element("span", "hint", ms < 1 ? "less than 1 ms" : Math.round(ms) + " ms"));
    } else {
      head.append("events of a delivery whose webhook is not known");
    }
    const parts = [head];
    if (this.deliveryId) parts.push(id);
    if (w && w.cause) parts.push(element("div", "", "cause: " + w.cause));
    if (w && w.parked) parts.push(element("div", "id", "parked as " + w.parked));
    if (w && w.status === 401 && !w.captured) {
      parts.push(element("div", "hint", "not captured, so it cannot be explained"));
    }
    if (this.events.size > 0) parts.push(this.drawEvents());
    if (this.decision) parts.push(element("div", "good", this.decision));
    parts.push(this.buttons, this.result);
    this.node.className = state;
    this.node.replaceChildren(...parts);
    if (this.node.contains(focused)) focused.focus({ preventScroll: true });
    show();
  }

  drawEvents() {
    const events = element("ol", "events");
    let left = this.webhook ? this.webhook.idsLeftOut || 0 : 0;
    for (const item of this.events.values()) {
      if (events.children.length < maxEvents) events.append(item.draw());
      else left++;
    }
    if (left > 0) events.append(element("li", "hint", "and " + left + " more"));
    return events;
  }
}

// show shows what has the text of the filter.
function show() {
  const text = byId("filter").value.trim().toLowerCase();
  let shown = 0;
  for (const entry of list.children) {
    entry.hidden = !entry.textContent.toLowerCase().includes(text);
    if (!entry.hidden) shown++;
  }
  const all = list.children.length;
  byId("count").textContent = shown < all ? shown + " of " + all : "";
  byId("empty").textContent = all === 0 ? "No delivery yet. Send one." : "Nothing has this text.";
  byId("empty").hidden = shown > 0;
}

byId("filter").addEventListener("input", show);

let deliveries = []; // the newest last

function remember(d) {
  deliveries.push(d);
  if (deliveries.length > maxDeliveries) deliveries.shift();
  return d;
}

function onWebhook(w) {
  // Its events may have been quicker than the log.
  const waiting = w.deliveryId && deliveries.find((d) => d.deliveryId === w.deliveryId && !d.webhook);
  (waiting || remember(new Delivery(w.deliveryId))).setWebhook(w);
}

function onEvent(a) {
  const same = deliveries.filter((d) => d.deliveryId === a.deliveryId);
  const expecting = same.find((d) => ["published", "pending", "conflict"].includes(d.events.get(a.eventId)?.fate));
  (expecting || same.find((d) => !d.webhook) || same[0] || remember(new Delivery(a.deliveryId))).addEvent(a);
}

function onNote(n) {
  list.prepend(element("li", "note", time(n.time), " " + n.text));
  show();
}

function onClear() {
  deliveries = [];
  list.replaceChildren();
  show();
}

// The dialog about a conflict. It shows both versions before one is chosen. The Escape key
// decides nothing.
const dialog = byId("conflict");
const versions = byId("conflict-versions");

function compare(button, name) {
  dialog.dataset.name = name;
  versions.textContent = "Loading …";
  byId("conflict-sure").checked = false;
  byId("conflict-parked").disabled = true;
  dialog.showModal();
  act(button, { do: "compare", name });
}

byId("conflict-sure").addEventListener("change", (event) => {
  byId("conflict-parked").disabled = !event.target.checked;
});
for (const button of dialog.querySelectorAll("button[data-version]")) {
  button.addEventListener("click", async () => {
    await act(button, { do: "replay", name: dialog.dataset.name, version: button.dataset.version });
    dialog.close();
  });
}

function onCommand(c) {
  readState();
  const { do: done, name, service } = c.action;
  if (done === "compare") {
    // Without the proof.
    if (name === dialog.dataset.name) versions.textContent = c.output.slice(c.output.indexOf("\nevent ") + 1).trim();
    return;
  }
  if (name) {
    for (const d of deliveries.filter((d) => [d.webhook?.parked, d.webhook?.captured].includes(name))) d.setResult(c);
    return;
  }
  const selector = service ? "[data-service=" + service + "]" : "[data-do=" + done + "]";
  const output = byId("actions").querySelector("button" + selector)?.closest("fieldset").querySelector("output");
  const words = c.command.split(" ").flatMap((word) => [element("span", "", word), " "]); // no line ends within one
  output?.replaceChildren(element("p", "", element("span", "id", ...words),
    element("strong", c.right ? "good" : "bad", c.right ? "done" : "failed, or not as expected")),
    ...(c.output ? [region("Result", c.output)] : []));
}

// readServices shows which services fail, also if somebody else has stopped or started them.
async function readServices() {
  let faults;
  try {
    faults = await (await fetch("/services")).json();
  } catch {
    return; // it is read again
  }
  for (const button of document.querySelectorAll("button[data-service]")) {
    const fault = faults[button.dataset.service];
    const state = byId("state-" + button.dataset.service);
    button.dataset.do = fault ? "start" : "stop";
    button.className = fault ? "" : "danger";
    button.textContent = (fault ? "Start " : "Stop ") + button.dataset.name;
    state.textContent = !fault ? "running" : fault === "down" ? "stopped" : "fails: " + fault;
    state.className = fault ? "bad" : "good";
  }
}

// ask asks before a dangerous button does what it says.
function ask(button, action) {
  byId("ask-heading").textContent = button.textContent.replace("Stop ", "Stop the ") + "?";
  byId("ask-text").textContent = button.dataset.ask;
  byId("ask-yes").textContent = button.textContent;
  byId("ask-yes").onclick = () => act(button, action);
  byId("ask").showModal();
}

// act asks the server for an action. The result comes with the stream.
async function act(button, action) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true"); // it keeps the focus
  try {
    const answer = await fetch("/do", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(action),
    });
    if (!answer.ok) onCommand({ action, command: action.do, right: false, output: await answer.text() });
  } catch (problem) {
    onCommand({ action, command: action.do, right: false, output: "the console does not answer: " + problem.message });
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

for (const button of document.querySelectorAll("#actions button")) {
  button.addEventListener("click", () => {
    const action = { do: button.dataset.do };
    if (["send", "repeat", "conflict"].includes(action.do)) {
      if (!byId("events").reportValidity()) return;
      Object.assign(action, { events: Number(byId("events").value), amount: byId("amount").value.trim(),
        currency: byId("currency").value.trim() });
    }
    if (action.do === "forge") action.flaw = byId("flaw").value;
    if (button.dataset.service) action.service = button.dataset.service;
    (action.do === "stop" ? ask : act)(button, action);
  });
}
byId("clear").addEventListener("click", (event) => act(event.target, { do: "clear" }));

// The state: these checks, and others that need attention.
const checks = ["token", "pending", "parked", "alarms"];
const signs = { "ok": ["good", "✓"], "attention": ["bad", "!"], "not measured": ["wait", "?"] };

async function readState() {
  readServices();
  let all;
  try {
    const text = await (await fetch("/state")).text();
    if (!text.startsWith("{")) throw new Error(text);
    const place = (check) => (checks.indexOf(check.name) + 1) || checks.length + 1;
    all = JSON.parse(text).checks.filter((check) => checks.includes(check.name) || check.state === "attention")
      .sort((x, y) => place(x) - place(y));
  } catch (problem) {
    all = [{ name: "state", state: "not measured", text: problem.message }];
  }
  byId("state").replaceChildren(...all.map((check) => {
    const [color, text] = signs[check.state];
    const sign = element("span", "sign " + color, text);
    sign.setAttribute("role", "img");
    sign.setAttribute("aria-label", check.state);
    // Without the command that says more, and the time of which the text has the distance.
    return element("li", "", sign,
      element("span", "", element("strong", "", check.name), " " + check.text.split(/: payhook |, until /)[0]));
  }));
}

setInterval(() => { if (!document.hidden) readState(); }, 10_000);

// On a small screen, the actions would be above everything else.
if (matchMedia("(max-width: 60rem)").matches) {
  for (const section of document.querySelectorAll("#actions details:not(:first-of-type)")) section.open = false;
}

// The stream. The browser connects again by itself, and then gets everything again.
const connection = byId("connection");
const stream = new EventSource("/stream");
const handlers = { webhook: onWebhook, event: onEvent, note: onNote, command: onCommand, clear: onClear };
for (const [kind, handle] of Object.entries(handlers)) {
  stream.addEventListener(kind, (event) => handle(JSON.parse(event.data)));
}
stream.addEventListener("open", () => {
  onClear();
  readState();
  connection.textContent = "Connected";
  connection.className = "good";
});
stream.addEventListener("error", () => {
  connection.textContent = "Connection lost; trying again";
  connection.className = "bad";
});
