// What pages can do beyond what they show: lists that keep up to date, long texts when they are wanted, and keys.
// Everything can be read and done without it. Texts of traces are put in as text; markup comes escaped from the server.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Lists that are kept up to date while traces arrive.
for (const list of all("[data-live]")) {
  const news = document.querySelector("[data-news]");
  // With a condition whole traces are read for it.
  const often = "grows" in list.dataset ? 10000 : 2000;
  let tag = null, wait = often;
  const look = async () => {
    if (!isBusy(list)) {
      try {
        const answer = await fetch(list.dataset.live, tag ? { headers: { "if-none-match": tag } } : {});
        if (answer.status === 200) {
          const markup = await answer.text();
          // Somebody may have begun to read meanwhile: then it is asked for again.
          if (!isBusy(list)) {
            renew(list, markup, news);
            tag = answer.headers.get("etag");
          }
        }
        wait = answer.ok || answer.status === 304 ? often : Math.min(wait * 2, 60000);
        showReachable(true);
      } catch {
        wait = Math.min(wait * 2, 60000);
        showReachable(false);
      }
    }
    setTimeout(look, wait);
  };
  setTimeout(look, wait);
}

// Nobody looks, or somebody is in the middle of it.
function isBusy(list) {
  const isReading = list.contains(document.activeElement) && document.activeElement.matches("a, input");
  const selection = getSelection();
  // Text that is selected elsewhere stays selected.
  const isSelecting = !selection.isCollapsed && selection.rangeCount > 0 && selection.getRangeAt(0).intersectsNode(list);
  return document.hidden || isReading || list.querySelector("input:checked") !== null || isSelecting;
}

function fragment(markup) {
  const made = document.createElement("template");
  made.innerHTML = markup;
  return made.content;
}

function renew(list, markup, news) {
  const known = new Set(all("tr[data-id]", list).map((row) => row.dataset.id));
  const fresh = fragment(markup);
  let added = all("tr[data-id]", fresh).filter((row) => !known.has(row.dataset.id));
  // Rows can only be put among others that have the same columns.
  const columns = (root) => all("thead th", root).map((head) => head.textContent).join("\n");
  const grows = "grows" in list.dataset && known.size > 0 && (added.length === 0 || columns(list) === columns(fresh));
  // What is from the future is on top whatever arrives.
  const ahead = BigInt(Date.now() + 300000) * 1000000n;
  const began = (row) => BigInt(row.dataset.at);
  const past = () => all("tr[data-id]", list).filter((row) => began(row) < ahead);
  if (grows) {
    // How many traces a look gets to differs: new is only what began after all that was there at first. What one look did
    // not get to comes with a later one.
    list.newestAtFirst ??= past().map(began).reduce((a, b) => (a > b ? a : b), 0n);
    added = added.filter((row) => began(row) > list.newestAtFirst);
  }
  for (const row of added) row.classList.add("fresh");
  if (news) news.textContent = "";
  if (grows) {
    for (const row of all("tr[data-id]", fresh)) {
      const old = all("tr[data-id]", list).find((one) => one.dataset.id === row.dataset.id);
      if (old && columns(list) === columns(fresh)) old.replaceWith(row);
    }
    for (const row of added) {
      const older = past().find((one) => began(one) < began(row));
      if (older) older.before(row);
      else list.querySelector("tbody").append(row);
    }
    return tell(news, added.length);
  }
  const [region, hadFocus] = [list.querySelector("[role=region]"), list.contains(document.activeElement)];
  const aside = region?.scrollLeft ?? 0;
  list.replaceChildren(fresh);
  const now = list.querySelector("[role=region]");
  if (now) now.scrollLeft = aside;
  if (hadFocus) now?.focus({ preventScroll: true });
  tell(news, added.length);
}

// Emptied first, and filled a moment later: the same words twice are said twice.
function tell(news, count) {
  if (count > 0 && news) setTimeout(() => { news.textContent = count === 1 ? "1 new trace" : `${count} new traces`; }, 50);
}

// A link to a step, or to a part of one in which something was found: it may be on another page of the trajectory, and
// what was found may be folded.
function arrive() {
  const [, step, part] = /^#step-(\d+)(-[a-z]+)?$/.exec(location.hash) ?? [];
  if (!step || !document.querySelector("[data-step]")) return;
  const [there, place] = [new URL(location), document.querySelector(location.hash)];
  const sought = there.searchParams.get("q")?.trim();
  if (!place && there.searchParams.get("step") !== step) {
    there.searchParams.set("step", step);
    location.replace(there);
    return;
  }
  if (place) unfold(place);
  if (place && part && sought) {
    const text = place.querySelector("pre, .text")?.firstChild;
    const found = text?.data.matchAll(pattern(sought)).next().value;
    if (found) mark(text, found.index, found[0].length);
    else place.querySelectorAll("a[data-whole]").forEach((link) => openWhole(link, sought));
  }
}

