"""The wheel: the program as a script and the Python package of packaging/python, under the name and with the metadata of
its pyproject.toml. Formats: binary distribution format 1.0, core metadata 2.4 (licences), PEP 770 (bill of materials)."""
import base64
import hashlib
import pathlib

from reproducible import write_zip

try:
    import tomllib
except ModuleNotFoundError:  # Python before 3.11; pip brings the same reader.
    from pip._vendor import tomli as tomllib


def core_metadata(project, version, licence_files, readme):
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}", f"Summary: {project['description']}"]
    lines += [f"License-Expression: {project['license']}", *(f"License-File: {name}" for name in licence_files)]
    if project.get("keywords"):
        lines.append(f"Keywords: {','.join(project['keywords'])}")
    lines += [f"Classifier: {classifier}" for classifier in project.get("classifiers", [])]
    lines.append(f"Requires-Python: {project['requires-python']}")
    lines += [f"Requires-Dist: {needed}" for needed in project.get("dependencies", [])]
    for extra, needed in sorted(project.get("optional-dependencies", {}).items()):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {add_marker(requirement, extra)}" for requirement in needed]
    lines += [f"Project-URL: {label}, {url}" for label, url in project.get("urls", {}).items()]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme])


def add_marker(requirement, extra):
    """A requirement that only counts for this extra."""
    plain, _, marker = requirement.partition(";")
    own = f"extra == '{extra}'"
    return f"{plain.strip()} ; ({marker.strip()}) and {own}" if marker else f"{plain.strip()} ; {own}"


def entry_points(project):
    groups = {**project.get("entry-points", {}), **({"console_scripts": project["scripts"]} if project.get("scripts") else {})}
    return "".join(f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in sorted(entries.items())) + "\n" for group, entries in sorted(groups.items()))


def write_wheel(folder, source, version, platform, program, licences, sbom, epoch):
    """`licences` are names with texts. Returns the path of the wheel."""
    described = tomllib.loads((source / "pyproject.toml").read_text())
    project, package_root = described["project"], source / described["tool"]["maturin"]["python-source"]
    info = f"{project['name']}-{version}.dist-info"
    entries = {}
    for path in sorted(package_root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            entries[path.relative_to(package_root).as_posix()] = (path.read_bytes(), 0o644)
    entries[f"{project['name']}-{version}.data/scripts/{platform.program_name}"] = (program, 0o755)
    readme = (source / project["readme"]).read_text()
    tags = [f"py3-none-{tag}" for tag in platform.wheel_tags]
    wheel = "\n".join(["Wheel-Version: 1.0", "Generator: gradus scripts/dist", "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]) + "\n"
    entries[f"{info}/METADATA"] = (core_metadata(project, version, licences, readme).encode(), 0o644)
    entries[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    points = entry_points(project)
    if points:
        entries[f"{info}/entry_points.txt"] = (points.encode(), 0o644)
    for name, text in licences.items():
        entries[f"{info}/licenses/{name}"] = (text.encode(), 0o644)
    entries[f"{info}/sboms/gradus.cdx.json"] = (sbom.encode(), 0o644)
    # The specification recommends that the metadata comes last.
    entries = dict(sorted(entries.items(), key=lambda item: (item[0].startswith(info), item[0])))
    rows = [f"{name},sha256={url_safe_digest(content)},{len(content)}" for name, (content, _) in entries.items()]
    entries[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]).encode() + b"\n", 0o644)
    path = pathlib.Path(folder) / f"{project['name']}-{version}-py3-none-{'.'.join(platform.wheel_tags)}.whl"
    write_zip(path, entries, epoch)
    return path


def url_safe_digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
