"""Opening pages of a server in the browser, for page_browser.py and page_every.py."""
import json
import pathlib
import sys

import page_world

GIVEN = json.loads(sys.argv[1])
URL, IDS = GIVEN["url"], GIVEN["ids"]
AXE = pathlib.Path(GIVEN["axe"]).read_text()
# Whatever is loaded has to come from the server itself.
FOREIGN = []


def paths():
    trace = f"/traces/{IDS['wrong']}"
    return {"overview": "/", "overview-shop": "/?project=shop&range=24h", "traces": "/traces", "traces-narrowed": "/traces?label=thought_to_tool%3Dincorrect&q=refund", "trace": trace, "trace-long": f"/traces/{IDS['long']}",
            "trace-harm": f"/traces/{IDS['harm']}", "spans": f"{trace}/spans", "span": IDS["span"], "trace-nested": f"/traces/{IDS['nested']}", "trace-found": f"{trace}?q=order", "trace-names": f"/traces/{IDS['names']}", "overview-names": f"/?project={page_world.NAMES}", "traces-names": f"/traces?project={page_world.NAMES}", "overview-graded": "/?project=graded", "review": "/review", "review-graded": "/review?project=graded", "agreement": "/agreement", "runs": "/runs", "run": IDS["run"], "run-trajectory": IDS["run_trajectory"], "compare": IDS["compare"], "rubrics": "/rubrics",
            "rubric": f"/rubrics/thought_to_tool?trajectory={IDS['wrong']}&step=1", "alerts": "/alerts", "server": "/server", "not-here": "/nowhere", "sign-in": "/sign-in"}


def opened(browser, path, **options):
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    page.trouble = []
    page.on("pageerror", lambda error: page.trouble.append(f"{path}: {error}"))
    page.on("console", lambda message: page.trouble.append(f"{path}: {message.text}") if message.type == "error" and "404" not in message.text else None)
    page.on("request", lambda request: FOREIGN.append(request.url) if not request.url.startswith(URL) else None)
    page.goto(URL + path)
    return page


def fine(page):
    assert page.trouble == [], page.trouble


def found_runs(browser):
    """Addresses of what the runs are named by."""
    page = opened(browser, "/runs")
    links = page.locator("th a[href^='/runs/']")
    ids = [links.nth(at).inner_text() for at in range(2)]
    IDS.update(run=f"/runs/{ids[0]}", compare=f"/compare?a={ids[1]}&b={ids[0]}")
    page.goto(URL + IDS["run"])
    IDS["run_trajectory"] = page.locator(".finding a[href*='/trajectories/']").first.get_attribute("href")
    if "wrong" in IDS:
        page.goto(f"{URL}/traces/{IDS['wrong']}/spans")
        IDS["span"] = page.locator("table a").first.get_attribute("href")
    page.context.close()