addEventListener("hashchange", arrive);

// Shows something that is folded, and the step of a link.
function unfold(place) {
  const step = place.closest("[data-step]");
  if (step?.querySelector(".step-fold")) step.querySelector(".step-fold").open = true;
  for (let one = place.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
}

// All steps of the page; without a script, the link makes the server do it.
for (const link of all("a[data-unfold]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    for (const step of all(".step-fold")) step.open = true;
    link.remove();
  });
}

// Parts that are loaded when they are opened.
for (const details of all("details[data-src]")) {
  details.addEventListener("toggle", async () => {
    const into = details.querySelector("[data-into]");
    if (!details.open || into.dataset.done) return;
    into.dataset.done = "yes";
    const markup = await loaded(details.dataset.src);
    if (markup !== null) return into.replaceChildren(fragment(markup));
    // The next time it is opened it is tried again.
    delete into.dataset.done;
    into.textContent = "This could not be loaded.";
  });
}

// What an address gives; null where it gives nothing, as when nobody is signed in any more.
async function loaded(address) {
  try {
    const answer = await fetch(address);
    return answer.ok && !answer.redirected ? await answer.text() : null;
  } catch {
    return null;
  }
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  const link = event.target.closest("a[data-whole], a[data-span]");
  if (!link) return;
  event.preventDefault();
  if (link.dataset.span) openSpan(link);
  else openWhole(link);
});

// The attributes of a span, in a row below its own.
async function openSpan(link) {
  const row = link.closest("tr");
  if (row.nextElementSibling?.classList.contains("span-row")) return row.nextElementSibling.remove();
  const markup = await loaded(link.dataset.span);
  if (markup === null) return location.assign(link.href);
  // It was pressed twice.
  if (row.nextElementSibling?.classList.contains("span-row")) return;
  const cell = document.createElement("td");
  cell.colSpan = row.cells.length;
  cell.append(fragment(markup));
  const added = document.createElement("tr");
  added.className = "span-row";
  added.append(cell);
  row.after(added);
}

// A long text: all of it, in pieces that are laid out when they are seen, and with a way to search in it.
const PIECE = 20000;
const MOST_FOUND = 10000;

async function openWhole(link, sought = "") {
  const text = await loaded(link.href);
  if (text === null) return location.assign(link.href);
  const fold = link.closest(".fold");
  // It was pressed twice.
  if (!fold) return;
  const box = document.createElement("div");
  box.className = "whole-text";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "The whole text");
  const pieces = [];
  for (let at = 0; at < text.length;) {
    let end = at + PIECE;
    const line = text.indexOf("\n", end);
    // At the end of a line, if one is near.
    end = line >= 0 && line < end + PIECE ? line + 1 : end;
    const piece = document.createElement("pre");
    piece.textContent = text.slice(at, end);
    pieces.push({ at, node: piece.firstChild });
    box.append(piece);
    at = end;
  }
  const beginning = [...fold.childNodes];
  const bar = finder(text, pieces);
  const less = document.createElement("button");
  less.type = "button";
  less.textContent = "Show less";
  // What is folded again is neither laid out nor held.
  less.addEventListener("click", () => {
    CSS.highlights?.delete("found");
    fold.replaceChildren(...beginning);
    link.focus({ preventScroll: true });
    fold.scrollIntoView({ block: "nearest" });
  });
  bar.append(less);
  fold.replaceChildren(bar, box);
  const input = fold.querySelector("input");
  // Who comes by a link goes on with keys; who opens it wants to search.
  if (!sought) return input.focus({ preventScroll: true });
  input.value = sought;
  input.dispatchEvent(new Event("input"));
}

