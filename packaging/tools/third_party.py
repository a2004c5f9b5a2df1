"""Whose code is in the program: the notices that their licences demand, and a bill of materials (CycloneDX).

Both come from `cargo tree` (what is linked for this target, without build tools and macros), `cargo metadata` and the
licence files of the crates. cargo-cyclonedx would also list build tools, and writes a new serial number each time.
"""
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import uuid

LICENCE_FILE = re.compile(r"^(li[cs]en[cs]e|copying|copyright|notice|unlicense|patents|third.?party)", re.IGNORECASE)
# Sources of C that crates carry keep their own licences one or two folders below.
LICENCE_DEPTH = 3
CYCLONEDX_NAMESPACE = uuid.UUID("3f1f7d6e-8a0c-5c8a-9d0f-6d5b1f0c2a11")


def linked_crates(root, target, has_jemalloc):
    """Crates from registries that are linked into the program, with their metadata, and who needs whom."""
    features = ["--features", "dist" if has_jemalloc else "parquet,s3"]
    tree = ["cargo", "tree", "--locked", "-p", "gradus", "--edges", "normal,no-proc-macro", "--target", target, *features, "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(tree, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
    linked = {tuple(line.split()[:2]) for line in lines if line.strip()}
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target, "--manifest-path", "crates/gradus/Cargo.toml", *features]
    known = json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True).stdout)
    packages = {p["id"]: p for p in known["packages"] if (p["name"], f"v{p['version']}") in linked}
    missing = linked - {(p["name"], f"v{p['version']}") for p in packages.values()}
    if missing:
        raise RuntimeError(f"cargo metadata lacks {sorted(missing)}")
    needs = {node["id"]: sorted(d["pkg"] for d in node["deps"] if d["pkg"] in packages and any(kind["kind"] is None for kind in d["dep_kinds"]))
             for node in known["resolve"]["nodes"] if node["id"] in packages}
    return packages, needs


def is_foreign(package):
    return package["source"] is not None


def licence_texts(package):
    """Names and texts of the licence files of a crate, those of C sources in it included."""
    folder = pathlib.Path(package["manifest_path"]).parent
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if len(inside.parts) <= LICENCE_DEPTH and LICENCE_FILE.match(path.name) and path.is_file() and path.suffix not in (".rs", ".c", ".h", ".py", ".html"):
            found[str(inside)] = path.read_text(errors="replace").strip()
    return found


def write_notices(packages):
    """One text with every licence, each text once, with the crates that it covers."""
    covered, without = collections.defaultdict(list), []
    foreign = sorted(filter(is_foreign, packages.values()), key=lambda p: (p["name"], p["version"]))
    for package in foreign:
        texts = licence_texts(package)
        if not texts:
            without.append(package)
        for text in dict.fromkeys(texts.values()):
            covered[" ".join(text.split())].append((text, f"{package['name']} {package['version']}"))
    parts = ["Gradus contains the following third-party software.", ""]
    parts += [f"{p['name']} {p['version']}: {p['license'] or 'see below'} ({p['repository'] or 'https://crates.io/crates/' + p['name']})" for p in foreign]
    parts += ["The Rust standard library: MIT OR Apache-2.0 (https://github.com/rust-lang/rust)"]
    if without:
        parts += ["", "These carry no licence file; the licence is the one in the list above:", ""]
        parts += [f"{p['name']} {p['version']}, by {', '.join(p['authors']) or 'its contributors'}" for p in without]
    for uses in sorted(covered.values(), key=lambda uses: uses[0][1]):
        parts += ["", "-" * 80, ", ".join(dict.fromkeys(name for _, name in uses)), "-" * 80, "", uses[0][0]]
    return "\n".join(parts) + "\n", without


def lock_checksums(root):
    """SHA-256 of each crate as the lock file pins it."""
    text = (root / "Cargo.lock").read_text()
    found = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"', text)
    return {(name, version): checksum for name, version, checksum in found}


def write_sbom(packages, needs, root, version, target, program_digest, epoch_text):
    """CycloneDX 1.6. The same lock file, target and program give the same document."""
    checksums = lock_checksums(root)

    def reference(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package):
        described = {"type": "library", "bom-ref": reference(package), "name": package["name"], "version": package["version"], "purl": reference(package)}
        if not is_foreign(package):
            # Crates of the workspace are in no registry.
            del described["purl"]
        if package["license"]:
            described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["repository"]:
            described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return described

    main = next(p for p in packages.values() if p["name"] == "gradus")
    others = sorted((p for p in packages.values() if p is not main), key=lambda p: (p["name"], p["version"]))
    subject = {"type": "application", "bom-ref": reference(main), "name": "gradus", "version": version, "licenses": [{"expression": "Apache-2.0"}],
               "hashes": [{"alg": "SHA-256", "content": program_digest}], "properties": [{"name": "gradus:target", "value": target}]}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": epoch_text, "component": subject},
        "components": [component(package) for package in others],
        "dependencies": [{"ref": reference(packages[key]), "dependsOn": sorted({reference(packages[need]) for need in needs[key]})} for key in sorted(needs, key=lambda key: reference(packages[key]))],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(CYCLONEDX_NAMESPACE, digest)}"
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
