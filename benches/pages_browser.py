"""How Chromium opens a page, for run_pages.py, in an environment that has Playwright:

  pages_browser.py CHROMIUM ADDRESS OPENS

Prints JSON: milliseconds of the server, until the document is ready and until it is first drawn, the number of elements, and
the longest task while the page is scrolled through.
"""
import json
import statistics
import sys

from playwright.sync_api import sync_playwright

TIMES = """() => {
  const one = performance.getEntriesByType('navigation')[0];
  const drawn = performance.getEntriesByName('first-contentful-paint')[0];
  return [one.responseEnd - one.requestStart, one.domContentLoadedEventEnd - one.startTime, drawn ? drawn.startTime : one.loadEventEnd];
}"""
# The page is moved through a screen at a time; a task longer than 50 ms is one that a reader notices.
SCROLL = """async () => {
  const tasks = [];
  const watch = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)));
  watch.observe({ type: 'longtask' });
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let at = 0; at < document.documentElement.scrollHeight; at += innerHeight) {
    scrollTo(0, at);
    await frame();
  }
  await frame();
  return Math.max(0, ...tasks);
}"""


def main():
    chromium, address, opens = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        times, longest = [], []
        for _ in range(opens):
            # A new context has nothing cached.
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.goto(address)
            # Evaluated from outside: the policy of the page forbids strings as scripts.
            while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
                page.wait_for_timeout(5)
            times.append(page.evaluate(TIMES))
            elements = page.evaluate("document.querySelectorAll('*').length")
            longest.append(page.evaluate(SCROLL))
            context.close()
        browser.close()
    server, ready, drawn = (round(statistics.median(values), 1) for values in zip(*times))
    print(json.dumps({"opens": opens, "server_ms": server, "ready_ms": ready, "drawn_ms": drawn, "elements": elements, "longest_task_ms": round(statistics.median(longest), 1)}))


if __name__ == "__main__":
    main()
