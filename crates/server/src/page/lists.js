
// Filters apply when something is chosen; the button is for texts, and for browsers without scripts.
for (const form of all("form[data-apply]")) {
  form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
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

// Times: in the time zone of whoever reads, with UTC in the tooltip.
const UTC_TIME = /^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?$/;
function showLocalTimes(root) {
  for (const place of all(".when, time, .facts dd bdi, .amounts dd bdi, .said .quiet", root)) {
    const text = place.textContent.trim();
    if (!UTC_TIME.test(text)) continue;
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
