"""Review and trials of rubrics on many cases, in the browser."""
import json
import re

from playwright.sync_api import expect

from page_open import AXE, URL, draw_frames, fine, opened, press

QUEUE = "/review?project=shop&evaluator=thought_to_tool"


def labels_of(page, author):
    lines = page.request.get(URL + "/labels?format=jsonl").text().splitlines()
    return [one for one in map(json.loads, lines) if one["author"] == author]


def position(page):
    found = re.search(r"Verdict ([\d,]+) of ([\d,]+) · ([\d,]+) left", page.locator(".review-progress").inner_text())
    return [int(number.replace(",", "")) for number in found.groups()]


def a_queue_with_undo(browser):
    page = opened(browser, QUEUE)
    first, count, left = position(page)
    assert (first, left) == (1, count) and count > 3, (first, count, left)
    page.get_by_label("Your name").fill("undo-ann")
    page.locator("h1").click()
    press(page, "e")
    page.keyboard.type("a note")
    page.locator("h1").click()
    shown = page.locator("[data-review] .badge").first.inner_text()
    with page.expect_navigation():
        page.keyboard.press("x")
    assert position(page) == [2, count, count - 1]
    expect(page.get_by_role("status")).to_contain_text("Stored: Thought to tool")
    assert len(labels_of(page, "undo-ann")) == 1
    # One key takes it back: the same verdict, with the note.
    with page.expect_navigation():
        press(page, "z")
    assert position(page) == [1, count, count] and labels_of(page, "undo-ann") == []
    assert page.locator("[data-review] .badge").first.inner_text() == shown
    expect(page.locator("[data-note]")).to_have_value("a note")
    # A note that no address takes comes back whole, and the page can be loaded again.
    note = ", ".join(["a long note"] * 300)
    page.locator("[data-note]").fill(note)
    with page.expect_navigation():
        page.locator("[data-key=y]").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-note]")).to_have_value(note)
    expect(page).to_have_url(re.compile("/review\\?"))
    page.reload()
    assert position(page) == [1, count, count] and labels_of(page, "undo-ann") == []
    # Steps before the one under review are there, and open to their texts.
    page.goto(URL + "/review?project=shop&evaluator=call_validity&which=wrong")
    earlier = page.get_by_role("region", name="Earlier steps").locator("details")
    expect(earlier.first).to_be_visible()
    earlier.first.locator("summary").click()
    expect(earlier.first.locator("dt", has_text="Thought")).to_be_visible()
    fine(page)
    # Without a script: a button.
    page = opened(browser, QUEUE, java_script_enabled=False)
    page.get_by_label("Your name").fill("undo-bob")
    page.locator("[data-key=y]").click()
    page.get_by_role("button", name="Undo").click()
    assert position(page)[0] == 1 and labels_of(page, "undo-bob") == []


def a_label_that_fails_keeps_what_was_typed(browser):
    page = opened(browser, QUEUE)
    page.get_by_label("Your name").fill("fail-ann")
    page.locator("[data-note]").fill("do not lose me")
    page.locator("h1").click()
    page.route("**/labels", lambda route: route.abort())
    press(page, "y")
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
    expect(page.locator("[data-note]")).to_have_value("do not lose me")
    page.unroute("**/labels")
    # Somebody else's server says no.
    page.route("**/labels", lambda route: route.fulfill(status=503, content_type="application/json", body='{"error": "the store is busy"}'))
    press(page, "y")
    expect(page.get_by_role("alert")).to_contain_text("the store is busy")
    page.unroute("**/labels")
    with page.expect_navigation():
        press(page, "y")
    assert [one["note"] for one in labels_of(page, "fail-ann")] == ["do not lose me"]
    # Without a script the server sends the form again.
    page = opened(browser, QUEUE, java_script_enabled=False)
    page.get_by_label("Your name").fill("fail-bob")
    page.locator("[data-note]").fill("nor <me>")
    stale = lambda route: route.continue_(post_data=re.sub("seen=[0-9a-f]*", "seen=0", route.request.post_data))
    page.route("**/labels", stale)
    page.locator("[data-key=y]").click()
    expect(page.get_by_role("alert")).to_contain_text("The verdict changed after you opened the page")
    expect(page.locator("[data-note]")).to_have_value("nor <me>")
    page.unroute("**/labels", stale)
    page.locator("[data-key=y]").click()
    expect(page.locator(".review-progress")).to_be_visible()
    assert [one["note"] for one in labels_of(page, "fail-bob")] == ["nor <me>"]