// Whatever case it is written in.
const pattern = (wanted) => new RegExp(wanted.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"), "giu");

// Shows where something was found.
function mark(node, from, length) {
  const range = document.createRange();
  range.setStart(node, from);
  range.setEnd(node, Math.min(from + length, node.length));
  CSS.highlights?.set("found", new Highlight(range));
  const box = node.parentElement.closest(".whole-text, pre, .text");
  node.parentElement.scrollIntoView({ block: "nearest" });
  box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

function finder(text, pieces) {
  const bar = fragment('<form class="find" role="search"><label>Find <input type="search"></label><span role="status"></span></form>').firstChild;
  const [input, status] = [bar.querySelector("input"), bar.querySelector("span")];
  // Places in the text as it is: a letter may be longer in lower case.
  let found = [], at = -1;
  const search = () => {
    [found, at] = [[], -1];
    if (!input.value) return;
    for (const one of text.matchAll(pattern(input.value))) {
      found.push([one.index, one[0].length]);
      if (found.length === MOST_FOUND) break;
    }
  };
  const next = () => {
    CSS.highlights?.delete("found");
    if (!input.value) return (status.textContent = "");
    if (found.length === 0) return (status.textContent = "not found");
    at = (at + 1) % found.length;
    status.textContent = `${at + 1} of ${found.length}${found.length === MOST_FOUND ? " or more" : ""}`;
    const [place, length] = found[at];
    const piece = pieces.findLast((piece) => piece.at <= place);
    mark(piece.node, place - piece.at, length);
  };
  bar.addEventListener("submit", (event) => { event.preventDefault(); next(); });
  input.addEventListener("input", () => { search(); next(); });
  return bar;
}

// An address that is shared says what was chosen, not what was left empty.
for (const form of all("form:not([method=post])")) {
  form.addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
  });
}

// Keys. None of them works while somebody writes.
const steps = all("[data-step]");
const failing = all("[data-failing]");

// The step that keys went to last: the address alone does not make it the browser's target.
let visited = null;

function here() {
  return document.activeElement.closest?.("[data-step]") ?? visited ?? document.querySelector(":target")?.closest("[data-step]");
}

function go(list, way) {
  const at = steps.indexOf(here());
  const others = list.filter((one) => (steps.indexOf(one) - at) * way > 0);
  const to = way > 0 ? others[0] : others.at(-1);
  if (!to) return beyond(list === failing, at, way);
  visited = to;
  history.replaceState(null, "", `#${to.id}`);
  if (list === failing) unfold(to);
  to.focus({ preventScroll: true });
  to.scrollIntoView({ block: "start" });
}

// The steps go on, on another page.
function beyond(isFailing, at, way) {
  const number = (hash) => Number(/^#step-([0-9]+)$/.exec(hash)?.[1] ?? NaN);
  const now = at >= 0 ? number(`#${steps[at].id}`) : way > 0 ? 0 : Infinity;
  // Chips are in groups: the nearest step is meant, whatever group it is in.
  const chips = isFailing ? all(".flag-steps a, #whole .mentions a").filter((chip) => (number(chip.hash) - now) * way > 0) : [];
  chips.sort((a, b) => number(a.hash) - number(b.hash));
  const link = (way > 0 ? chips[0] : chips.at(-1)) ?? (chips.length || (isFailing && !document.querySelector("[data-more-failing]")) ? null : document.querySelector(`.pager a[rel=${way > 0 ? "next" : "prev"}]`));
  if (!link) return;
  const to = new URL(link.href);
  // The page before begins far above the step that is meant.
  if (way < 0 && !isFailing && Number.isFinite(now)) to.hash = `#step-${now - 1}`;
  location.assign(to);
}

const LATER_FORMS = ".other-verdicts[data-src]:not([open])";

// A part of the form of the verdict that is looked at, else of the first in the step that is. What this person has labelled
// already is done. A verdict that is folded is shown first.
function ofVerdict(selector) {
  const place = document.activeElement.closest?.(".verdict-line, [data-review]") ?? document.querySelector("[data-review]");
  const isShown = (one) => one.checkVisibility();
  const found = [...place?.querySelectorAll(selector) ?? []].find(isShown) ?? all(`form:not([data-labelled]) ${selector}`, here() ?? document.createElement("i")).find(isShown);
  if (found) return [found, true];
  const folded = here()?.querySelector(`form:not([data-labelled]) ${selector}`);
  // The forms of a long trace come when their part is opened: the key works once they are there.
  const toOpen = folded ?? here()?.querySelector(LATER_FORMS);
  if (toOpen) unfold(toOpen);
  return [folded ?? null, false];
}

function label(key) {
  const [found, wasOpen] = ofVerdict(`[data-key="${key}"]`);
  // Nobody labels what he has not seen.
  if (!found || !wasOpen) return;
  if ("choose" in found.dataset) found.focus();
  else give(found);
}

// A label that somebody chose, and that waits for the name.
let waiting = null;

function give(button) {
  wait(button.form.checkValidity() ? null : button);
  button.form.requestSubmit(button);
}

function wait(button) {
  waiting?.classList.remove("waits");
  waiting = button;
  waiting?.classList.add("waits");
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("form.labelling button[name=label]");
  if (button) wait(button.form.checkValidity() ? null : button);
});

