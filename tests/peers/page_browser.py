"""What is tried in the browser. Run by page.py, in an environment that has Playwright:

  page_browser.py GIVEN WHAT [FOLDER]

GIVEN is JSON: the server's address, ids of traces, where Chromium and axe-core are. WHAT is a function of this file, of page_every.py, of page_runs.py, of page_review.py, of page_sessions.py or of page_versions.py.
"""
import json
import re
import sys
import time

from playwright.sync_api import expect, sync_playwright

import page_every
import page_review
import page_runs
import page_sessions
import page_versions
import page_world
from page_open import FOREIGN, GIVEN, IDS, URL, draw_frames, fine, found_runs, open_until, opened, press


def the_whole_way(browser):
    """One visit over what `gradus demo` keeps: overview, failing trace, guilty step, disagree, agreement, two runs."""
    page = opened(browser, "/agreement")
    expect(page.get_by_text("No labels yet.")).to_be_visible()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Overview").click()
    page.get_by_label("Time", exact=True).select_option("all")
    page.get_by_role("button", name="Show").click()
    wrong = page.get_by_role("link", name="Flagged traces in Call validity")
    expect(page.locator(".card", has=wrong).locator(".big")).to_contain_text("%")
    # Two clicks to the guilty step.
    wrong.click()
    expect(page).to_have_url(re.compile("wrong=call_validity"))
    page.locator("tr[data-id] a.query").first.click()
    expect(page).to_have_url(re.compile("#step-[0-9]+$"))
    step = page.locator("[data-step]:target")
    expect(step).to_be_in_viewport()
    verdict = step.locator("details.fail", has_text="Call validity")
    expect(verdict.get_by_text("by rules")).to_be_visible()
    # It is disagreed with, and both the page and the figures say so.
    verdict.get_by_label("Your name").fill("dora")
    verdict.get_by_role("button", name=re.compile("^Disagree")).first.click()
    expect(page.locator("[data-step]:target .said", has_text="dora").first).to_be_attached()
    open_until(page, "/agreement", lambda page: page.get_by_text("No labels yet.").count() == 0)
    expect(page.locator("tr", has_text="Call validity").first).to_be_visible()
    # Two runs over the same.
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Runs").click()
    rows = page.locator("tr", has=page.locator("a[href^='/runs/']"))
    # The demo's own run tells of its trials, as its report does.
    rows.last.locator("a[href^='/runs/']").click()
    expect(page.get_by_text("Judged by rules, not by a model.")).to_be_visible()
    expect(page.locator("table.bench").first).to_contain_text("oracle")
    # What was never sent here is looked at in its run.
    page.locator(".finding[open]").get_by_role("link", name="Open the trajectory").click()
    expect(page.get_by_text("Verdicts of this run.")).to_be_visible()
    page.goto(URL + "/runs")
    rows.filter(has_text="offline").first.get_by_role("radio", name=re.compile("^A")).check()
    rows.filter(has_text="openai:strict").first.get_by_role("radio", name=re.compile("^B")).check()
    page.get_by_role("button", name="Compare A with B").click()
    expect(page.locator("tr", has_text="Thought to tool").first).to_contain_text("points")
    flips = page.locator("section", has=page.locator("#h-worse")).locator("tbody tr")
    expect(flips.first).to_be_visible()
    flips.first.get_by_role("link").nth(1).click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    fine(page)


def a_whole_verdict_names_its_steps(browser):
    """A verdict on the whole leads to the steps that it speaks of, and keys stop there."""
    page = opened(browser, "/traces?q=bob%40example.com&wrong=sequence_optimality")
    page.locator("tr[data-id] a.query").first.click()
    whole = page.locator("#whole details.fail", has_text="Sequence optimality")
    expect(whole).to_contain_text("Refers to")
    # It is folded where its sentence stands at the top already.
    whole.evaluate("one => one.open = true")
    link = whole.locator(".mentions a").first
    number = re.search("[0-9]+", link.inner_text()).group(0)
    link.click()
    step = page.locator(f"#step-{number}")
    expect(step).to_be_in_viewport()
    expect(step.locator(".named-by").or_(step.locator(".step-state.fail")).first).to_be_visible()
    page.goto(page.url.split("#")[0])
    press(page, "n")
    expect(page).to_have_url(re.compile("#step-[0-9]+$"))
    expect(page.locator("[data-failing]").first).to_be_in_viewport()
    fine(page)


