// The page shows what GET /state answers. Its buttons make calls that curl can make as well. What comes from outside
// is written as text only.
"use strict";

const byId = (id) => document.getElementById(id);

// element makes an element with content, which is shown as text.
function element(name, className, ...content) {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.append(...content);
  return e;
}

// breakable returns a text that can be broken within names, after a hyphen or a slash, and nowhere else within a word.
const breakable = (text) => text.split(/(?<=[/-])/).flatMap((part) => [part, element("wbr")]);

function details(summary, text) {
  const pre = element("pre", "", text);
  pre.tabIndex = 0; // the keyboard can scroll it
  return element("details", "", element("summary", "", ...[summary].flat()), pre);
}

// action returns a button that posts a body to a path, its line of curl, and what arrives because of it. refresh writes
// the line again.
function action(button, path, body) {
  const code = element("code"), copy = element("button", "copy", "Copy curl"), output = element("output");
  const refresh = () => code.replaceChildren(...breakable(`curl -d '${body().replaceAll("'", "'\\''")}' `),
    element("span", "", location.origin + path));
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "Copied";
  });
  button.type = copy.type = "button";
  button.addEventListener("click", async () => {
    const before = last;
    output.replaceChildren("…");
    try {
      const answer = await fetch(path, { method: "POST", body: body() });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      await poll();
      const arrived = entries.filter((e) => e.number > before).reverse().map(draw);
      output.replaceChildren(...(arrived.length > 0 ? arrived : [element("span", "good", "Done.")]));
    } catch (problem) {
      output.replaceChildren(element("span", "bad", problem.message));
    }
  });
  refresh();
  return { parts: [element("div", "row", button, copy), code, output], refresh };
}

for (const button of document.querySelectorAll("button[data-path]")) {
  const place = element("div", "action");
  button.replaceWith(place);
  const { parts, refresh } = action(button, button.dataset.path, () => button.dataset.body.replace(/("?)\$(\w+)"?/g,
    (_, quote, id) => (quote ? JSON.stringify(byId(id).value) : byId(id).value)));
  place.append(...parts);
  document.addEventListener("input", refresh);
}

// What happened to an event: the text and its color, by the name in the log of the webhook function.
const fates = {
  published: ["published", "good"], duplicate: ["duplicate, not published again", "hint"],
  pending: ["pending, left to redrive", "wait"], conflict: ["parked, in conflict with the first", "wait"],
  unpublishable: ["parked, EventBridge rejects it", "wait"], unrecorded: ["not recorded", "bad"],
};
const maxEvents = 25; // of an entry

function draw(e) {
  const log = e.log || {}, rejected = e.status >= 400 || e.cause;
  const state = e.status >= 500 ? "bad" : rejected || log.parked ? "wait" : "good";
  const node = element("li", "entry " + state);
  node.append(element("h3", "", element("time", "", e.time), element("strong", state, e.status || e.about),
    log.outcome || "", element("span", "hint", e.text || "")));
  if (log.deliveryId) node.append(element("div", "hint", "delivery ", element("span", "id", log.deliveryId)));
  if (e.cause) node.append(element("div", "", "cause: " + e.cause));
  const onBus = new Map((e.events || []).map((event) => [event.id, event]));
  const ids = Object.entries(log.ids || {}).flatMap(([fate, some]) => some.map((id) => [fate, id]));
  for (const id of onBus.keys()) if (!log.ids) ids.push(["published", id]);
  for (const [fate, id] of ids.slice(0, maxEvents)) {
    const [text, color] = fates[fate] || [fate, "wait"], event = fate === "published" && onBus.get(id);
    const summary = [element("span", color, text), " ", event ? event.name + " " : "", element("span", "id", id)];
    node.append(event ? details(summary, event.detail) : element("div", "", ...summary));
  }
  const left = Math.max(0, ids.length - maxEvents) + ((log.ids ? log.idsLeftOut : e.more) || 0);
  if (left > 0) node.append(element("div", "hint", `and ${left} more`));
  for (const name of [log.parked, ...(log.ids?.unpublishable || [])]) if (name) node.append(decide(name));
  if (e.log) node.append(details("line of the log", JSON.stringify(e.log, null, 2)));
  return node;
}

// decide returns buttons for what is parked, as long as it is.
function decide(name) {
  const quoted = JSON.stringify(name);
  const choices = name.startsWith("conflict/") ?
    { "Keep the first content": `{"replay": [${quoted}], "content": "first"}`,
      "Publish this one as well": `{"replay": [${quoted}], "content": "parked"}` } :
    { "Replay": `{"replay": [${quoted}]}`, "Dismiss": `{"dismiss": [${quoted}], "reason": "seen on the page"}` };
  const node = element("div", "decide", ...Object.entries(choices).map(([text, body]) =>
    element("div", "action", ...action(element("button", "", text), "/redrive", () => body).parts)));
  node.dataset.name = name;
  return node;
}

function drawState(s) {
  const items = [["pending", s.pending, s.pending > 0], ["parked", s.parked.length, s.parked.length > 0]];
  const expires = s.tokenExpires && new Date(s.tokenExpires).toLocaleTimeString([], { hour12: false });
  items.unshift(["token", expires ? "until " + expires : "none", !expires]);
  for (const [endpoint, fault] of Object.entries(s.failing)) if (fault) items.push([endpoint, fault, true]);
  if (s.busDown) items.push(["bus", "stopped", true]);
  byId("state").replaceChildren(...items.map(([name, text, attention]) =>
    element("li", "", name + " ", element("strong", attention ? "wait" : "good", text))));
  for (const node of document.querySelectorAll(".decide")) {
    node.classList.toggle("decided", !s.parked.includes(node.dataset.name));
  }
  for (const node of document.querySelectorAll(".simulated")) node.disabled = node.hidden = !s.simulated;
  if (byId("flaw").options.length > 0) return;
  byId("flaw").append(...s.flaws.map((flaw) => new Option(flaw)));
  byId("fault").append(...s.faults.map((fault) => new Option(fault)), new Option("none", ""));
  byId("fault").value = "down";
  document.dispatchEvent(new Event("input"));
}

// Entries are numbered, and each is read once. When the process was started again, the page begins again.
let entries = [], last = 0, running;

async function read() {
  const connection = byId("connection");
  try {
    const answer = await fetch("/state?after=" + last);
    if (!answer.ok) throw new Error(await answer.text());
    const s = await answer.json();
    if (running && s.process !== running) {
      entries = [], last = 0, running = undefined;
      for (const list of document.querySelectorAll("#entries, output")) list.replaceChildren();
      return await read();
    }
    [running, last] = [s.process, s.last];
    entries = [...entries, ...s.entries].slice(-300);
    byId("entries").prepend(...s.entries.map(draw).reverse());
    while (byId("entries").children.length > 300) byId("entries").lastChild.remove();
    byId("empty").hidden = last > 0;
    drawState(s);
    connection.textContent = "Connected";
    connection.className = "good";
  } catch (problem) {
    connection.textContent = "Not connected: " + problem.message;
    connection.className = "bad";
  }
}

let reading = Promise.resolve();
const poll = () => (reading = reading.then(read)); // one after another, so that no entry comes twice
poll();
setInterval(() => { if (!document.hidden) poll(); }, 1000);
