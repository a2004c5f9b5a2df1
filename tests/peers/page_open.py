"""Opening pages of a server in the browser, for page_browser.py, page_every.py, page_runs.py, page_sessions.py and page_versions.py; and waiting for what they show.

Nothing here waits for a fixed time: a machine that is busy takes as long as it takes. MAX_WAIT_MS only ends what hangs.
"""
import json
import pathlib
import sys
import time

from playwright.sync_api import expect

import page_world

MAX_WAIT_MS = 180_000
expect.set_options(timeout=MAX_WAIT_MS)

GIVEN = json.loads(sys.argv[1])
URL, IDS = GIVEN["url"], GIVEN["ids"]
AXE = pathlib.Path(GIVEN["axe"]).read_text()
# Whatever is loaded has to come from the server itself.
FOREIGN = []


# Two versions that page_world sends.
COMPARED = "/compare?by=version&project=versions&a=2.2.0&b=2.3.0"


def paths():
    trace = f"/traces/{IDS['wrong']}"
    return {"overview": "/", "overview-shop": "/?project=shop&range=24h", "traces": "/traces", "traces-narrowed": "/traces?label=thought_to_tool%3Dincorrect&q=refund", "trace": trace, "trace-long": f"/traces/{IDS['long']}",
            "trace-harm": f"/traces/{IDS['harm']}", "spans": f"{trace}/spans", "span": IDS["span"], "sessions": "/sessions", "sessions-talk": "/sessions?project=talk&from=2026-01-01", "session": IDS["session"], "trace-crashed": f"/traces/{IDS['crashed']}", "trace-parallel": f"/traces/{IDS['parallel']}", "trace-nested": f"/traces/{IDS['nested']}", "trace-found": f"{trace}?q=order", "trace-names": f"/traces/{IDS['names']}", "overview-names": f"/?project={page_world.NAMES}", "traces-names": f"/traces?project={page_world.NAMES}", "overview-graded": "/?project=graded", "review": "/review", "review-graded": "/review?project=graded", "agreement": "/agreement", "runs": "/runs", "run": IDS["run"], "run-trajectory": IDS["run_trajectory"], "compare": IDS["compare"], "versions": "/versions?project=versions", "models": "/versions?by=model", "compare-versions": COMPARED, "steps": IDS["steps"], "group": IDS["group"], "review-group": IDS["group"].replace("/groups/", "/review?group="), "rubrics": "/rubrics",
            "rubric": f"/rubrics/thought_to_tool?trajectory={IDS['wrong']}&step=1", "alerts": "/alerts", "server": "/server", "not-here": "/nowhere", "sign-in": "/sign-in"}


def opened(browser, path, **options):
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(MAX_WAIT_MS)
    page = context.new_page()
    page.posts = []
    page.trouble = []
    page.on("pageerror", lambda error: page.trouble.append(f"{path}: {error}"))
    page.on("console", lambda message: page.trouble.append(f"{path}: {message.text}") if message.type == "error" and "404" not in message.text else None)
    page.on("request", lambda request: page.posts.append(request.url) if request.method == "POST" else None)
    page.on("request", lambda request: FOREIGN.append(request.url) if not request.url.startswith(URL) else None)
    page.goto(URL + path)
    return page


def press(page, *keys):
    """Presses keys on a page whose script runs: before that they are lost."""
    page.wait_for_load_state("load")
    for key in keys:
        page.keyboard.press(key)


def draw_frames(page):
    """Until whatever the last action caused in the page has run and was drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")


def open_until(page, path, holds):
    """Opens a page again and again until it shows what is wanted: the server may know it a moment later, or keep a slow page
    for some seconds. What `holds` gave."""
    end = time.monotonic() + MAX_WAIT_MS / 1000
    while True:
        page.goto(URL + path)
        if found := holds(page):
            return found
        assert time.monotonic() < end, f"{path} does not show it: {page.locator('main').inner_text()[:1500]}"
        page.wait_for_timeout(300)


def fine(page):
    assert page.trouble == [], page.trouble


def found_runs(browser):
    """Addresses of what the runs are named by."""
    page = opened(browser, "/runs")
    links = page.locator("th a[href^='/runs/']")
    expect(links.nth(1)).to_be_visible()
    ids = [links.nth(at).inner_text() for at in range(2)]
    IDS.update(run=f"/runs/{ids[0]}", compare=f"/compare?a={ids[1]}&b={ids[0]}")
    page.goto(URL + IDS["run"])
    IDS["run_trajectory"] = page.locator(".finding a[href*='/trajectories/']").first.get_attribute("href")
    if "wrong" in IDS:
        page.goto(f"{URL}/traces/{IDS['wrong']}/spans")
        IDS["span"] = page.locator("table a").first.get_attribute("href")
        page.goto(URL + COMPARED)
        IDS["steps"] = page.locator("a[href^='/compare/steps']").first.get_attribute("href")
        page.goto(URL)
        IDS["group"] = page.locator("a[href^='/groups/']").first.get_attribute("href")
    page.context.close()