def late_in_the_second_trajectory(browser):
    page = opened(browser, "/traces?project=nested&wrong=call_validity")
    page.locator("tr[data-id] a.query").first.click()
    expect(page).to_have_url(re.compile(r"trajectory=.*#step-10$"))
    expect(page.locator("#step-10")).to_be_in_viewport()
    expect(page.locator("#step-10 details.fail[open]").first).to_be_visible()
    # Whoever opens the trace itself sees where it fails.
    page.goto(f"{URL}/traces/{IDS['nested']}")
    expect(page.locator(".agent-tree a", has_text="back_agent")).to_contain_text("flagged")
    # All steps are searched at once.
    page.goto(page.locator(".agent-tree a", has_text="back_agent").evaluate("link => link.href"))
    page.get_by_role("searchbox", name="Find in all steps").fill("SIX THOUSAND")
    page.get_by_role("button", name="Find").click()
    page.locator(".hits a", has_text="Step 10, call").click()
    expect(page.locator("#step-10")).to_be_in_viewport()
    fine(page)


def from_the_overview_to_the_guilty_step(browser):
    page = opened(browser, "/?project=shop")
    card = page.locator(".card", has_text="Thought to tool")
    # Rules notice mistakes: a share of right ones would claim what they cannot know.
    expect(card.locator(".big")).to_contain_text("flagged")
    # Two clicks.
    card.get_by_role("link", name="Flagged traces").click()
    expect(page).to_have_url(re.compile("wrong=thought_to_tool"))
    page.locator("tr[data-id] a").first.click()
    step = page.locator("[data-failing]:target")
    expect(step).to_be_in_viewport()
    expect(step.locator("details.fail[open]").first).to_be_visible()
    # A view can be shared: the choice is in the address.
    page.goto(URL + "/")
    page.get_by_label("Agent", exact=True).select_option("support_agent")
    page.get_by_label("Time", exact=True).select_option("24h")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("agent=support_agent.*range=24h"))
    expect(page.get_by_label("Agent", exact=True)).to_have_value("support_agent")
    expect(page.get_by_role("heading", name="By version")).to_be_visible()
    # Alert rules look every few seconds.
    open_until(page, page.url.removeprefix(URL), lambda page: page.locator("svg .alarm").count())
    # What is looked at goes on to the list.
    version = opened(browser, "/?project=shop&version=1.5.0&range=24h")
    version.get_by_role("link", name="Flagged traces in Thought to tool").click()
    expect(version).to_have_url(re.compile("project=shop&version=1.5.0&from=.*&wrong=thought_to_tool"))
    expect(version.locator("tr[data-id]").first).to_be_visible()
    # Days in its place, so that what is shared stays.
    page.get_by_label("From day").fill("2020-01-01")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("from=2020-01-01"))
    expect(page.get_by_role("link", name="Clear the days")).to_be_visible()
    expect(page.locator(".card").first).to_be_visible()
    # The page and all that it loads, for who comes for the first time.
    first = opened(browser, "/?range=30d")
    size = first.evaluate("performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource')).reduce((sum, one) => sum + one.transferSize, 0)")
    assert 0 < size < 100_000, size
    fine(page)


def two_runs(browser):
    page = opened(browser, "/runs")
    rows = page.locator("tr", has=page.locator("a[href^='/runs/']"))
    rows.filter(has_text="offline").get_by_role("radio", name=re.compile("^A")).check()
    rows.filter(has_text="openai:strict").get_by_role("radio", name=re.compile("^B")).check()
    expect(rows.filter(has_text="offline").locator(".badge.pass")).to_have_text("pass")
    page.get_by_role("button", name="Compare A with B").click()
    expect(page.get_by_text("Paired by run: the versions judged the same trajectories.")).to_be_visible()
    row = page.locator("tr", has_text="Thought to tool").first
    expect(row).to_contain_text("points")
    expect(row).to_contain_text("to")
    flips = page.locator("section", has=page.locator("#h-worse")).locator("tbody tr")
    expect(flips.first).to_be_visible()
    # The request leads to both side by side, the scores to either run.
    compared = page.url
    flips.first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", name=re.compile("^Side by side"))).to_be_visible()
    page.goto(compared)
    flips.first.get_by_role("link").nth(1).click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    expect(page.get_by_text("Verdicts of this run.")).to_be_visible()
    expect(page).to_have_url(re.compile("/trajectories/"))
    page.get_by_role("link", name="Open the trace").click()
    expect(page).to_have_url(re.compile("/traces/"))
    page.goto(URL + IDS["run"])
    expect(page.locator("#results tbody tr").first).to_be_visible()
    expect(page.locator(".facts .sources")).to_contain_text("gradus://")
    expect(page.locator("#gates")).to_contain_text("failed <= 0.9")
    fine(page)


