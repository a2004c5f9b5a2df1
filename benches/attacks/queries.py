"""Questions that cost much: searches by prefixes, filters with many conditions, pages and exports by readers that leave."""
import http.client
import itertools
import json
import random
import string
import urllib.parse

from .target import JSON


def searches():
    letters = string.ascii_lowercase
    prefixes = " ".join(f"{letter}*" for letter in letters[:20])
    return [prefixes, " ".join(f"{letter}*" for letter in reversed(letters)), "a*", " ".join(["e*"] * 20), "the* a* zzzzzz",
            " ".join(a + b + "*" for a, b in itertools.islice(itertools.product("abcde", "aeiou"), 20))]


def attack_search(target):
    """Prefix searches in lists and pages, with conditions that nothing meets, so that all of it is looked at."""
    yield
    headers = target.key_headers("read")
    paths = []
    for text in searches():
        quoted = urllib.parse.quote(text)
        paths += [f"/api/v1/traces?limit=500&score=thought_to_tool%3C0&q={quoted}", f"/traces?project=seed&q={quoted}", f"/api/v1/traces?limit=500&label=none&q={quoted}"]
    turns = itertools.count()
    target.run_threads(target.sizes.searchers, lambda _: target.request("GET", paths[next(turns) % len(paths)], headers={**headers, "accept": "text/html, */*"}, timeout=120))


def conditions():
    """Filters: many conditions, deep brackets, long alternatives, comparisons of everything with everything."""
    contains = [f"'z{number}' in input.value" for number in range(400)]
    return [" or ".join(contains[:20]), " or ".join(contains), " and ".join(f"not ({one})" for one in contains[:100]), "(" * 40 + "'a' in output.value" + ")" * 40,
            " or ".join(f"attributes['a{number}'] == attributes['b{number}']" for number in range(150)), " or ".join(f"input.value == '{'y' * 200}{number}'" for number in range(30))]


def attack_filter(target):
    """Phoenix's filter language, by clients that leave after two seconds."""
    yield
    headers = {**JSON, **target.key_headers("read")}
    select = {"context.span_id": {"key": "context.span_id"}}
    bodies = [json.dumps({"queries": [{"select": select, "filter": {"condition": one}}]}) for one in conditions()]
    pages = ["/traces?project=seed&where=" + urllib.parse.quote(one) for one in conditions() if len(one) < 6_000]
    turns = itertools.count()

    def ask(_):
        number = next(turns)
        if number % 3 == 2:
            target.request("GET", pages[number // 3 % len(pages)], headers={**headers, "accept": "text/html"}, timeout=2)
        else:
            target.request("POST", "/v1/spans?project_name=seed", bodies[number % len(bodies)], headers, timeout=2)

    target.run_threads(target.sizes.senders, ask)


def attack_pages(target):
    """Every page and export, with parameters that no cache has, by readers that leave before the answer."""
    yield
    headers = {**target.key_headers("read"), "accept": "text/html, */*"}
    trace, rng = target.large_trace, random.Random(7)

    def paths():
        day = f"20{rng.randint(10, 26)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        return [f"/?from={day}", f"/?project=seed&range=30d&x={rng.random()}", f"/api/v1/metrics?by=time&period={rng.randint(1, 90)}m", "/api/v1/metrics?by=tool", f"/review?which=all&from={day}", "/agreement",
                f"/api/v1/traces/{trace}", f"/traces/{trace}", f"/traces/{trace}/spans", "/api/v1/projects/seed/spans", "/api/v1/projects/seed/spans?format=csv", "/labels", "/v1/projects/seed/spans?limit=1000",
                "/v1/projects/seed/spans/otlpv1?limit=1000", "/v1/projects/seed/traces?limit=500&include_spans=true&sort=latency_ms", "/v1/projects/seed/sessions?limit=1000", "/server", "/metrics"]

    def visit(_):
        path = rng.choice(paths())
        connection = http.client.HTTPConnection("127.0.0.1", target.http_port, timeout=20, source_address=(target.address, 0))
        connection.connect()
        connection.putrequest("GET", path)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        target.stop.wait(rng.choice((0.0, 0.05, 0.5)))
        connection.close()
        target.count("left")

    target.run_threads(target.sizes.senders * 2, visit)
