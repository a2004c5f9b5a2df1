"""Figures of a judge from its answers about labelled cases."""
import math

from cases import LABELS


def wilson(hits, count, z=1.959964):
    """The share with its 95 % interval by Wilson."""
    if count == 0:
        return None
    share = hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return {"hits": hits, "of": count, "share": round(share, 3), "low": round(max(0.0, middle - half), 3), "high": round(min(1.0, middle + half), 3)}


def area_under_curve(right, wrong):
    """The probability that a right case has a higher score than a wrong one; ties count half."""
    if not right or not wrong:
        return None
    wins = sum((one > other) + 0.5 * (one == other) for one in right for other in wrong)
    return round(wins / (len(right) * len(wrong)), 3)


def rubric_figures(rubric, groups):
    """TPR: the share of right cases that the judge calls good. TNR: the share of wrong cases that it calls bad. Cases without a verdict are in
    neither, and are counted."""
    good, bad = LABELS[rubric]
    answers = [answer for group in groups for answer in group["answers"]]
    scored = [answer for answer in answers if answer["outcome"] == "scored"]
    right = [answer for answer in scored if answer["truth"] == good]
    wrong = [answer for answer in scored if answer["truth"] == bad]
    score = lambda answer: answer["label_probability"] if answer["label"] == good else 1 - answer["label_probability"]
    known = [answer for answer in scored if answer["label_probability"] is not None]
    by_flaw = {}
    for answer in wrong:
        by_flaw.setdefault(answer["flaw"], []).append(answer["label"] == bad)
    asked = [answer for answer in answers if answer["tokens"]]
    tokens = lambda field: sum(answer["tokens"][field] for answer in asked)
    new = sum(not answer["cached"] for answer in answers)
    figures = {
        "cases": len(answers),
        "tpr": wilson(sum(answer["label"] == good for answer in right), len(right)),
        "tnr": wilson(sum(answer["label"] == bad for answer in wrong), len(wrong)),
        "could_not_judge": len(answers) - len(scored),
        "auc_of_label_probability": area_under_curve([score(a) for a in known if a["truth"] == good], [score(a) for a in known if a["truth"] == bad]),
        "detected_by_flaw": {flaw: f"{sum(hits)} of {len(hits)}" for flaw, hits in sorted(by_flaw.items())},
        "asked_again": sum(answer["calls"] > 1 for answer in answers),
        "shortened": sum(bool(answer["shortened"]) for answer in answers),
    }
    if asked:
        figures |= {"prompt_tokens_per_case": round(tokens("prompt") / len(asked)), "cached_share_of_prompt": round(tokens("cached_prompt") / max(1, tokens("prompt")), 3),
                    "answer_tokens_per_case": round(tokens("completion") / len(asked))}
    if new:
        figures |= {"cpu_s_per_case": round(sum(group["cpu_s"] for group in groups) / new, 1), "wall_s_per_case": round(sum(group["wall_s"] for group in groups) / new, 1)}
    return figures


def summarize(figures):
    """One line over all rubrics of a model."""
    add = lambda rate: wilson(sum(one[rate]["hits"] for one in figures if one[rate]), sum(one[rate]["of"] for one in figures if one[rate]))
    return {"cases": sum(one["cases"] for one in figures), "tpr": add("tpr"), "tnr": add("tnr"), "could_not_judge": sum(one["could_not_judge"] for one in figures),
            "asked_again": sum(one["asked_again"] for one in figures)}