def rubrics_alerts_server(browser):
    page = opened(browser, f"/traces/{IDS['wrong']}#step-1")
    page.locator("#step-1 .verdict-line[open]").get_by_role("link", name="the rubric").first.click()
    expect(page.locator("pre", has_text="I should look at the order first.").first).to_be_visible()
    # The project's rule has no model: rules judge. Looking again asks nobody again.
    page.get_by_role("button", name="Ask the rules").click()
    expect(page.get_by_role("status")).to_contain_text("by rules")
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("by rules")
    page.get_by_text("Try a changed rubric").click()
    text = page.get_by_label("Rubric file")
    text.fill(text.input_value() + "\nSay why, <b>in one word</b>.\n")
    page.get_by_role("button", name="Show its prompt").click()
    expect(page.locator("pre", has_text="Say why, <b>in one word</b>.").first).to_be_visible()
    page.get_by_label("Step").fill("99")
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.get_by_role("alert")).to_contain_text("no step 99")
    page.goto(URL + "/alerts")
    rule = page.locator("tr", has_text="thought_to_tool < 0.95 over 7d")
    expect(rule).to_contain_text("clears at")
    # Rules look every few seconds.
    open_until(page, "/alerts", lambda _: re.search("0\\.[0-9]{3,5} of [0-9]+ steps", rule.inner_text()))
    open_until(page, "/server", lambda page: page.locator(".badge.pass", has_text="healthy").count())
    expect(page.locator("main")).to_contain_text("everything")
    fine(page)


