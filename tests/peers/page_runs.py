"""The page of a run, and of a session: read from the top, in seconds."""
import re
import time

from playwright.sync_api import expect

import page_world
from page_open import IDS, URL, draw_frames, fine, opened, press


def read_in_seconds(browser):
    """What went wrong is one sentence at the top; each fact is there once; the outline, request and answer stay in sight."""
    page = opened(browser, "/traces?q=6001&project=shop")
    page.locator("tr[data-id] a.query").first.click()
    page.goto(page.url.split("#")[0])
    head = page.locator(".what-went-wrong")
    expect(head).to_contain_text("Step 1, get_weather: The thought says it uses")
    head.get_by_role("link").click()
    expect(page.locator("#step-1 .verdict-line[open]")).to_be_in_viewport()
    # Flags are groups: one for each evaluator and label, with the steps.
    group = page.locator(".flag-group", has_text="Call validity: incorrect")
    expect(group).to_have_count(1)
    assert group.locator("a").all_inner_texts() == ["2–3"], group.inner_text()
    # The parameters of the tool stand beside the call that they forbid, and are read without another click.
    call, schema = page.locator("#step-2-call > .fold"), page.locator("#step-2-call .tool-schema")
    expect(schema).to_contain_text('"required"')
    left, right = call.bounding_box(), schema.bounding_box()
    assert left["x"] + left["width"] <= right["x"] and abs(left["y"] - right["y"]) < 60, (left, right)
    # Each step has time, tokens and cost.
    for step in page.locator("[data-step]").all():
        facts = step.locator(".step-facts").inner_text()
        assert re.search(r"[0-9] (ms|s) · [0-9]+ tokens · \$0\.[0-9]+", facts.replace("\u00a0", " ")), facts
    # Far down, the outline, the request and the answer are still in sight.
    page.locator("#step-3").scroll_into_view_if_needed()
    press(page, "j", "j", "j")
    for place in (".outline", ".pinned .asked", ".pinned .answer"):
        expect(page.locator(place)).to_be_in_viewport()
    # The outline marks the step that is read.
    page.locator("#step-3").evaluate("step => step.scrollIntoView({ block: 'start' })")
    expect(page.locator(".outline a[aria-current]")).to_have_count(1)
    expect(page.locator(".outline a[aria-current]")).to_have_attribute("href", re.compile("#step-[23]$"))
    page.locator(".outline a", has_text="get_weather").click()
    expect(page).to_have_url(re.compile("#step-1$"))
    # No fact is said twice at the top.
    text = "\n".join(page.locator(".headline-box, .trace-layout").all_inner_texts())
    assert text.count("Please refund order 6001") == 1 and text.count("Gave up") <= 1, text
    # A step that nothing is wrong with is folded, and opens by its link, its key or a click.
    page.goto(f"{URL}/traces/{IDS['turn_1']}")
    step = page.locator("#step-1 .step-fold")
    expect(step).not_to_have_attribute("open", "")
    expect(page.locator("#step-1 .step-state")).to_have_text("no rule fired")
    expect(page.locator("#step-1-thought")).to_be_hidden()
    page.goto(f"{URL}/traces/{IDS['turn_1']}#step-1")
    expect(page.locator("#step-1-thought")).to_be_visible()
    fine(page)
    # Without a script, a link unfolds them.
    plain = opened(browser, f"/traces/{IDS['turn_1']}", java_script_enabled=False)
    expect(plain.locator("#step-1-thought")).to_be_hidden()
    plain.get_by_role("link", name="Unfold all").click()
    expect(plain.locator("#step-1-thought")).to_be_visible()


def a_crashed_run(browser):
    """A run that failed has its error at the top, as a link to the span; nothing of it has the colour of success."""
    page = opened(browser, f"/traces/{IDS['crashed']}")
    box = page.locator(".headline-box.bad")
    expect(box).to_contain_text("429 Too Many Requests")
    assert box.inner_text().count("429 Too Many Requests") == 1, box.inner_text()
    expect(page.locator(".badge.pass, .cell.right")).to_have_count(0)
    for details in page.locator("details:not([data-src])").all():
        details.evaluate("one => one.open = true")
    expect(page.locator(".badge.pass")).to_have_count(0)
    box.locator(".what-went-wrong a").click()
    expect(page).to_have_url(re.compile("/spans/[0-9a-f]{16}$"))
    expect(page.locator("main")).to_contain_text("429 Too Many Requests")
    # All spans with errors are links, too.
    page.goto(f"{URL}/traces/{IDS['crashed']}")
    page.locator(".facts").get_by_role("link", name="2 spans").click()
    expect(page).to_have_url(re.compile("/spans#errors$"))
    expect(page.locator("#errors a")).to_have_count(2)
    page.locator("#errors a").first.click()
    expect(page).to_have_url(re.compile("/spans/[0-9a-f]{16}$"))
    fine(page)


def agents_and_parallel_calls(browser):
    page = opened(browser, f"/traces/{IDS['nested']}")
    tree = page.locator(".agent-tree")
    front, back = tree.locator("a", has_text="front_agent"), tree.locator("a", has_text="back_agent")
    assert back.bounding_box()["x"] > front.bounding_box()["x"], "the agent that was called stands farther in"
    expect(back).to_contain_text("12 steps")
    back.click()
    expect(page.locator(".agent-tree [aria-current]")).to_contain_text("back_agent")
    # Calls of one reply: their bars cover the same time, and they hang on one bracket.
    page.goto(f"{URL}/traces/{IDS['parallel']}")
    steps = page.locator("[data-step].parallel")
    expect(steps).to_have_count(3)
    bars = steps.locator(".step-bar rect:last-child").evaluate_all("all => all.map((one) => one.getBoundingClientRect()).map((box) => [box.left, box.right])")
    assert max(left for left, _ in bars) < min(right for _, right in bars), bars
    bracket = steps.first.locator(".mark").evaluate("mark => getComputedStyle(mark, '::after').borderLeftWidth")
    assert bracket == "2px", bracket
    fine(page)


