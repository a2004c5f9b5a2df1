"""The list of sessions, and pages on paper; run by page_browser.py."""
import pathlib
import re
import time

from playwright.sync_api import expect

import page_world
from page_open import IDS, URL, draw_frames, fine, open_until, opened

# The width between the margins of an A4 page, in CSS pixels.
PAPER = {"width": 688, "height": 970}
# Boxes that leave the paper, and texts that are cut by their box. `svg` has a box of its own; heads of tables whose cells
# have labels are for screen readers.
CUT = """() => {
  const right = document.documentElement.clientWidth;
  const isShown = (one) => one.checkVisibility({visibilityProperty: true}) && !one.closest(".visually-hidden, .skip, svg, .stacks thead");
  const isCut = (one) => one.getBoundingClientRect().right > right + 1 || (one.scrollHeight > one.clientHeight + 1 && ["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowY) && one.clientHeight > 0);
  return [...document.querySelectorAll("body *")].filter((one) => isShown(one) && isCut(one)).map((one) => one.outerHTML.slice(0, 120));
}"""


def sessions_in_a_list(browser):
    """Reached from the navigation; paged, filtered by project and time; each id is a link."""
    page = opened(browser, "/")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("navigation", name="Main").get_by_role("link", name="Sessions")).to_have_attribute("aria-current", "page")
    row = page.locator("tr", has=page.get_by_role("link", name="chat/42 of ann"))
    expect(row.locator("a.query")).to_have_text("Where is order 4711 of ann@example.com?")
    expect(row.locator("[data-label='Runs']")).to_have_text("3")
    expect(row.locator("[data-label='Flagged runs']")).to_have_text("1")
    expect(row.locator("[data-label='Cost']")).to_contain_text("$")
    row.get_by_role("link", name="chat/42 of ann").click()
    expect(page.get_by_role("heading", name="Session chat/42 of ann")).to_be_visible()
    page.locator(".crumbs a").click()
    expect(page).to_have_url(re.compile("/sessions.project=talk$"))
    # A choice applies at once, and time narrows.
    page.get_by_label("Project").select_option("shop")
    expect(page.get_by_text("No session matches the filter.")).to_be_visible()
    page.get_by_role("link", name="Show all sessions").click()
    expect(row).to_be_visible()
    page.goto(URL + "/sessions?project=talk&to=2020-01-01")
    expect(page.get_by_text("No session matches the filter.")).to_be_visible()
    page.goto(URL + "/sessions?from=soon")
    expect(page.get_by_role("alert")).to_contain_text("from")
    # The list of traces leads to it, too.
    page.goto(URL + "/traces?project=talk")
    page.locator("tr[data-id]").first.get_by_role("link", name="chat/42 of ann").click()
    expect(page.get_by_role("heading", name="Session chat/42 of ann")).to_be_visible()
    fine(page)
    list_pages_of_sessions(browser)


def list_pages_of_sessions(browser):
    """More than one page, with and without a script; the API has the same."""
    request, steps, answer = page_world.GOOD[0]
    started = time.time_ns() - 3_600_000_000_000
    for number in range(51):
        body = page_world.trace("lobby", "front_agent", "1", "gpt-4o", request, steps, answer, started + number * 1_000_000_000)[1]
        page_world.with_attributes(body, "AGENT", {"session.id": f"<b>visit</b> {number}"})
        page_world.send(URL, body)
    page = opened(browser, "/sessions?project=lobby", java_script_enabled=False)
    open_until(page, "/sessions?project=lobby", lambda page: page.locator("tbody tr").count() == 50 and page.get_by_role("link", name="Older").count() == 1)
    expect(page.locator("tbody tr").first).to_contain_text("<b>visit</b> 50")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("<b>visit</b> 0")
    page.get_by_role("link", name="Back to the newest").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    listed = page.locator("tbody tr .under a").all_inner_texts()
    told = page.request.get(URL + "/api/v1/sessions?project=lobby&limit=50").json()
    assert [one["session_id"] for one in told["items"]] == listed and told["next_cursor"], told["items"][:2]
    page.get_by_label("To (UTC)").fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No session matches the filter.")).to_be_visible()
    fine(page)


def on_paper(browser):
    """Black on white, without navigation, nothing folded and nothing cut: a run, lists, a run of `gradus eval`, and its report as a file."""
    page = opened(browser, "/traces?sort=steps")
    trace = page.locator("tr[data-id] a.query").first.get_attribute("href")
    found = []
    addresses = [URL + path for path in ["/", "/traces", "/sessions", "/versions", trace, IDS["run"], IDS["compare"]]] + [pathlib.Path(IDS["report"]).as_uri()]
    # Not `opened`, which watches for what a page loads from elsewhere: the report is a file.
    page = browser.new_context(viewport=PAPER, color_scheme="dark").new_page()
    page.emulate_media(media="print", color_scheme="dark")
    for address in addresses:
        page.goto(address)
        draw_frames(page)
        colours = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
        if colours != ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]:
            found.append(f"{address}: {colours}")
        for name in ["nav", "button", ".bar", "input:not([type=hidden])"]:
            shown = page.locator(f"{name}:visible").count()
            if shown:
                found.append(f"{address}: {shown} of {name} are printed")
        if cut := page.evaluate(CUT):
            found.append(f"{address}: cut: {cut[:4]}")
    page.goto(URL + trace)
    folded = page.locator(".step-fold:not([open]) dl.step")
    assert folded.count() > 0, "every step of this run is open"
    expect(folded.first.locator("dd").first).to_be_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert not found, "\n".join(found)