def from_a_list_to_the_guilty_step(browser):
    page = opened(browser, "/traces")
    page.get_by_role("link", name="Thought to tool: incorrect").click()
    expect(page.locator("tr[data-id]").first).to_be_visible()
    expect(page).to_have_url(re.compile("wrong=thought_to_tool"))
    row = page.locator("tr[data-id]", has_text="Please refund order 6001").first
    row.locator("a.query").click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    # The guilty thought and the reason stand there without another click.
    step = page.locator("#step-1")
    expect(step).to_contain_text("I should look at the order first.")
    expect(step.locator(".verdict-line[open]")).to_contain_text("The thought says it uses")
    # Keys bring from one wrong step to the next, and the address names it.
    expect(page).to_have_url(re.compile("#step-1$"))
    press(page, "n")
    expect(page).to_have_url(re.compile("#step-2$"))
    press(page, "p")
    expect(page).to_have_url(re.compile("#step-1$"))
    press(page, "j", "j")
    expect(page).to_have_url(re.compile("#step-3$"))
    press(page, "?")
    expect(page.get_by_role("dialog")).to_contain_text("next flagged step")
    # They can be switched off, and on again.
    page.get_by_label("Use shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    press(page, "k")
    draw_frames(page)
    expect(page).to_have_url(re.compile("#step-3$"))
    page.get_by_role("button", name="Shortcuts").click()
    page.get_by_label("Use shortcuts").check()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    press(page, "k")
    expect(page).to_have_url(re.compile("#step-2$"))
    # A link to a step opens there.
    again = opened(browser, f"/traces/{IDS['wrong']}#step-2")
    expect(again.locator("#step-2")).to_be_in_viewport()
    fine(page)


def agreed(page):
    page.goto(URL + "/agreement")
    row = page.locator("tr", has_text="Thought to tool").first
    return row.inner_text() if row.count() else ""


def keys_and_labels(browser):
    page = opened(browser, "/review?evaluator=thought_to_tool&which=all")
    before = agreed(page)
    page.goto(URL + "/review?evaluator=thought_to_tool&which=all")
    # Once, who it is; then a key for each.
    page.get_by_label("Your name").fill("ann")
    page.locator("h1").click()
    verdicts = []
    for key in "yyyyxy":
        item = page.locator("[data-review]")
        verdicts.append(item.get_by_role("link", name="in its trace").get_attribute("href"))
        with page.expect_navigation():
            page.keyboard.press(key)
    assert len(set(verdicts)) == 6, verdicts
    # With a note.
    page.keyboard.press("e")
    page.keyboard.type("that is <b>fine</b>")
    page.keyboard.press("Tab")
    page.locator("h1").click()
    with page.expect_navigation():
        page.keyboard.press("x")
    # One that is skipped does not come again on this way.
    skipped = page.locator("[data-review]").get_by_role("link", name="in its trace").get_attribute("href")
    with page.expect_navigation():
        page.keyboard.press("s")
    assert page.locator("[data-review]").get_by_role("link", name="in its trace").get_attribute("href") != skipped
    assert "5 of 7" not in before, before
    open_until(page, "/agreement", lambda page: page.locator("tr", has_text="Thought to tool").filter(has_text="5 of 7").count())
    expect(page.get_by_text("that is <b>fine</b>")).to_be_visible()
    # Beside the verdict itself, too; and a label there moves the figure.
    page.goto(URL + verdicts[0])
    expect(page.locator(".said", has_text="ann").first).to_be_attached()
    page.goto(URL + f"/traces/{IDS['wrong']}#step-2")
    page.locator("#step-2").focus()
    with page.expect_navigation():
        page.keyboard.press("y")
    assert page.url.endswith("#step-2"), page.url
    verdict = page.locator("#step-2 .verdict-line", has_text="Call validity")
    expect(verdict.locator(".said")).to_contain_text("ann agrees")
    open_until(page, "/agreement", lambda page: page.locator("tr", has_text="Call validity").filter(has_text="1 of 1").count())
    labels = page.request.get(URL + "/labels?format=jsonl").text().splitlines()
    assert {json.loads(line)["author"] for line in labels} == {"ann"}
    fine(page)


def enter_chooses_nothing(browser):
    where = "/review?evaluator=call_validity&which=wrong"
    labels = lambda page: [json.loads(line) for line in page.request.get(URL + "/labels?format=jsonl").text().splitlines()]
    page = opened(browser, where)
    before = len(labels(page))
    # In a note and in a name, it leaves the field.
    note, name = page.locator("[data-note]"), page.get_by_label("Your name")
    press(page, "e")
    page.keyboard.type("unsure")
    expect(note).to_have_value("unsure")
    page.keyboard.press("Enter")
    expect(note).not_to_be_focused()
    name.press("Enter")
    expect(name).not_to_be_focused()
    draw_frames(page)
    assert page.posts == [] and len(labels(page)) == before, page.posts
    # A key that waits for the name gets it.
    press(page, "x")
    expect(name).to_be_focused()
    page.keyboard.type("enter-ann")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    given = [one for one in labels(page) if one["author"] == "enter-ann"]
    assert [one["label"] for one in given] == ["correct"], given
    page.context.close()
    # Nor does it without a script.
    page = opened(browser, where, java_script_enabled=False)
    page.get_by_label("Your name").fill("bob")
    page.get_by_label("Your name").press("Enter")
    # Had it sent something, that would have begun before this.
    page.goto(URL + "/agreement")
    assert page.posts == [] and not [one for one in labels(page) if one["author"] == "bob"]


def live_update(browser):
    page = opened(browser, "/traces?project=live")
    expect(page.locator("tr[data-id]")).to_have_count(0)
    # What is announced is there for a moment only: the next look, which may bring the verdicts, empties it.
    page.evaluate("""() => {
      const [news, told] = [document.querySelector("[data-news]"), []];
      window.announced = told;
      new MutationObserver(() => told.push(news.textContent)).observe(news, { childList: true, characterData: true, subtree: true });
    }""")
    trace_id, body = page_world.trace("live", "late_agent", "1", "gpt-4o", "Did it arrive by itself?", page_world.GOOD[0][1], "Yes.", time.time_ns() - 5_000_000_000)
    page_world.send(URL, body)
    row = page.locator(f"tr[data-id='{trace_id}']")
    expect(row).to_be_visible()
    # And its verdicts, when it is complete.
    expect(row.locator(".cell.right, .cell.wrong").first).to_be_visible()
    page.wait_for_function("() => window.announced.includes('1 new trace')")
    fine(page)


def harm(browser):
    trace = f"/traces/{IDS['harm']}"
    first = opened(browser, "/")
    trajectory = first.request.get(f"{URL}/api/v1{trace}").json()["trajectories"][0]["trajectory_id"]
    # What people say can mean harm as well.
    label = {"target": f"trajectory:{trajectory}#1", "name": "call_validity", "label": page_world.HARM, "explanation": page_world.HARM, "author": page_world.HARM}
    assert first.request.post(URL + "/api/v1/annotations", data={"items": [label]}).ok
    # The pages that say nothing of a trace.
    silent = ["/server", "/alerts", IDS["run"], IDS["compare"]]
    for path in ["/", "/traces", "/traces?project=harm", trace, f"{trace}?q=script", f"{trace}/spans", "/review?project=harm&which=all", "/agreement?project=harm",
                 f"/rubrics/thought_to_tool?trajectory={trajectory}&step=1", *silent]:
        page = opened(browser, path)
        # What is loaded when it is unfolded: the tree of spans, and what each step recorded.
        for details in page.locator("details[data-src]").all():
            details.evaluate("one => { for (let at = one; at; at = at.parentElement.closest('details')) at.open = true; }")
            expect(details.locator("table, .span-detail").first).to_be_visible()
        for number, link in enumerate(page.locator("a[data-span]").all(), 1):
            link.click()
            expect(page.locator(".span-row")).to_have_count(number)
        draw_frames(page)
        assert page.evaluate("window.harmed") is None, path
        assert page.locator("img").count() == 0 and page.locator("script").count() == 1, path
        text = page.locator("main").text_content()
        assert path in silent or "<script>window.harmed=1</script>" in text, (path, text[:500])
        assert "\u202e" not in text and "\u001b" not in text, path
        fine(page)


def long_text(browser):
    page = opened(browser, f"/traces/{IDS['long']}#step-1")
    size = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
    assert size < 100_000, size
    page.get_by_role("link", name=re.compile("Show all 1.. MB")).click()
    box = page.locator(".whole-text")
    # Not the inner text: pieces out of sight are not laid out (content-visibility), so it may be empty.
    expect(box.locator("pre").first).to_contain_text("the lamp in room")
    page.get_by_label("Find", exact=True).fill("NEEDLE in the hay")
    expect(page.locator(".find [role=status]")).to_have_text("1 of 1")
    assert page.evaluate("[...CSS.highlights.get('found')][0].toString()") == "needle in the hay"
    page.wait_for_function("() => { const box = document.querySelector('.whole-text'); return box.scrollTop > box.scrollHeight * 0.5; }")
    # All of it can be moved through, to its end.
    page.evaluate("() => { const box = document.querySelector('.whole-text'); box.scrollTop = box.scrollHeight; }")
    page.wait_for_function("() => { const box = document.querySelector('.whole-text'); return box.scrollTop + box.clientHeight >= box.scrollHeight - 2; }")
    fine(page)


def found_where_it_is_folded(browser):
    """A link to what was found leads to the words themselves: in a folded text, and on another page of the steps."""
    marked = "() => CSS.highlights.get('found') ? [...CSS.highlights.get('found')][0].toString() : ''"
    page = opened(browser, f"/traces/{IDS['long']}?q=NEEDLE+in+the+hay")
    page.locator(".hits a", has_text="observation").click()
    expect(page.locator(".find [role=status]")).to_have_text("1 of 1")
    assert page.evaluate(marked) == "needle in the hay"
    page.wait_for_function("() => { const box = document.querySelector('.whole-text'); return box.scrollTop > box.scrollHeight * 0.5; }")
    fine(page)
    # The address alone does it, too.
    page.reload()
    expect(page.locator(".find [role=status]")).to_have_text("1 of 1")
    page.goto(f"{URL}/traces/{IDS['many']}?q=order+204")
    page.locator(".hits a", has_text="Step 204, thought").click()
    expect(page.locator("#step-204")).to_be_in_viewport()
    page.wait_for_function(f"({marked})() === 'order 204'")
    assert page.locator(".whole-text").count() == 0
    # A step of another page is there, whoever changes the address.
    page.evaluate("location.hash = '#step-3'")
    expect(page.locator("#step-3")).to_be_in_viewport()
    press(page, "j")
    expect(page).to_have_url(re.compile("#step-4$"))
    fine(page)


def spans(browser):
    page = opened(browser, f"/traces/{IDS['wrong']}")
    page.locator(".spans-panel > summary").click()
    expect(page.locator(".spans-panel .waterfall").first).to_be_visible()
    expect(page.locator(".spans-panel .waterfall")).to_have_count(8)
    page.locator("a[data-span]").first.click()
    expect(page.locator(".span-row")).to_contain_text("input.value")
    page.locator("a[data-span]").first.click()
    expect(page.locator(".span-row")).to_have_count(0)
    fine(page)


def without_script(browser):
    page = opened(browser, "/traces", java_script_enabled=False)
    page.get_by_label("Search text").fill("refund")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("q=refund"))
    page.locator("tr[data-id] a", has_text="6001").first.click()
    page.get_by_role("link", name="Open the spans on a separate page").click()
    expect(page).to_have_url(re.compile("/spans$"))
    page.locator("table a").nth(1).click()
    expect(page.locator("main")).to_contain_text("openinference.span.kind")
    page.goto(URL + "/review?which=all&evaluator=call_validity")
    page.get_by_label("Your name").fill("bob")
    with page.expect_navigation():
        page.get_by_role("button", name=re.compile("^Agree")).click()
    page.goto(URL + "/agreement")
    expect(page.locator("main")).to_contain_text("Call validity")


