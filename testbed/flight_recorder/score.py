"""Compares what `mycroft autopsy --json` says with the truth beside the dumps.

usage: score.py MYCROFT DIR [DIR ...]     DIR holds truth.json and the dumps; exit 1 when an answer is wrong
"""
import json
import os
import subprocess
import sys


def ask(mycroft, folder):
    done = subprocess.run([mycroft, "autopsy", "--json", "--quiet", folder], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr.strip()


def judge(truth, code, answer):
    """What is wrong with an answer, in words; empty when it is right."""
    if answer is None:
        return ["no answer"]
    verdict, wrong = answer["verdict"], []
    named = sorted(suspect["rank"] for suspect in verdict["suspects"])
    culprits = sorted(truth["culprits"])
    if truth.get("culprits_any"):
        if set(named) - set(culprits):
            wrong.append(f"innocent {sorted(set(named) - set(culprits))}")
    elif named not in (culprits, truth.get("or_culprits")):
        wrong.append(f"names {named}, culprits {culprits}")
    for key in ("what", "category", "cause"):
        if truth.get(key) and verdict[key] not in truth[key]:
            wrong.append(f"{key} {verdict[key]}, expected {truth[key]}")
    if truth.get("seq") is not None and verdict["seq"] != truth["seq"]:
        wrong.append(f"seq {verdict['seq']}, expected {truth['seq']}")
    if truth.get("group") and verdict["group"] != truth["group"]:
        wrong.append(f"group {verdict['group']}, expected {truth['group']}")
    collectives = [truth["collective"]] if isinstance(truth.get("collective"), str) else truth.get("collective", [])
    if any(collectives) and verdict["collective"] not in collectives:
        wrong.append(f"collective {verdict['collective']}, expected {collectives}")
    if "missing_dumps" in truth and sorted(answer["missing_dumps"]) != truth["missing_dumps"]:
        wrong.append(f"missing dumps {answer['missing_dumps']}, expected {truth['missing_dumps']}")
    is_well = verdict["what"] == "healthy" or (verdict["what"] == "slow" and not named)
    if code != (0 if is_well else 1):
        wrong.append(f"exit code {code} for {verdict['what']}")
    return wrong


def main():
    mycroft, folders = sys.argv[1], sys.argv[2:]
    right = 0
    for folder in folders:
        with open(os.path.join(folder, "truth.json")) as f:
            truth = json.load(f)
        code, answer, said = ask(mycroft, os.path.join(folder, truth.get("dumps", ".")))
        wrong = judge(truth, code, answer)
        right += not wrong
        if wrong:
            print(f"WRONG {os.path.basename(os.path.normpath(folder))}: {'; '.join(wrong)}{' | ' + said if answer is None else ''}")
    print(f"{right} of {len(folders)} right")
    sys.exit(0 if right == len(folders) else 1)


if __name__ == "__main__":
    main()
