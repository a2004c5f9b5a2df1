"""What a hostile page does, in the browser. Run by cross_site.py, in an environment that has Playwright: JSON on standard
input says which pages attack what, JSON on standard output how each request was answered."""
import json
import sys

from playwright.sync_api import sync_playwright

# Forms send POST only; `fetch` tries each method, of which all but POST need a preflight.
ATTACK = """
async ([base, method, path, body]) => {
  const url = kind => base + path + (path.includes("?") ? "&" : "?") + "kind=" + kind;
  const tries = [];
  const plain = {method, mode: "no-cors", credentials: "include"};
  tries.push(fetch(url("fetch"), {...plain, body, headers: {"content-type": "text/plain"}}));
  tries.push(fetch(url("fetch"), {...plain, body: new Blob([body])}));
  tries.push(fetch(url("fetch"), {...plain, body: new URLSearchParams({a: "b", trajectory: "x", label: "correct"})}));
  const data = new FormData();
  data.append("a", body);
  tries.push(fetch(url("fetch"), {...plain, body: data}));
  tries.push(fetch(url("fetch"), plain));
  tries.push(fetch(url("cors"), {method, body, headers: {"content-type": "application/json"}}));
  if (method === "POST") {
    navigator.sendBeacon(url("beacon"), body);
    navigator.sendBeacon(url("beacon"), new Blob([body]));
    navigator.sendBeacon(url("beacon"), data);
    for (const enctype of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]) {
      const frame = document.createElement("iframe");
      frame.name = "frame" + Math.random();
      document.body.append(frame);
      const form = document.createElement("form");
      Object.assign(form, {method: "post", action: url("form"), enctype, target: frame.name});
      // As text, the name and the value with "=" between them are JSON.
      const field = document.createElement("input");
      field.name = body.slice(0, -1) + (body === "{}" ? "" : ",") + '"x":"';
      field.value = '"}';
      form.append(field);
      document.body.append(form);
      const loaded = new Promise(done => { frame.onload = done; setTimeout(done, 5000); });
      form.submit();
      tries.push(loaded);
    }
  }
  await Promise.allSettled(tries);
  document.body.replaceChildren();
}
"""


def main():
    given = json.load(sys.stdin)
    seen = []

    def answered(response):
        url, _, kind = response.url.rpartition("kind=")
        # A preflight that is refused is no request of its own; what it would have allowed is never sent.
        if kind in ("form", "fetch", "beacon", "cors") and response.request.method != "OPTIONS":
            seen.append({"kind": kind, "method": response.request.method, "url": url[:-1], "status": response.status})

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given["chromium"], args=["--no-sandbox"])
        for address in given["pages"]:
            context = browser.new_context()
            context.on("response", answered)
            page = context.new_page()
            page.goto(address)
            for base, method, path in given["targets"]:
                body = json.dumps(given["bodies"].get(path, {}))
                page.evaluate(ATTACK, [base, method, path, body])
            # Beacons are sent when the browser finds time for it.
            page.wait_for_load_state("networkidle")
            context.close()
        browser.close()
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