def three_labels(browser):
    """Where there are more than two labels, each has a number; a note can be written first, on a trace's page, too."""
    page = opened(browser, "/review?project=graded&evaluator=helpful")
    labels = lambda: {(one["trajectory_id"], one["step_index"]): one for one in map(json.loads, page.request.get(URL + "/labels?project=graded").text().splitlines())}
    hint = page.locator("[data-review] .keys-hint")
    expect(hint).to_contain_text("1 to 2 disagree, with the right label")
    page.get_by_label("Your name").fill("ann")
    page.locator("h1").click()
    said = page.locator("[data-review] .badge").first.inner_text()
    others = [one for one in ("good", "fair", "bad") if one not in said]
    expect(page.get_by_role("button", name=f"Disagree: {others[1]}")).to_contain_text("2")
    with page.expect_navigation():
        page.keyboard.press("2")
    assert [one["label"] for one in labels().values()] == [others[1]], labels()
    with page.expect_navigation():
        page.keyboard.press("y")
    # Which verdict comes second is left to the order of the queue: it may have any label, also the one just given.
    assert sorted(one["label"] == one["judge_label"] for one in labels().values()) == [False, True], labels()
    # Who comes next decides without knowing what she said.
    other = opened(browser, "/review?project=graded&evaluator=helpful")
    expect(other.locator("[data-review]")).to_contain_text("Somebody said something of this verdict.")
    expect(other.locator("[data-review] .said")).to_have_count(0)
    other.context.close()
    # On a trace's page, for the verdict of the step that is looked at. Which of them she has labelled is left to the
    # order of the queue, too.
    before = labels()
    for trace_id in [one["trace_id"] for one in page.request.get(URL + "/api/v1/traces?project=graded").json()["items"]]:
        page.goto(f"{URL}/traces/{trace_id}")
        step = page.locator("[id^=step-][tabindex]").filter(has=page.locator("form:not([data-labelled]) [data-note]")).first
        if step.count():
            page.goto(f"{URL}/traces/{trace_id}#{step.get_attribute('id')}")
            break
    step.focus()
    page.keyboard.press("e")
    page.keyboard.type("only just")
    expect(step.locator("form:not([data-labelled]) [data-note]")).to_have_value("only just")
    page.keyboard.press("Enter")
    step.focus()
    with page.expect_navigation():
        page.keyboard.press("1")
    expect(page.locator(":target form[data-labelled]")).to_have_count(1)
    given = [one for key, one in labels().items() if before.get(key) != one]
    assert [one["note"] for one in given] == ["only just"], given
    press(page, "?")
    expect(page.get_by_role("dialog")).to_contain_text("write a note")
    # A scale of its own has an interval, too.
    page.goto(URL + "/?project=graded")
    card = page.locator(".card", has_text="Helpful")
    expect(card).to_contain_text("mean score of")
    expect(card).to_contain_text("95 % interval".replace(" ", "\u00a0", 1))
    assert "No interval" not in card.inner_text()
    fine(page)


