"""The table, the bars and the results file."""
import json

# Containers of the results file that fit into a line stay on it.
MAX_LINE = 1_000
BARS = {"sender_p99_ms": 250, "healthz_p99_ms": 100, "peak_mib": 512, "stop_s": 10}


def table(mode):
    """Lines for people: one for each phase."""
    head = f"{'phase':22} {'sender ms p50':>13} {'p99':>7} {'max':>7} {'refused':>8} {'healthz p99':>11} {'max':>7} {'reader p99':>10} {'graded':>11} {'p99 s':>6} {'peak MiB':>8} {'after':>6} {'cores':>5} {'load':>5} {'stolen':>6}  "
    lines = [f"mode: {mode['mode']}", head]
    for phase in mode["phases"]:
        sender, healthz, reader, grading, memory = (phase[key] for key in ("sender", "healthz", "reader", "grading", "memory_mib"))
        number = lambda value: "-" if value is None else f"{value:.0f}"
        ending = "" if phase["survived"] else f"{len(phase['crashes'])} CRASHES"
        ending += ", store set aside" if phase["store_set_aside"] else ""
        lines.append(f"{phase['phase']:22} {number(sender.get('p50_ms')):>13} {number(sender.get('p99_ms')):>7} {number(sender.get('max_ms')):>7} {sum(sender['refused'].values()):>8} "
                     f"{number(healthz.get('p99_ms')):>11} {number(healthz.get('max_ms')):>7} {number(reader.get('p99_ms')):>10} {grading['graded']:>5}/{grading['sent']:<5} "
                     f"{number(grading['delay_p99_s']):>6} {memory['peak']:>8} {memory['after']:>6} {phase['server_cores']:>5} {phase['load']:>5} {phase['stolen']:>6.0%}  {ending}")
    for name in ("recovery", "stop", "restart"):
        if name in mode:
            lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in mode[name].items()))
    return lines


def summarize_phase(phase):
    """What the results file has of a phase: the figures that the bars and the table use, and what attackers counted."""
    latencies = {client: {key: phase[client].get(key) for key in ("p50_ms", "p99_ms", "max_ms", "requests")} for client in ("sender", "healthz", "reader")}
    refused = {client: phase[client]["refused"] for client in latencies if phase[client]["refused"]}
    grading, crashes = phase["grading"], phase["crashes"]
    summary = {"phase": phase["phase"], "seconds": phase["seconds"], **latencies, "refused": refused,
               "graded": f"{grading['graded']} of {grading['sent']}", "grading_p99_s": grading["delay_p99_s"], "queue_empty_after_s": grading["queue_empty_after_s"] if grading["queue_empty"] else None,
               "peak_mib": phase["memory_mib"]["peak"], "after_mib": phase["memory_mib"]["after"], "server_cores": phase["server_cores"], "stolen": phase["stolen"], "crash_count": len(crashes),
               "attackers": {name: {**results["outcomes"], **{key: value for key, value in results.items() if key != "outcomes" and value}} for name, results in phase["attackers"].items()}}
    if crashes:
        summary["last_crash"] = crashes[-1]
    if phase["store_set_aside"]:
        summary["store_set_aside"] = True
    return summary


def render_json(value, indent=0):
    """JSON with a line for each small container: a phase is one line, not fifty."""
    line = json.dumps(value)
    if not isinstance(value, (dict, list)) or len(line) <= MAX_LINE and indent > 0:
        return line
    margin = " " * (indent + 1)
    items = [f"{json.dumps(key)}: {render_json(one, indent + 1)}" for key, one in value.items()] if isinstance(value, dict) else [render_json(one, indent + 1) for one in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(margin + item for item in items) + f"\n{' ' * indent}{closing}"


def render_results(results):
    modes = [{**mode, "phases": [summarize_phase(phase) for phase in mode["phases"]]} for mode in results["modes"]]
    return render_json({**results, "modes": modes}) + "\n"


def check_phase(phase, where):
    sender, healthz = phase["sender"], phase["healthz"]
    yield f"{where}: sender p99 {sender.get('p99_ms')} ms < {BARS['sender_p99_ms']} ms", sender.get("p99_ms") is not None and sender["p99_ms"] < BARS["sender_p99_ms"]
    yield f"{where}: sender refused {sender['refused'] or 'nothing'}", not sender["refused"]
    yield f"{where}: /healthz p99 {healthz.get('p99_ms')} ms < {BARS['healthz_p99_ms']} ms, failed {healthz['refused'] or 'nothing'}", healthz.get("p99_ms") is not None and healthz["p99_ms"] < BARS["healthz_p99_ms"] and not healthz["refused"]
    yield f"{where}: peak {phase['memory_mib']['peak']} MiB < {BARS['peak_mib']} MiB", phase["memory_mib"]["peak"] < BARS["peak_mib"]
    yield f"{where}: the process survived", phase["survived"] and not phase["store_set_aside"]
    yield f"{where}: the sender's traces were graded ({phase['grading']['graded']} of {phase['grading']['sent']})", phase["grading"]["graded"] == phase["grading"]["sent"] > 0


def check(results):
    """Every bar with what was measured: (text, whether it holds)."""
    for mode in results["modes"]:
        for phase in mode["phases"]:
            yield from check_phase(phase, f"{mode['mode']}, {phase['phase']}")
        where = mode["mode"]
        if "recovery" in mode:
            recovery = mode["recovery"]
            yield f"{where}: memory goes back to {recovery['memory_mib']} MiB, at most {results['rest_mib']} MiB", recovery["is_same_store"] and recovery["memory_mib"] <= results["rest_mib"]
            yield f"{where}: the ready queue drains after the attacks", recovery["is_same_store"] and recovery["queue_empty"]
        if "stop" in mode:
            stop, restart = mode["stop"], mode["restart"]
            yield f"{where}: SIGTERM under attack ends it in {stop['seconds']} s < {BARS['stop_s']} s with status {stop['status']}", stop["seconds"] < BARS["stop_s"] and stop["status"] == 0
            yield f"{where}: it starts again in {restart['start_s']} s and stays", restart["start_s"] is not None and restart["survived"]
            yield f"{where}: nothing acknowledged is lost ({restart['lost']} of {restart.get('acknowledged_spans')}; attackers' {restart.get('attackers_lost') or 0})", restart["lost"] == 0 and not restart.get("attackers_lost")
            yield f"{where}: grading catches up after the restart", restart["queue_empty"]
            yield f"{where}: store check: {restart['store_check']}", restart["store_check"] == "clean"
    for name, own in results["own_servers"].items():
        yield f"{name}: " + ", ".join(f"{key} {value}" for key, value in own.items() if key not in ("passed", "log")), own["passed"]
