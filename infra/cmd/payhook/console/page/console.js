// The page shows what the stream says, and asks for what the buttons do. It writes what
// comes from outside as text only.
"use strict";

const connection = document.getElementById("connection");
const list = document.getElementById("deliveries");
const maxDeliveries = 300; // on the page
const maxEvents = 25; // of one delivery

// element makes an element with text.
function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// What became of an event: the text by the name in the log of the webhook function. The
// rest of the names are of events that are not published.
const { fates, stopped } = JSON.parse(document.querySelector("meta[name=data]").content);
const kinds = { published: "good", pending: "wait", duplicate: "wait" };

// Delivery is one entry of the timeline: a webhook, or events whose webhook is not known.
class Delivery {
  constructor(deliveryId) {
    this.deliveryId = deliveryId;
    this.webhook = null;
    this.events = new Map(); // by id: {fate, arrived, late, name}
    this.node = element("li");
    list.prepend(this.node);
    while (list.children.length > maxDeliveries) list.lastChild.remove();
    document.getElementById("empty").hidden = true;
  }

  setWebhook(w) {
    this.webhook = w;
    for (const [fate, ids] of Object.entries(w.ids || {})) {
      for (const id of ids) {
        const e = this.events.get(id) || {};
        // An event that arrived is published, whatever the log said before.
        if (!e.arrived) e.fate = fate;
        this.events.set(id, e);
      }
    }
    this.draw();
  }

  addEvent(a) {
    const e = this.events.get(a.eventId) || {};
    e.late = e.fate === "pending" || e.late;
    Object.assign(e, { fate: "published", arrived: true, name: a.name });
    this.events.set(a.eventId, e);
    this.draw();
  }

  state() {
    const w = this.webhook;
    if (!w) return "good";
    const open = [...this.events.values()].some((e) => e.fate === "pending");
    if (w.status >= 400 || (w.parked && !this.decision)) return "bad";
    return open ? "wait" : "good";
  }

  draw() {
    const w = this.webhook;
    const head = element("h3", undefined, "head");
    if (w) {
      const ms = Object.values(w.ms || {}).reduce((sum, step) => sum + step, 0);
      head.append(time(w.time), element("span", String(w.status), "status " + (w.status < 400 ? "good" : "bad")),
        element("span", w.outcome), element("span", ms < 1 ? "less than 1 ms" : Math.round(ms) + " ms"));
      if (w.deliveryId) {
        head.append(element("span", w.events === 1 ? "1 event" : w.events + " events"),
          element("span", "delivery " + w.deliveryId, "id"));
      }
    } else {
      head.append(element("span", "events of a delivery whose webhook is not known"),
        element("span", "delivery " + this.deliveryId, "id"));
    }
    const parts = [head];
    if (w && w.cause) parts.push(element("div", "cause: " + w.cause));
    if (w && w.parked) parts.push(element("div", "parked as " + w.parked, "id"));
    if (this.events.size > 0) parts.push(this.drawEvents());
    if (this.decision) parts.push(element("div", this.decision, "good"));
    else if (w && w.parked) parts.push(this.replay(w.parked));
    const focused = this.node.contains(document.activeElement) && document.activeElement.dataset.replay;
    this.node.className = this.state();
    this.node.replaceChildren(...parts);
    if (focused) this.node.querySelector("button[data-replay]")?.focus();
  }

  drawEvents() {
    const events = element("ol", undefined, "events");
    let left = this.webhook ? this.webhook.idsLeftOut || 0 : 0;
    let shown = 0;
    for (const [id, e] of this.events) {
      if (++shown > maxEvents) {
        left++;
        continue;
      }
      const text = Object.hasOwn(fates, e.fate) ? fates[e.fate] : e.fate;
      const kind = Object.hasOwn(kinds, e.fate) ? kinds[e.fate] : "bad";
      const item = element("li");
      item.append(element("span", id, "id"), element("span", text + (e.late ? " later, by redrive" : ""), kind));
      if (e.name) item.append(element("span", e.name));
      events.append(item);
    }
    if (left > 0) events.append(element("li", "and " + left + " more"));
    return events;
  }

