"""What page_setup.py tries in the browser, in an environment that has Playwright:

  page_setup_browser.py GIVEN WHAT [FOLDER]

GIVEN is JSON: the server's address, a receiver of webhooks, where Chromium and axe-core are. WHAT is a function of this file.
"""
import pathlib
import re
import sys
import time

from playwright.sync_api import expect, sync_playwright

import page_world
from page_open import AXE, FOREIGN, GIVEN, IDS, URL, draw_frames, fine, open_until, opened

# Some of these calls are invalid, so a condition at the end of the scale holds at once.
CONDITION = "call_validity < 1 over 7d, at least 5 steps"


def send_trace():
    _, body = page_world.trace("first", "shop", "1", "gpt-4o", *page_world.GOOD[0], time.time_ns() - 5_000_000_000)
    page_world.send(URL, body)


def accessible(browser, path, width=1280):
    """No finding of axe, in light and dark, and nothing wider than the page."""
    for scheme in ["light", "dark"]:
        page = opened(browser, path, color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 900})
        draw_frames(page)
        page.evaluate(AXE)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found = [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:140]}" for one in result["violations"]]
        assert found == [], (path, scheme, found)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (path, wide)
        page.context.close()


def first_start(browser):
    page = opened(browser, "/")
    expect(page.get_by_role("heading", name="Connect an agent")).to_be_visible()
    expect(page.locator(".own-address")).to_have_text(URL)
    status = page.locator("#status")
    expect(status.locator("[data-stage=waiting]")).to_be_visible()
    # Tabs, by pointer and by keyboard.
    expect(page.locator("#code-llamaindex")).to_be_visible()
    page.locator("label[for=tab-crewai]").click()
    expect(page.locator("#code-crewai")).to_contain_text("CrewAIInstrumentor")
    expect(page.locator("#code-llamaindex")).to_be_hidden()
    page.locator("#tab-crewai").press("ArrowRight")
    expect(page.locator("#code-smolagents")).to_be_visible()
    # What is copied is what is shown, with this server's address in it.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=URL)
    page.get_by_role("button", name="Copy the snippet for smolagents").click()
    expect(page.get_by_role("button", name="Copied the snippet for smolagents")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#code-smolagents").text_content() and f"{URL}/v1/traces" in copied, copied
    accessible(browser, "/")
    accessible(browser, "/", 390)
    # It changes by itself when the first span arrives, and again when it is graded.
    send_trace()
    expect(status.locator("[data-stage=received]")).to_contain_text("in 1 trace")
    expect(page.locator("#code-smolagents")).to_be_visible()
    assert page.request.post(URL + "/api/v1/settle").json()["is_settled"]
    expect(status.locator("[data-stage=graded]")).to_contain_text("in project first")
    expect(status.locator("[data-missing]")).to_contain_text("Still missing: a model as judge")
    accessible(browser, "/start")
    status.get_by_role("link", name="Open the run").click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    # From now on the address shows the overview; the snippets stay within reach.
    page.goto(URL + "/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.goto(URL + "/?project=first&range=24h&from=2020-01-01&to=2020-01-02")
    page.get_by_role("link", name="Connect an agent").click()
    expect(page.locator("#code-llamaindex")).to_be_visible()
    fine(page)


def without_script(browser):
    page = opened(browser, "/", java_script_enabled=False)
    expect(page.get_by_text("Reload this page to see what arrived.")).to_be_visible()
    page.locator("label[for=tab-collector]").click()
    expect(page.locator("#code-collector")).to_contain_text("otlphttp/gradus")
    expect(page.locator("#code-llamaindex")).to_be_hidden()
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    send_trace()
    page.reload()
    expect(page.locator("[data-stage=received]")).to_be_visible()
    assert page.request.post(URL + "/api/v1/settle").json()["is_settled"]
    page.goto(URL + "/start")
    expect(page.locator("[data-stage=graded]")).to_be_visible()


def load_the_demo(browser):
    page = opened(browser, "/")
    page.get_by_role("button", name="Load the demo").click()
    status = page.locator("#status")
    expect(status.locator("[data-stage=graded]")).to_be_visible()
    expect(status.locator("[data-demo]")).to_have_count(0)
    expect(status).to_contain_text("130 traces")
    status.get_by_role("link", name="Open the overview").click()
    expect(page.get_by_role("heading", name="What goes wrong")).to_be_visible()
    fine(page)


def fill_alert(page, **fields):
    for name, value in fields.items():
        page.locator(f"#{name}").fill(value)
    page.get_by_role("button", name="Save").click()


def alerts_from_the_page(browser):
    page = opened(browser, "/alerts")
    file_rule = page.locator("tr", has_text="from the file")
    expect(file_rule).to_contain_text("from gradus.toml")
    expect(file_rule.get_by_role("link", name="Edit")).to_have_count(0)
    # A rule that cannot be stored keeps what was typed, and says why.
    page.get_by_role("link", name="New alert").click()
    fill_alert(page, name="calls", when="call_validty < 1 over 7d")
    expect(page.get_by_role("alert")).to_contain_text("call_validity")
    expect(page.locator("#name")).to_have_value("calls")
    fill_alert(page, when=CONDITION, webhook="http://10.0.0.1/hook")
    expect(page.get_by_role("alert")).to_contain_text("private address")
    page.trouble.clear()
    fill_alert(page, webhook=f"{IDS['hook']}/missing?token=secret")
    rule = page.get_by_role("region", name="Alert rules").locator("tr", has=page.get_by_role("rowheader", name=re.compile("^calls")))
    expect(rule).to_contain_text("made here")
    expect(rule).not_to_contain_text("secret")
    accessible(browser, "/alerts")
    accessible(browser, "/alerts", 390)
    accessible(browser, "/alerts/edit?rule=calls")
    # It fires, and every page says so; the webhook that answers 404 is retried and shown as failing.
    page_world.fill(URL)
    badge = page.get_by_role("navigation", name="Main").get_by_role("link", name="Alerts 1 firing")
    open_until(page, "/traces", lambda _: badge.count())
    open_until(page, "/", lambda _: badge.count())
    open_until(page, "/alerts", lambda _: re.search("failing since .*: HTTP 404; ([2-9]|[0-9]{2}) attempts, retrying", rule.inner_text()))
    expect(rule.get_by_text("firing", exact=True)).to_be_visible()
    accessible(browser, "/alerts")
    # Its threshold and when it fired are on its chart.
    page.goto(URL + "/?range=24h")
    chart = page.locator("figure", has=page.get_by_role("heading", name="Call validity"))
    expect(chart.locator("svg .alarm").first).to_be_attached()
    expect(chart.locator("svg .fired").first).to_be_attached()
    # A test says what came of it; with another address it arrives.
    page.goto(URL + "/alerts")
    page.get_by_role("button", name="Test calls").click()
    expect(page.locator(".alert-message")).to_contain_text("failed: HTTP 404")
    rule.get_by_role("link", name="Edit calls").click()
    expect(page.locator("#webhook")).to_have_value("")
    expect(page.locator("form.alert-form")).to_contain_text("Now http://127.0.0.1; leave it empty to keep it.")
    fill_alert(page, webhook=f"{IDS['hook']}/hook")
    page.get_by_role("button", name="Test calls").click()
    expect(page.locator(".alert-message")).to_contain_text("webhook http://127.0.0.1: accepted")
    text = page.request.get(URL + "/alerts/export").text()
    assert "[[alert]]" in text and f"{IDS['hook']}/hook" in text and "from the file" not in text, text
    # Muted, it still fires, and nobody is told.
    page.goto(URL + "/alerts")
    page.get_by_role("button", name="Mute 24 h: calls").click()
    expect(rule).to_contain_text("muted until")
    open_until(page, "/traces", lambda _: badge.count() == 0)
    page.goto(URL + "/alerts")
    page.get_by_role("button", name="Unmute calls").click()
    open_until(page, "/traces", lambda _: badge.count())
    page.goto(URL + "/alerts")
    page.locator("summary[aria-label='Delete calls']").click()
    page.get_by_role("button", name="Delete calls for good").click()
    expect(rule).to_have_count(0)
    open_until(page, "/traces", lambda _: badge.count() == 0)
    fine(page)


def screenshots(browser):
    folder = pathlib.Path(sys.argv[3])

    def picture(name, path):
        for scheme in ["light", "dark"]:
            for width in [1440, 1280, 390]:
                page = opened(browser, path, color_scheme=scheme, viewport={"width": width, "height": 900})
                draw_frames(page)
                page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
                page.context.close()

    picture("start-waiting", "/")
    page_world.fill(URL)
    page = opened(browser, "/alerts/edit")
    fill_alert(page, name="calls", when=CONDITION, webhook=f"{IDS['hook']}/missing")
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()
    open_until(page, "/alerts", lambda page: "retrying" in page.locator("main").inner_text())
    for name, path in {"start-graded": "/start", "alerts": "/alerts", "alert-form": "/alerts/edit?rule=calls", "overview-firing": "/?range=24h"}.items():
        picture(name, path)


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=GIVEN["chromium"], args=["--no-sandbox"])
    globals()[sys.argv[2]](browser)
    browser.close()
    assert FOREIGN == [], FOREIGN
