
// A label, or the name and note of a failure group, that cannot be stored leaves the page, and what was typed, as it is.
// Without this script the server sends the form again.
for (const form of all("form.labelling, form.group-form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if ("sending" in form.dataset) return;
    form.dataset.sending = "yes";
    const said = await sendForm(form, new FormData(form, event.submitter));
    delete form.dataset.sending;
    if (said.next) return goTo(new URL(said.next, location));
    let problem = form.querySelector(".label-problem");
    if (!problem) {
      problem = document.createElement("p");
      problem.className = "problem label-problem";
      problem.setAttribute("role", "alert");
      form.append(problem);
    }
    problem.textContent = `${form.matches(".labelling") ? "The label was not stored." : "Not saved."} ${said.error}`;
  });
}

// A page that answers a form has the address of the form. Loaded again, it would send the form again.
for (const page of all("[data-address]")) history.replaceState(null, "", page.dataset.address);

// An address that differs in its fragment only would not be loaded again.
function goTo(to) {
  if (to.pathname + to.search !== location.pathname + location.search) return location.assign(to);
  history.replaceState(null, "", to);
  location.reload();
}

async function sendForm(form, fields) {
  try {
    const answer = await fetch(form.action, { method: "POST", headers: { accept: "application/json" }, body: new URLSearchParams(fields) });
    if (answer.status === 401) return { error: "You are signed out. Sign in in another tab, then try again here." };
    const said = await answer.json();
    return answer.ok && said.next ? said : { error: said.error ?? `The server answered ${answer.status}.` };
  } catch {
    return { error: "The server cannot be reached. Try again when it can." };
  }
}

KEYS.z = ["take back the last label", () => document.querySelector("[data-undo]").click(), all("[data-undo]").length > 0];

// A trial that runs: its progress, and the whole page once it has ended.
for (const box of all("[data-progress]")) {
  const look = async () => {
    const markup = document.hidden ? null : await loaded(box.dataset.progress);
    if (markup !== null) {
      box.replaceChildren(fragment(markup));
      if (!box.querySelector("[data-running]")) return location.reload();
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 1000);
}