def one_failure_group(browser):
    page = opened(browser, "/")
    groups = page.request.get(URL + "/api/v1/failure-groups?project=shop").json()["items"]
    group = max(groups, key=lambda one: one["runs"] if "runs" in one else one.get("trajectories", 0))
    page.goto(f"{URL}/review?project=shop&group={group['key']}")
    expect(page.locator(".review-group")).to_be_visible()
    assert position(page)[1] >= 1
    count = position(page)[1]
    page.get_by_role("link", name="Review all groups").click()
    expect(page.locator(".review-group")).to_have_count(0)
    assert position(page)[1] > count
    fine(page)


def a_rubric_on_many(browser):
    page = opened(browser, "/review?project=graded&evaluator=helpful")
    for key in "y1":
        page.get_by_label("Your name").fill("many-ann")
        page.locator("h1").click()
        with page.expect_navigation():
            press(page, key)
    page.goto(URL + "/rubrics/helpful")
    page.get_by_text("Try a changed rubric").click()
    text = page.get_by_label("Rubric file")
    text.fill(text.input_value().replace("Is this thought", "Be strict. Is this thought"))
    # A limit that cannot be kept is refused, and nothing that was typed is lost.
    page.get_by_label("Dollars at most").fill("2")
    page.get_by_role("button", name="Plan the trial").click()
    expect(page.get_by_role("alert")).to_contain_text("is not known")
    expect(text).to_have_value(re.compile("Be strict"))
    page.get_by_label("Dollars at most").fill("")
    page.get_by_role("button", name="Plan the trial").click()
    expect(page.locator("main")).to_contain_text("questions to ask")
    trial = page.url
    page.get_by_role("button", name="Run the trial").click()
    # The script follows it to its end.
    expect(page.locator(".trial-progress")).to_contain_text("finished")
    expect(page.get_by_role("heading", name="Agreement with people")).to_be_visible()
    expect(page.locator("main")).to_contain_text("verdicts changed")
    rows = page.request.get(trial + "/results?format=csv").text().splitlines()
    cases = int(re.match(r"(\d+)", page.locator(".trial-progress b").inner_text()).group(1))
    assert len(rows) == cases + 1 and page.request.get(trial + "/rubric").text().count("Be strict") == 1
    for scheme in ["light", "dark"]:
        for path in [trial.removeprefix(URL), "/rubrics/helpful", QUEUE]:
            other = opened(browser, path, color_scheme=scheme, bypass_csp=True)
            for details in other.locator("details").all()[:30]:
                details.evaluate("one => one.open = true")
            draw_frames(other)
            other.evaluate(AXE)
            broken = other.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert not [one for one in broken if one["impact"] in ("serious", "critical")], (path, scheme, broken)
            other.context.close()
    for width in [1280, 390]:
        other = opened(browser, trial.removeprefix(URL), viewport={"width": width, "height": 900})
        assert other.evaluate("document.documentElement.scrollWidth") <= width, width
        other.context.close()
    # "Edit it further" has its text; the list has the trial.
    page.get_by_role("link", name="edit it further").click()
    expect(page.get_by_label("Rubric file")).to_have_value(re.compile("Be strict"))
    expect(page.locator(".trial-list")).to_contain_text("finished")
    fine(page)
