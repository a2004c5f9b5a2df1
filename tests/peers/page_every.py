"""What every page is held to, in light and dark, wide and narrow; and pictures of them all."""
import pathlib
import sys

from playwright.sync_api import expect

import page_world
from page_open import AXE, IDS, draw_frames, fine, opened, paths


def accessible(browser):
    found = []
    for scheme in ["light", "dark"]:
        for name, path in paths().items():
            # axe looks at the page from inside; the page's own policy would keep it out.
            page = opened(browser, path, color_scheme=scheme, bypass_csp=True)
            for details in page.locator("details").all()[:30]:
                details.evaluate("one => one.open = true")
            # Parts that are loaded when they are opened.
            expect(page.locator("details[data-src][open] [data-into]:empty")).to_have_count(0)
            draw_frames(page)
            page.evaluate(AXE)
            result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            for one in result["violations"]:
                nodes = "; ".join(node["html"][:140] for node in one["nodes"][:3])
                found.append(f"{name}, {scheme}: {one['id']}: {one['help']}: {nodes}")
            page.context.close()
    assert not found, "\n".join(found)


def fits_the_width(browser):
    found = []
    for width in [1280, 1440, 400]:
        for name, path in paths().items():
            page = opened(browser, path, viewport={"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                found.append(f"{name} is {wide} wide at {width}")
            # Rows of lists stand below each other where there is no room: nothing of them is aside.
            aside = page.locator(".scroll:has(.stacks)").evaluate_all("all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.ariaLabel)")
            if aside and (width < 640 or name != "traces-names"):
                found.append(f"{name}: {aside} have something aside at {width}")
            page.context.close()
    assert not found, "\n".join(found)


def long_names(browser):
    """Names without a place to break at wrap or end in dots: none runs out of its box."""
    found = []
    for width in [1280, 400]:
        for path in [f"/traces/{IDS['names']}", f"/?project={page_world.NAMES}", f"/traces?project={page_world.NAMES}", f"/traces/{IDS['names']}/spans", "/server", "/review?which=wrong&project=" + page_world.NAMES]:
            page = opened(browser, path, viewport={"width": width, "height": 900})
            expect(page.locator("main")).to_contain_text("goes")
            out = page.evaluate("""() => {
              const right = document.documentElement.clientWidth;
              const isAside = (one) => one.closest(".scroll, pre, .visually-hidden, .skip, select, svg, option") !== null;
              return [...document.querySelectorAll("main *")].filter((one) => !isAside(one) && one.getBoundingClientRect().right > right + 1).map((one) => one.outerHTML.slice(0, 90));
            }""")
            if out:
                found.append(f"{path[:60]} at {width}: {out[:3]}")
            page.context.close()
    # Where there is room for it, a name is whole.
    page = opened(browser, f"/traces/{IDS['names']}")
    agent = page.locator(".facts > div", has_text="Agent").locator("dd")
    expect(agent).to_have_text("a_name_that_goes_on_and_on_" * 6)
    assert not found, "\n".join(found)
    fine(page)


def screenshots(browser):
    folder = pathlib.Path(sys.argv[3])
    for scheme in ["light", "dark"]:
        for width in [1280, 400]:
            for name, path in paths().items():
                page = opened(browser, path, color_scheme=scheme, viewport={"width": width, "height": 900})
                draw_frames(page)
                page.screenshot(path=folder / f"{name}-{scheme}-{width}.png", full_page=True)
                page.context.close()