def five_long_texts(browser):
    """Five texts of a megabyte on one page: each is sent and laid out when it is opened, and not before."""
    page = opened(browser, f"/traces/{IDS['five']}")
    assert page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize") < 100_000
    for number in range(1, 6):
        expect(page.locator(".whole-text")).to_have_count(number - 1)
        page.locator(f"#step-{number} .step-fold > summary").click()
        page.locator(f"#step-{number} a[data-whole]").click()
        expect(page.locator(f"#step-{number} .whole-text pre").first).to_contain_text(f"{number} 000000 the lamp")
        draw_frames(page)
    for key in "jjk":
        page.locator("h2").first.click()
        page.keyboard.press(key)
        draw_frames(page)
    expect(page).to_have_url(re.compile("#step-[0-9]+$"))
    # And folded again.
    page.locator("#step-3").get_by_role("button", name="Show less").click()
    expect(page.locator(".whole-text")).to_have_count(4)
    expect(page.locator("#step-3 a[data-whole]")).to_be_focused()
    fine(page)


def keys_go_on(browser):
    """Steps beyond 200 are on another page: keys go there, and back."""
    page = opened(browser, f"/traces/{IDS['many']}#step-200")
    press(page, "j")
    expect(page).to_have_url(re.compile("#step-201$"))
    expect(page.locator("#step-201")).to_be_in_viewport()
    press(page, "k")
    expect(page).to_have_url(re.compile("#step-200$"))
    expect(page.locator("#step-200")).to_be_in_viewport()
    # What was found wrong later, or where to look for it, is on the page behind; and what was before on the one before.
    press(page, "n")
    expect(page).to_have_url(re.compile("#step-20[1-5]$"))
    expect(page.locator("#step-201")).to_be_attached()
    press(page, "p")
    expect(page).to_have_url(re.compile("#step-(1?[0-9]{1,2}|200)$"))
    fine(page)