  replay(name) {
    const row = element("div", undefined, "replay");
    const conflict = name.includes("-conflict-");
    const button = element("button", conflict ? "Compare and decide …" : "Replay");
    button.type = "button";
    button.dataset.replay = name;
    button.addEventListener("click", () => conflict ? compare(button, name) : act(button, { do: "replay", name }));
    row.append(button);
    return row;
  }
}

function time(stamp) {
  const e = element("time", new Date(stamp).toLocaleTimeString([], { hour12: false }));
  e.dateTime = stamp;
  e.title = stamp;
  return e;
}

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
  const item = element("li", undefined, "note");
  item.append(time(n.time), element("span", " " + n.text));
  list.prepend(item);
}

// The dialog about a conflict. It shows both versions before one is chosen. Its first button,
// and the Escape key, decide nothing.
const dialog = document.getElementById("conflict");
const sure = document.getElementById("conflict-sure");
const publishParked = document.getElementById("conflict-parked");

function compare(button, name) {
  dialog.dataset.name = name;
  document.getElementById("conflict-versions").textContent = "Loading …";
  sure.checked = false;
  publishParked.disabled = true;
  dialog.showModal();
  act(button, { do: "compare", name });
}

sure.addEventListener("change", () => { publishParked.disabled = !sure.checked; });
for (const button of dialog.querySelectorAll("button[data-version]")) {
  button.addEventListener("click", async () => {
    await act(button, { do: "replay", name: dialog.dataset.name, version: button.dataset.version });
    dialog.close();
  });
}

function onCommand(c) {
  if (c.stopped) onServices(c.stopped);
  const { do: done, name, version } = c.action;
  if (done === "compare") {
    const versions = c.output.slice(Math.max(c.output.indexOf("\nevent "), 0)).trim(); // without the proof
    if (name === dialog.dataset.name) document.getElementById("conflict-versions").textContent = versions;
    return;
  }
  const line = element("p");
  line.append(element("span", c.command, "id"),
    element("strong", c.right ? "done" : "failed, or not as expected", c.right ? "good" : "bad"));
  const parts = [line];
  if (c.output) parts.push(element("pre", c.output));
  document.getElementById("last").replaceChildren(...parts);
  if (done !== "replay" || !c.right) return;
  for (const d of deliveries.filter((other) => other.webhook?.parked === name)) {
    d.decision = version === "first" ? "settled: the first version stays" : "replayed";
    d.draw();
  }
}

function onServices(stopped) {
  for (const button of document.querySelectorAll("button[data-service]")) {
    const service = button.dataset.service;
    const state = document.getElementById("state-" + service);
    button.dataset.do = stopped[service] ? "start" : "stop";
    button.textContent = (stopped[service] ? "Start " : "Stop ") + button.dataset.name;
    state.textContent = stopped[service] ? "stopped" : "running";
    state.className = stopped[service] ? "bad" : "";
  }
}

onServices(stopped);

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
    const action = { do: button.dataset.do || "stop" };
    const from = button.dataset.from;
    if (button.dataset.events) action.events = Number(button.dataset.events);
    if (from === "events") action.events = Number(document.getElementById("events").value);
    if (from === "flaw") action.flaw = document.getElementById("flaw").value;
    if (button.dataset.service) action.service = button.dataset.service;
    act(button, action);
  });
}

// The stream. The browser connects again by itself, and then gets everything again.
const stream = new EventSource("/stream");
const handlers = { webhook: onWebhook, event: onEvent, note: onNote, command: onCommand };
for (const [kind, handle] of Object.entries(handlers)) {
  stream.addEventListener(kind, (event) => handle(JSON.parse(event.data)));
}
stream.addEventListener("open", () => {
  deliveries = [];
  list.replaceChildren();
  connection.textContent = "Connected";
  connection.className = "up";
});
stream.addEventListener("error", () => {
  connection.textContent = "Connection lost; trying again";
  connection.className = "lost";
});
