"""Checks objects against the OpenAPI file of Kubernetes, as strictly as the API server with fieldValidation=Strict: a
field that does not exist is a fault. The file comes with the Go module that the cluster tests build."""

import json
import re
from functools import cache
from pathlib import Path


@cache
def specification() -> Path | None:
    found = Path.home().glob("go/pkg/mod/k8s.io/kubernetes@*/api/openapi-spec/swagger.json")
    return max(found, default=None)


@cache
def definitions() -> dict:
    return json.loads(specification().read_text())["definitions"]


@cache
def kinds() -> dict:
    return {
        (f"{gvk['group']}/{gvk['version']}".lstrip("/"), gvk["kind"]): name
        for name, definition in definitions().items()
        for gvk in definition.get("x-kubernetes-group-version-kind", [])
    }


TYPES = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "array": list, "object": dict}


def faults(value, schema: dict, path: str = "") -> list[str]:
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[1]
        if name.endswith((".IntOrString", ".resource.Quantity")):
            return [] if isinstance(value, (str, int, float)) else [f"{path}: {value!r}"]
        return faults(value, definitions()[name], path)
    kind = schema.get("type")
    if value is None:
        return [f"{path}: null"]
    if kind and (not isinstance(value, TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
        return [f"{path}: {value!r} is no {kind}"]
    found = []
    if isinstance(value, dict):
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if properties is None and more is None:
            return []
        for key in schema.get("required", []):
            if key not in value:
                found.append(f"{path}.{key}: missing")
        for key, item in value.items():
            inner = (properties or {}).get(key, more)
            if inner is None:
                found.append(f"{path}.{key}: no such field")
            else:
                found += faults(item, inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += faults(item, schema.get("items", {}), f"{path}[{index}]")
    return found


LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


def check(document: dict) -> list[str]:
    name = kinds().get((document["apiVersion"], document["kind"]))
    if name is None:
        return [f"no such kind: {document['apiVersion']} {document['kind']}"]
    found = faults(document, definitions()[name])
    for key, value in document["metadata"].get("labels", {}).items():
        if not LABEL.fullmatch(value):
            found.append(f"label {key}: {value!r}")
    return found