def a_model_call_as_chat(browser):
    page = opened(browser, f"/traces/{IDS['wrong']}#step-2")
    call = page.locator("#step-2 .raw-span", has_text="Model call")
    call.locator("summary").first.click()
    chat = call.locator(".model-call")
    expect(chat.locator(".message.assistant").last).to_be_visible()
    expect(call.locator(".attributes").first).to_be_hidden()
    # Tools are folded, and so are raw attributes: one click each.
    tools = chat.locator(".offered")
    expect(tools.locator("> summary")).to_have_text("6 tools on offer")
    expect(tools.locator("li").first).to_be_hidden()
    tools.locator("> summary").click()
    expect(tools.locator("li").first).to_be_visible()
    call.locator(".raw-attributes > summary").click()
    expect(call.locator(".attributes").first).to_contain_text("llm.model_name")
    # Without a script the span has a page of its own.
    plain = opened(browser, f"/traces/{IDS['wrong']}?open=all", java_script_enabled=False)
    plain.locator("#step-2 .raw-span summary").first.click()
    plain.locator("#step-2 .raw-span a").first.click()
    expect(plain.locator(".model-call .message").last).to_be_visible()
    fine(page)


def two_thousand_steps(browser):
    """A run of 2,000 steps: a page of bounded size, with an outline of all of it; what is unfolded comes when it is wanted."""
    trace_id, body = page_world.long_run(time.time_ns() - 9_000_000_000_000)
    page_world.send(URL, body)
    page = opened(browser, "/traces?project=long")
    # Until it is assembled and graded: a page of so long a run that still arrives may take longer than a query may.
    while not any(one["trajectories"] for one in page.request.get(URL + "/api/v1/traces?project=long").json()["items"]):
        page.wait_for_timeout(300)
    page.goto(f"{URL}/traces/{trace_id}")
    size = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
    assert size < 100_000, size
    assert page.evaluate("document.querySelectorAll('*').length") < 25_000
    expect(page.locator(".facts", has_text="Steps")).to_contain_text("2,000")
    expect(page.locator(".outline .outline-page")).to_have_count(9)
    group = page.locator(".flag-group", has_text="Call validity: incorrect")
    assert group.locator("a").all_inner_texts() == ["3", "700", "1500"], group.inner_text()
    assert page.locator(".step-fold[open]").count() <= 12
    # Steps out of sight are not laid out.
    assert page.locator("[data-step]").last.evaluate("one => getComputedStyle(one).contentVisibility") == "auto"
    group.get_by_role("link", name="1500").click()
    expect(page.locator("#step-1500 .verdict-line[open]").first).to_be_in_viewport()
    # Verdicts that flag nothing are loaded when they are unfolded, with their forms.
    step = page.locator("#step-1499")
    step.locator(".step-fold > summary").click()
    step.locator(".other-verdicts > summary").click()
    verdict = step.locator(".verdict-line").first
    verdict.locator("summary").click()
    expect(verdict.locator(".by")).to_be_visible()
    # By key, too: it opens them first, and writes once they are there.
    step = page.locator("#step-1498")
    step.focus()
    page.keyboard.press("e")
    expect(step.locator(".verdict-line").first).to_be_visible()
    page.keyboard.press("e")
    expect(step.locator("[data-note]").first).to_be_focused()
    draw_frames(page)
    fine(page)


def a_session(browser):
    """A conversation: turns in order with verdicts, cost and time; every id on the way is a link."""
    page = opened(browser, f"/traces/{IDS['turn_2']}")
    page.locator(".facts").get_by_role("link", name="chat/42 of ann").click()
    expect(page.get_by_role("heading", name="Session chat/42 of ann")).to_be_visible()
    turns = page.locator(".turn")
    expect(turns).to_have_count(3)
    assert [one.split("\n")[0] for one in turns.locator("h2").all_inner_texts()] == ["Turn 1", "Turn 2", "Turn 3"]
    for turn, words in zip(turns.all(), ["order 4711", "order 6001", "order 5120"]):
        expect(turn.locator(".said-by.user")).to_contain_text(words)
        facts = turn.locator(".turn-head .quiet").inner_text().replace("\u00a0", " ")
        assert re.search(r"[0-9] s · [0-9]+ steps? · [0-9,]+ tokens · \$", facts), facts
    expect(turns.nth(1)).to_have_class(re.compile("flagged|bad"))
    expect(turns.nth(1).locator(".turn-verdict")).to_contain_text("The thought says it uses")
    # From the turn to the guilty step, and to its trace.
    turns.nth(1).locator(".turn-verdict a").click()
    expect(page.locator("#step-1 .verdict-line[open]")).to_be_in_viewport()
    page.go_back()
    turns.nth(2).locator("h2 a").click()
    expect(page).to_have_url(re.compile(IDS["turn_3"]))
    # The API has the same.
    answer = page.request.get(URL + "/api/v1" + IDS["session"]).json()
    assert [turn["trace_id"] for turn in answer["turns"]] == [IDS["turn_1"], IDS["turn_2"], IDS["turn_3"]], answer
    assert answer["turns"][1]["wrong"] > 0 and answer["cost_usd"] > 0 and answer["next_offset"] is None, answer
    assert page.request.get(URL + "/api/v1/sessions/nobody").status == 404
    fine(page)
