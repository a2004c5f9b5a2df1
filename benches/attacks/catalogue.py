"""All attacks by name. An attack is a generator function: it prepares, yields once, and then attacks until `target.stop`."""
from . import amplified, bodies, connections, floods, phoenix, poison, queries, traces, unread

ATTACKS = {
    "poison_json": poison.attack_json,
    "poison_json_keys": poison.attack_json_keys,
    "poison_otlp_json": poison.attack_otlp_json,
    "poison_react": poison.attack_react,
    "poison_grpc": poison.attack_grpc,
    "dense_values": poison.attack_dense_values,
    "nested_texts": poison.attack_nested_texts,
    "message_parts": poison.attack_message_parts,
    "tool_call_list": poison.attack_tool_call_list,
    "resource_copies": amplified.attack_resource_copies,
    "shared_names": amplified.attack_shared_names,
    "log_values": amplified.attack_log_values,
    "empty_values": amplified.attack_empty_values,
    "control_answers": amplified.attack_control_answers,
    "phoenix_routes": phoenix.attack_routes,
    "annotation_floods": phoenix.attack_annotation_floods,
    "phoenix_queries": phoenix.attack_queries,
    "announced_length": bodies.attack_announced,
    "slow_bodies": bodies.attack_slow_bodies,
    "trickled_bodies": bodies.attack_trickled_bodies,
    "slow_sign_in": bodies.attack_slow_sign_in,
    "slow_streams": bodies.attack_slow_streams,
    "slow_headers": bodies.attack_slow_headers,
    "silent_http2": connections.attack_silent_http2,
    "alive_http2": connections.attack_alive_http2,
    "silent_http1": connections.attack_silent_http1,
    "half_prefaces": connections.attack_half_prefaces,
    "rapid_reset": floods.attack_rapid_reset,
    "reset_pages": floods.attack_reset_pages,
    "settings_flood": floods.attack_settings,
    "ping_flood": floods.attack_pings,
    "continuation_flood": floods.attack_continuation,
    "small_frames": floods.attack_small_frames,
    "unread_http1": unread.attack_http1,
    "unread_http2": unread.attack_http2,
    "zero_windows": unread.attack_zero_windows,
    "search_bomb": queries.attack_search,
    "filter_bomb": queries.attack_filter,
    "page_flood": queries.attack_pages,
    "clock_shapes": traces.attack_clocks,
    "linked_sessions": traces.attack_sessions,
    "huge_tools": traces.attack_tools,
    "huge_chain": traces.attack_chain,
    "huge_models": traces.attack_models,
    "huge_same_times": traces.attack_same_times,
    "dripped_spans": traces.attack_drip,
    "message_links": traces.attack_message_links,
    "project_names": traces.attack_project_names,
    "large_projects": traces.attack_large_projects,
}
# These have a server of their own, whose settings or end they are about.
OWN_SERVER = ["future_retention", "poison_restart"]
# The first of the addresses that attackers have, one each.
FIRST_ADDRESS = 20


def groups(names, by_family):
    """Which attacks run together, by a label: each alone, or those of one file."""
    if not by_family:
        return {name: [name] for name in names}
    found = {}
    for name in names:
        found.setdefault(ATTACKS[name].__module__.rpartition(".")[2], []).append(name)
    return found


def address(name):
    return f"127.0.0.{FIRST_ADDRESS + list(ATTACKS).index(name)}"
