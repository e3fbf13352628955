"""Puts the package and native files into one wheel for one platform. For `cargo xtask dist`; standard library only.

`pip wheel .` makes the wheel for every platform, without native files. This one has them in `mycroft/libexec`, and the
command `mycroft`.
"""
import argparse
import base64
import hashlib
import os
import re
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = "[console_scripts]\nmycroft = mycroft.native:run\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", required=True, help="tag, such as manylinux_2_28_x86_64")
    parser.add_argument("--out", required=True, help="folder that the wheel is written to")
    parser.add_argument("--sbom", help="list of components, put beside the metadata")
    parser.add_argument("--stored", action="store_true", help="do not compress")
    parser.add_argument("native", nargs="+", help="the program and libraries")
    args = parser.parse_args()
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        project = file.read()
    version = value(project, "version")
    info = f"mycroft-{version}.dist-info"
    contents = {f"mycroft/{name}": data for name, data in files(os.path.join(HERE, "src/mycroft"))}
    contents.update({f"mycroft/libexec/{os.path.basename(path)}": read(path) for path in args.native})
    contents[f"{info}/METADATA"] = metadata(project)
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: mycroft\nRoot-Is-Purelib: false\nTag: py3-none-{args.platform}\n".encode()
    )
    contents[f"{info}/entry_points.txt"] = f"{SCRIPTS}\n{entry_points(project)}".encode()
    if args.sbom:
        contents[f"{info}/sboms/{os.path.basename(args.sbom)}"] = read(args.sbom)
    licence = os.path.join(HERE, "../LICENSE")
    contents[f"{info}/licenses/LICENSE"] = read(licence)
    path = os.path.join(args.out, f"mycroft-{version}-py3-none-{args.platform}.whl")
    write(path, info, contents, args.stored)


def files(folder: str) -> "list[tuple[str, bytes]]":
    """Python sources and the mark of types, in order."""
    names = sorted(name for name in os.listdir(folder) if name.endswith((".py", ".typed")))
    return [(name, read(os.path.join(folder, name))) for name in names]


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def value(project: str, key: str) -> str:
    """A text of pyproject.toml. (tomllib came with Python 3.11.)"""
    found = re.search(rf'^{key} = "([^"]*)"$', project, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pyproject.toml: no {key}")
    return found.group(1)


def entry_points(project: str) -> str:
    """What the package offers to others, as pyproject.toml names it."""
    found = re.findall(r'^\[project\.entry-points\."([^"]+)"\]\n((?:\w+ = "[^"]*"\n)+)', project, re.MULTILINE)
    return "\n".join(f"[{group}]\n" + lines.replace('"', "") for group, lines in found)


def metadata(project: str) -> bytes:
    classifiers = re.search(r"^classifiers = \[(.*)\]$", project, re.MULTILINE)
    told = re.findall(r'"([^"]+)"', classifiers.group(1)) if classifiers else []
    head = [
        "Metadata-Version: 2.4",
        f"Name: {value(project, 'name')}",
        f"Version: {value(project, 'version')}",
        f"Summary: {value(project, 'description')}",
        f"License-Expression: {value(project, 'license')}",
        "License-File: LICENSE",
        f"Requires-Python: {value(project, 'requires-python')}",
        *(f"Classifier: {text}" for text in told),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(head).encode() + b"\n\n" + read(os.path.join(HERE, "README.md"))


def write(path: str, info: str, contents: "dict[str, bytes]", stored: bool) -> None:
    """Writes the archive, its list of sums last. Times are those of SOURCE_DATE_EPOCH."""
    record = ""
    for name, data in sorted(contents.items()):
        sum_ = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={sum_},{len(data)}\n"
    record += f"{info}/RECORD,,\n"
    # The format begins with 1980.
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
    compression = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in [*sorted(contents.items()), (f"{info}/RECORD", record.encode())]:
            entry = zipfile.ZipInfo(name, when)
            mode = 0o755 if name == "mycroft/libexec/mycroft" else 0o644
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, compression
            archive.writestr(entry, data)
    print(path)


if __name__ == "__main__":
    main()
