
// Filters apply when something is chosen; the button is for texts, and for browsers without scripts.
for (const form of all("form[data-apply]")) {
  form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
  // A date that is typed changes with each digit: what is complete for a moment counts.
  let typed = null;
  form.addEventListener("input", (event) => {
    if (!event.target.matches("[type=date], [type=datetime-local]")) return;
    clearTimeout(typed);
    const isWhole = event.target.value === "" ? !event.target.validity.badInput : event.target.value >= "1970";
    if (isWhole) typed = setTimeout(() => form.requestSubmit(), 1200);
  });
  // A suggestion that was chosen, and not a text that is being written.
  form.addEventListener("input", (event) => {
    const isChosen = !("inputType" in event) || event.inputType === "insertReplacementText";
    if (event.target.matches("input[list]") && isChosen) form.requestSubmit();
  });
}

// Whether the server answers. What is shown stays, and says since when it is old.
let answeredAt = new Date();
function showReachable(isReachable) {
  let banner = document.querySelector("[data-unreachable]");
  if (isReachable) {
    answeredAt = new Date();
    return banner?.remove();
  }
  if (!banner) {
    banner = document.createElement("p");
    banner.className = "unreachable";
    banner.dataset.unreachable = "";
    banner.setAttribute("role", "alert");
    document.querySelector("main").prepend(banner);
    banner.textContent = `The server cannot be reached. This page shows what was known at ${answeredAt.toLocaleTimeString()}; it tries again by itself.`;
  }
}

// A page that keeps itself up to date, unless somebody is in the middle of it.
for (const part of all("[data-refresh]")) {
  const often = 15000;
  let wait = often;
  const look = async () => {
    const isOpen = part.querySelector("details[open]") !== null;
    if (!isBusy(part) && !isOpen && !part.contains(document.activeElement)) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" } });
        showReachable(true);
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-refresh]");
        const isFree = !isBusy(part) && part.querySelector("details[open]") === null && !part.contains(document.activeElement);
        if (answer.ok && fresh && isFree) {
          part.replaceChildren(...fresh.childNodes);
          if (isElsewhere) showLocalTimes(part);
        }
        wait = answer.ok ? often : Math.min(wait * 2, 60000);
      } catch {
        showReachable(false);
        wait = Math.min(wait * 2, 60000);
      }
    }
    setTimeout(look, wait);
  };
  setTimeout(look, wait);
}

// What is exported has to be selected; without a script, the server says so.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.selection") || event.target.querySelector("[name=trace]:checked")) return;
  event.preventDefault();
  event.target.querySelector("[data-unselected]").textContent = "Select the traces to export first.";
});

// The badge of alerts that fire, on pages that stay open.
const alertsLink = document.querySelector(".bar nav a[href^='/alerts']");
async function showFiring() {
  if (document.hidden) return;
  const count = await loaded("/alerts/firing");
  if (!/^\d+$/.test(count ?? "")) return;
  alertsLink.querySelector("[data-firing]")?.remove();
  if (count === "0") return;
  alertsLink.append(fragment('<span class="nav-badge" data-firing><span class="visually-hidden"> firing</span></span>'));
  alertsLink.querySelector("[data-firing]").prepend(count);
}
if (alertsLink) {
  setInterval(showFiring, 30000);
  document.addEventListener("visibilitychange", showFiring);
}

// Times: in the time zone of whoever reads, with UTC in the tooltip.
const UTC_TIME = /^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?$/;
function showLocalTimes(root) {
  for (const place of all(".when, time, .facts dd bdi, .amounts dd bdi, .said .quiet", root)) {
    if (!UTC_TIME.test(place.textContent.trim())) continue;
    const text = place.textContent.trim().replace(" UTC", "");
    const time = new Date(`${text.replace(" ", "T")}Z`);
    if (Number.isNaN(time.getTime())) continue;
    const two = (number) => String(number).padStart(2, "0");
    place.textContent = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${two(time.getHours())}:${two(time.getMinutes())}${text.length > 16 ? `:${two(time.getSeconds())}` : ""}`;
    place.title = `${text} UTC`;
    place.dataset.utc = text;
  }
}
const isElsewhere = new Date().getTimezoneOffset() !== 0;
if (isElsewhere) {
  showLocalTimes(document);
  for (const list of all("[data-live]")) new MutationObserver(() => showLocalTimes(list)).observe(list, { childList: true });
  for (const place of all("[data-times]")) place.textContent = "Times are those of your time zone, with UTC in the tooltip; charts and filters are in UTC.";
}