// Enter in a field gives the label that waits, or what is written as one, and else leaves the field: never a label that
// nobody chose.
document.addEventListener("keydown", (event) => {
  const form = event.target.closest?.("form.labelling");
  if (!form) return;
  if (event.key === "Escape") wait(null);
  if (event.key !== "Enter" || event.isComposing || !event.target.matches("input")) return;
  event.preventDefault();
  const own = event.target.name === "other" && event.target.value.trim() ? form.querySelector("[data-other]") : null;
  const chosen = own ?? (waiting?.form === form ? waiting : null);
  if (chosen) give(chosen);
  else event.target.blur();
});

const hasForm = (selector) => document.querySelector(`${selector}, ${LATER_FORMS}`) !== null;

const KEYS = {
  j: ["next step", () => go(steps, 1), steps.length > 0],
  k: ["previous step", () => go(steps, -1), steps.length > 0],
  y: ["agree with the verdict", () => label("y"), hasForm("[data-key=y]")],
  u: ["leave it undecided", () => label("u"), hasForm("[data-key=u]")],
  x: ["disagree with the verdict", () => label("x"), hasForm("[data-key=x]")],
  n: ["next flagged step", () => go(failing, 1), steps.length > 0],
  p: ["previous flagged step", () => go(failing, -1), steps.length > 0],
  s: ["skip it", () => document.querySelector("[data-skip]").click(), all("[data-skip]").length > 0],
  e: ["write a note", () => ofVerdict("[data-note]")[0]?.focus(), hasForm("[data-note]")],
  "/": ["search", () => document.querySelector("[type=search]").focus(), all("[type=search]").length > 0],
  "?": ["show these shortcuts", help, true],
};

for (let number = 1; number <= 9; number += 1) {
  const key = String(number);
  KEYS[key] = ["give the label with this number", () => label(key), all(`[data-key="${key}"]`).length > 0];
}

// Whoever speaks to the browser may not want single keys to mean something.
const OFF = "gradus-keys-off";
const keysAreOff = () => { try { return localStorage.getItem(OFF) !== null; } catch { return false; } };

document.addEventListener("keydown", (event) => {
  if (keysAreOff()) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const key = KEYS[event.key];
  if (!key?.[2] || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  key[1]();
});

for (const button of all("[data-help]")) {
  button.hidden = false;
  button.addEventListener("click", help);
}

function help() {
  const dialog = fragment('<dialog aria-labelledby="keys-title"><h2 id="keys-title">Keyboard shortcuts</h2><dl></dl><p><label class="switch"><input type="checkbox"> Use shortcuts</label></p><form method="dialog"><button autofocus>Close</button></form></dialog>').firstChild;
  const box = dialog.querySelector("[type=checkbox]");
  box.checked = !keysAreOff();
  box.addEventListener("change", () => { try { box.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1"); } catch { box.checked = true; } });
  const list = dialog.querySelector("dl");
  for (const [key, [about, , works]] of Object.entries(KEYS)) {
    if (!works) continue;
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    const shown = document.createElement("kbd");
    shown.textContent = key;
    term.append(shown);
    text.textContent = about;
    list.append(term, text);
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// The outline marks the first step in sight, and scrolls along with the page.
function followScroll() {
  const links = new Map(all(".outline a[href^='#step-']").map((link) => [link.hash.slice(1), link]));
  const side = document.querySelector(".trace-side");
  const inSight = new Set();
  const steps = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  // A step that was jumped to stands below the pinned request, and the end of the step before it may be in sight.
  const top = steps.length ? parseFloat(getComputedStyle(steps[0]).scrollMarginTop) + 2 : 0;
  let marked = null;
  const observer = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) inSight[isIntersecting ? "add" : "delete"](target.id);
    let link = null;
    for (const [id, one] of links) if (inSight.has(id)) { link = one; break; }
    if (!link || link === marked) return;
    marked?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "location");
    marked = link;
    const [around, at] = [side.getBoundingClientRect(), link.getBoundingClientRect()];
    if (at.top < around.top || at.bottom > around.bottom) side.scrollTop += at.top - around.top - around.height / 2;
  }, { rootMargin: `-${top}px 0px -50% 0px` });
  steps.forEach((step) => observer.observe(step));
}
if (document.querySelector(".trace-side .outline")) followScroll();

arrive();
