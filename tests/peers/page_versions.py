"""Versions against each other, lists, and what the overview says first. Clicks are counted."""
import json
import re

from playwright.sync_api import expect

from page_open import AXE, COMPARED, URL, draw_frames, fine, opened, paths


class Clicks:
    """Follows links and presses buttons, and counts."""

    def __init__(self, page):
        self.page, self.count = page, 0

    def on(self, place):
        place.click()
        self.count += 1


def failure_and_worst_example(browser):
    """From the overview to the worst example of the most common failure: two clicks at most."""
    page = opened(browser, "/")
    clicks = Clicks(page)
    group = page.locator("table.groups tbody tr").first
    runs = [int(cell.replace(",", "")) for cell in page.locator("table.groups td[data-label='Runs']").all_inner_texts()]
    assert runs == sorted(runs, reverse=True), runs
    clicks.on(group.locator("td[data-label='Worst example'] a"))
    expect(page).to_have_url(re.compile("/traces/[0-9a-f]{32}"))
    expect(page.locator("[data-step]:target, #whole")).not_to_have_count(0)
    assert clicks.count <= 2, clicks.count
    fine(page)


def version_against_version(browser):
    """From the overview to one version against another, and on to both runs of a task that got worse."""
    page = opened(browser, "/?project=versions")
    clicks = Clicks(page)
    clicks.on(page.get_by_role("navigation", name="Main").get_by_role("link", name="Versions"))
    row = page.locator("tr", has=page.locator("th", has_text="2.3.0"))
    expect(row.locator("td[data-label='Thought to tool, not flagged']")).to_contain_text("%")
    clicks.on(row.get_by_role("link", name="against 2.2.0"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare versions: 2.3.0 against 2.2.0")
    assert clicks.count <= 3, clicks.count
    expect(page.locator("tr", has_text="Thought to tool, not flagged").first).to_contain_text("points")
    page.get_by_text("How to read the verdicts").click()
    expect(page.get_by_text("the two can disagree")).to_be_visible()
    worse = page.locator("section", has=page.locator("#h-worse"))
    expect(worse.locator("tbody tr")).to_have_count(4)
    worse.locator("tbody tr a").first.click()
    expect(page.get_by_text("only in B")).to_be_visible()
    rows = page.locator("table.side-by-side tr.same")
    # The same call stands in one row, whatever its number is.
    first = rows.first.locator("code").all_inner_texts()
    assert len(first) >= 2 and first[0] == first[len(first) // 2], first
    page.get_by_role("link", name="2.3.0").click()
    expect(page).to_have_url(re.compile("/traces/[0-9a-f]{32}"))
    # Any two can be chosen, and models and agents, too.
    page.goto(URL + "/versions?by=model")
    rows = page.locator("tr", has=page.get_by_role("radio"))
    # Another row may have a link to compare it with this one.
    rows.filter(has=page.locator("th", has_text=re.compile("^gpt-4o-mini"))).get_by_role("radio", name=re.compile("^A")).check()
    rows.filter(has=page.locator("th", has_text=re.compile("^gpt-4o(against.*)?$"))).get_by_role("radio", name=re.compile("^B")).check()
    page.get_by_role("button", name="Compare A with B").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare models: gpt-4o against gpt-4o-mini")
    # The API has the same.
    told = json.loads(page.request.get(URL + COMPARED.replace("/compare", "/api/v1/compare")).text())
    assert len(told["flips"][0]["worse"]) == 4, told["flips"]
    fine(page)


def lists_are_sorted_and_exported(browser):
    page = opened(browser, "/traces?project=versions")
    expect(page.locator(".match-count")).to_have_text("24 matches")
    page.get_by_role("link", name="most steps").click()
    steps = [int(text) for text in page.locator("td[data-label='Steps']").all_inner_texts()]
    assert len(steps) == 24 and steps == sorted(steps, reverse=True), steps
    page.get_by_text("More filters").click()
    assert "get_order" in page.locator("#list-tool option").evaluate_all("all => all.map((one) => one.value)")
    assert "shop_agent" in page.locator("#list-agent option").evaluate_all("all => all.map((one) => one.value)")
    assert "thought_to_tool" in page.locator("#list-wrong-by option").evaluate_all("all => all.map((one) => one.value)")
    boxes = page.get_by_role("checkbox")
    boxes.nth(0).check()
    boxes.nth(3).check()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export selected").click()
    lines = open(download.value.path()).read().splitlines()
    assert len(lines) == 2 and {"trace_id", "trajectory", "verdicts"} <= set(json.loads(lines[0])), lines
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all matches").click()
    assert len(open(download.value.path()).read().splitlines()) == 24
    # What is selected stays while the list is kept up to date.
    page.clock.install()
    page.goto(URL + "/traces?project=versions")
    page.get_by_role("checkbox").nth(1).check()
    page.clock.run_for(20_000)
    expect(page.get_by_role("checkbox").nth(1)).to_be_checked()
    fine(page)


def outcome_first(browser):
    """Over a demo: how runs ended stands above everything else, and a run that failed is not green."""
    page = opened(browser, "/?range=all")
    headings = page.locator("main h2").all_inner_texts()
    assert headings[0] == "How runs ended", headings
    # The largest groups are listed, and the others are one click away.
    groups = page.locator("table.groups tbody tr")
    expect(groups).to_have_count(10)
    page.get_by_role("link", name="Show all groups").click()
    expect(page).to_have_url(re.compile("groups=all"))
    expect(groups.nth(10)).to_be_visible()
    ending = page.locator(".ending").first
    label = ending.locator("bdi").inner_text()
    ending.click()
    expect(page.locator("table.traces thead th").nth(2)).to_have_text("Outcome")
    expect(page.locator("td[data-label='Outcome']").first).to_contain_text(label)
    page.goto(URL + "/traces")
    wrong = page.locator("td[data-label='Outcome'] .cell").evaluate_all("all => all.map((one) => [one.firstChild.textContent.trim(), one.classList.contains('right')])")
    assert wrong and not [label for label, is_green in wrong if label in ("crashed", "no answer", "limit reached") and is_green], wrong
    fine(page)


def filters_apply(browser):
    page = opened(browser, "/")
    page.get_by_label("Project").select_option("shop")
    expect(page).to_have_url(re.compile("project=shop"))
    page.goto(URL + "/traces")
    page.get_by_label("Project").select_option("shop")
    expect(page).to_have_url(re.compile("project=shop"))
    expect(page.locator("tr[data-id]").first).to_be_visible()
    # Without a script there is the button.
    plain = opened(browser, "/traces", java_script_enabled=False)
    plain.get_by_label("Project").select_option("shop")
    plain.get_by_role("button", name="Show").click()
    expect(plain).to_have_url(re.compile("project=shop"))
    fine(page)


def overview_keeps_up(browser):
    """The overview asks again by itself, and says when the server cannot be reached."""
    page = opened(browser, "/server")
    page.clock.install()
    page.goto(URL + "/?project=versions")
    expect(page.locator("[data-refresh] h2").first).to_be_visible()
    with page.expect_request(re.compile("project=versions")):
        page.clock.run_for(16_000)
    expect(page.locator("[data-refresh] h2").first).to_be_visible()
    page.context.set_offline(True)
    page.clock.run_for(120_000)
    expect(page.locator("[data-unreachable]")).to_contain_text("The server cannot be reached")
    page.context.set_offline(False)
    page.clock.run_for(120_000)
    expect(page.locator("[data-unreachable]")).to_have_count(0)


def local_times(browser):
    page = opened(browser, "/traces?project=versions", timezone_id="Asia/Tokyo")
    cell = page.locator("td.when").first
    expect(cell).to_have_attribute("title", re.compile("UTC$"))
    shown, utc = cell.inner_text(), cell.get_attribute("title").removesuffix(" UTC")
    hours = lambda text: int(text[11:13])
    assert (hours(shown) - hours(utc)) % 24 == 9, (shown, utc)
    expect(page.locator("[data-times]")).to_contain_text("your time zone")
    fine(page)


def targets_for_fingers(browser):
    """Whatever is pressed is at least 24 pixels high and wide, or has room around it (WCAG 2.2, 2.5.8)."""
    found = []
    for name, path in paths().items():
        page = opened(browser, path, viewport={"width": 400, "height": 900}, bypass_csp=True)
        draw_frames(page)
        page.evaluate(AXE)
        result = page.evaluate("axe.run(document, {runOnly: {type: 'rule', values: ['target-size']}, resultTypes: ['violations']})")
        for one in result["violations"]:
            found += [f"{name}: {node['html'][:120]}" for node in one["nodes"][:3]]
        page.context.close()
    assert not found, "\n".join(found)


def review_of_a_group(browser):
    page = opened(browser, "/")
    link = page.locator("table.groups a", has_text="review these").first
    link.click()
    expect(page.get_by_text("Only verdicts of the failure group")).to_be_visible()
    expect(page.locator(".review-verdict")).to_be_visible()
    # A note says who looks at it.
    page.locator("a[href^='/groups/']").first.click()
    page.get_by_label("Note: who looks at it").fill("dora looks at it")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Note: who looks at it")).to_have_value("dora looks at it")
    # What is refused stays in the form.
    page.get_by_label("Note: who looks at it").evaluate("field => field.removeAttribute('maxlength')")
    page.get_by_label("Note: who looks at it").fill("n" * 2001)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Not saved. The note has 2001 characters")
    expect(page.get_by_label("Note: who looks at it")).to_have_value("n" * 2001)
    # The browser reports the refusal, and nothing else.
    assert len(page.trouble) == 1 and "400" in page.trouble[0], page.trouble
    page.trouble.clear()
    # The page has the time of the overview, and the project can be chosen.
    page.get_by_label("Time", exact=True).select_option("30d")
    page.wait_for_url("**range=30d*")
    expect(page.locator("[data-group-facts]")).to_contain_text("Worst example")
    expect(page.get_by_text(re.compile("dataset"))).not_to_have_count(0)
    fine(page)