def a_list_that_grows(browser):
    """A list of fourteen, to which two more come while somebody looks: on top, in order, and once each."""
    ids = []

    def more(number):
        trace_id, body = page_world.trace("growing", "late_agent", "1", "gpt-4o", f"Is this number {number}?", page_world.GOOD[0][1], "Yes.", time.time_ns() - 5_000_000_000)
        page_world.send(URL, body)
        ids.insert(0, trace_id)

    # One whose clock is wrong stays on top, and hides nothing that comes.
    ahead, body = page_world.trace("growing", "late_agent", "1", "gpt-4o", "Is this the future?", page_world.GOOD[0][1], "Yes.", 3_980_000_000_000_000_000)
    page_world.send(URL, body)
    for number in range(14):
        more(number)
    pages = [opened(browser, "/traces?project=growing"), opened(browser, "/traces?project=growing&where=span_kind+%3D%3D+%27LLM%27")]
    rows = lambda page: page.locator("tr[data-id]").evaluate_all("rows => rows.map((row) => row.dataset.id)")
    expect(pages[0].locator("tr[data-id]")).to_have_count(15)
    # With a condition, the page ends when its time is over, which is soon on a busy machine.
    expect(pages[1].locator("tr[data-id]").first).to_be_visible()
    before = [rows(page) for page in pages]
    for shown in before:
        assert shown == [ahead, *ids][:len(shown)], (shown, ids)
    for number in (14, 15):
        more(number)
    for page, shown in zip(pages, before):
        # The new ones are on top, below what is from the future; what was there stays below them.
        wanted = [ahead, *ids[:2], *shown[1:]]
        page.wait_for_function("wanted => wanted.every((id, at) => document.querySelectorAll('tr[data-id]')[at]?.dataset.id === id)", arg=wanted)
        assert len(rows(page)) == len(set(rows(page))) <= 17, rows(page)
        # Every score stands below the name of what it is a score of.
        misplaced = page.locator("table.traces").evaluate("""table => {
          const names = [...table.tHead.rows[0].cells].slice(2).map((cell) => cell.textContent);
          return [...table.tBodies[0].rows].filter((row) => [...row.cells].slice(2).map((cell) => cell.dataset.label).join() !== names.join()).map((row) => row.innerText);
        }""")
        assert misplaced == [], misplaced
        fine(page)


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=GIVEN["chromium"], args=["--no-sandbox"])
    found_runs(browser)
    places = [sys.modules[__name__], page_every, page_review, page_runs, page_sessions, page_versions]
    next(getattr(place, sys.argv[2]) for place in places if hasattr(place, sys.argv[2]))(browser)
    browser.close()
    assert FOREIGN == [], FOREIGN
