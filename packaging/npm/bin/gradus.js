#!/usr/bin/env node
"use strict";
// Runs the program of the platform package that npm installed beside this one.
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const SUPPORTED = ["linux-x64", "linux-x64-musl", "linux-arm64", "linux-arm64-musl", "darwin-x64", "darwin-arm64"];

/** The names of packages that can run here, the best one first. A static program runs with any libc. */
function platformNames() {
  const plain = `${process.platform}-${process.arch}`;
  if (process.platform !== "linux") return [plain];
  // Node reports the version of glibc only where it runs on one.
  const isGlibc = Boolean(process.report?.getReport().header.glibcVersionRuntime);
  return isGlibc ? [plain, `${plain}-musl`] : [`${plain}-musl`];
}

function findProgram() {
  if (process.env.GRADUS_BIN) return process.env.GRADUS_BIN;
  const names = platformNames();
  const file = process.platform === "win32" ? "gradus.exe" : "gradus";
  for (const name of names) {
    try {
      return require.resolve(`@gradus/cli-${name}/bin/${file}`);
    } catch {
      // The next name may be installed.
    }
  }
  const hint = names.some((name) => SUPPORTED.includes(name))
    ? `install again without --omit=optional, or name a program in GRADUS_BIN`
    : `there is no package for this platform; build from source and name the program in GRADUS_BIN`;
  console.error(`gradus: no program for ${names[0]}: @gradus/cli-${names[0]} is not installed\nhint: ${hint}`);
  process.exit(2);
}

const program = findProgram();
// Before the program starts, so that no signal can end this process without it. The program decides when to end. A terminal
// sends Ctrl-C to it as well, and a second one would be an order to break off.
const isTerminal = process.stdin.isTTY || process.stderr.isTTY;
process.on("SIGINT", () => isTerminal || child.kill("SIGINT"));
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
const child = spawn(program, process.argv.slice(2), { stdio: "inherit", windowsHide: true });
child.on("error", (error) => {
  console.error(`gradus: ${program}: cannot be run: ${error.message}`);
  process.exit(2);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
