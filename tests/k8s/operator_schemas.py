"""What operators take, as far as deploy/k8s uses it: their CRDs are not among Kubernetes' own
schemas, and an API server drops a field it does not know without a word.

Sources, each read in the project's own repository: cert-manager `pkg/apis/certmanager/v1`
(types_certificate.go, types_issuer.go), prometheus-operator `pkg/apis/monitoring/v1`
(servicemonitor_types.go, podmonitor_types.go, prometheusrule_types.go, types.go), Kubeflow's
spark-operator `api/v1beta2/sparkapplication_types.go`.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 1}
NAMES: Schema = {"type": "object", "additionalProperties": TEXT}
TIME: Schema = {"type": "string", "pattern": r"^(\d+(ms|s|m|h|d|w|y))+$"}
HOURS: Schema = {"type": "string", "pattern": r"^\d+(h|m|s)$"}
"""Go's durations: cert-manager knows no days."""


def thing(*required: str, **fields: Schema) -> Schema:
    """An object of these fields and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def some(of: Schema) -> Schema:
    """A list of them, not an empty one."""
    return {"type": "array", "items": of, "minItems": 1}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"enum": list(values)}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    """A whole resource."""
    metadata = thing("name", name=TEXT, namespace=TEXT, labels=NAMES, annotations=NAMES)
    return thing(
        *("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


USAGES = one_of(
    *("signing", "digital signature", "content commitment", "key encipherment", "key agreement"),
    *("data encipherment", "cert sign", "crl sign", "server auth", "client auth", "any"),
)
CERTIFICATE = thing(
    *("secretName", "issuerRef"),
    secretName=TEXT,
    issuerRef=thing("name", name=TEXT, kind=one_of("Issuer", "ClusterIssuer"), group=TEXT),
    isCA=FLAG,
    commonName={"type": "string", "maxLength": 64},
    uris=some(TEXT),
    dnsNames=some(TEXT),
    usages=some(USAGES),
    duration=HOURS,
    renewBefore=HOURS,
    privateKey=thing(
        algorithm=one_of("RSA", "ECDSA", "Ed25519"),
        size=COUNT,
        encoding=one_of("PKCS1", "PKCS8"),
        rotationPolicy=one_of("Never", "Always"),
    ),
)
ISSUER = {
    "oneOf": [
        thing("selfSigned", selfSigned=thing()),
        thing("ca", ca=thing("secretName", secretName=TEXT)),
    ]
}

SECRET_KEY = thing("name", "key", name=TEXT, key=TEXT)
SECRET = thing("secret", secret=SECRET_KEY)
SCRAPING: dict[str, Schema] = {
    "port": TEXT,
    "path": TEXT,
    "scheme": one_of("http", "https"),
    "interval": TIME,
    "scrapeTimeout": TIME,
    "tlsConfig": thing(
        ca=SECRET, cert=SECRET, keySecret=SECRET_KEY, serverName=TEXT, insecureSkipVerify=FLAG
    ),
    "relabelings": some(thing("targetLabel", targetLabel=TEXT, replacement=TEXT)),
}
SELECTOR = thing("matchLabels", matchLabels=NAMES)
SERVICE_MONITOR = thing(
    *("selector", "endpoints"),
    jobLabel=TEXT,
    selector=SELECTOR,
    endpoints=some(thing("port", **SCRAPING)),
)
POD_MONITOR = thing(
    *("selector", "podMetricsEndpoints"),
    namespaceSelector=thing(any=FLAG, matchNames=some(TEXT)),
    selector=SELECTOR,
    podMetricsEndpoints=some(thing("port", **SCRAPING)),
)
RULE = thing(
    *("alert", "expr"),
    alert=TEXT,
    expr=TEXT,
    labels=NAMES,
    annotations=NAMES,
    **{"for": TIME},
)
RULES = thing("groups", groups=some(thing("name", "rules", name=TEXT, rules=some(RULE))))

SPARK_POD = {
    "cores": COUNT,
    "memory": {"type": "string", "pattern": r"^\d+[kmgt]$"},
    "serviceAccount": TEXT,
    "labels": NAMES,
    "env": some(thing("name", "value", name=TEXT, value=TEXT)),
    "volumeMounts": some(
        thing("name", "mountPath", name=TEXT, mountPath=TEXT, readOnly=FLAG),
    ),
    "podSecurityContext": thing(
        runAsNonRoot=FLAG,
        runAsUser=COUNT,
        runAsGroup={"type": "integer", "minimum": 0},
        fsGroup=COUNT,
        supplementalGroups=some({"type": "integer", "minimum": 0}),
        seccompProfile=thing("type", type=one_of("RuntimeDefault")),
    ),
    "securityContext": thing(
        allowPrivilegeEscalation=FLAG, capabilities=thing("drop", drop=some(TEXT))
    ),
}
VOLUME = {
    "oneOf": [
        thing(
            *("name", "hostPath"),
            name=TEXT,
            hostPath=thing("path", path=TEXT, type=one_of("Directory", "DirectoryOrCreate")),
        ),
        thing("name", "configMap", name=TEXT, configMap=thing("name", name=TEXT)),
        thing(
            *("name", "secret"),
            name=TEXT,
            secret=thing("secretName", secretName=TEXT, defaultMode=COUNT),
        ),
        thing(
            *("name", "emptyDir"),
            name=TEXT,
            emptyDir=thing(medium=one_of("Memory"), sizeLimit=TEXT),
        ),
    ]
}
SPARK = thing(
    *("type", "mode", "sparkVersion", "image", "mainApplicationFile", "driver", "executor"),
    type=one_of("Java", "Python", "Scala", "R"),
    mode=one_of("cluster", "client"),
    sparkVersion=TEXT,
    pythonVersion=one_of("2", "3"),
    image=TEXT,
    mainApplicationFile={"type": "string", "pattern": "^local:///"},
    restartPolicy=thing("type", type=one_of("Never", "Always", "OnFailure")),
    volumes=some(VOLUME),
    driver=thing(**SPARK_POD),
    executor=thing("instances", instances=COUNT, **SPARK_POD),
)

SCHEMAS: dict[tuple[str, str], Schema] = {
    (version, kind): resource(version, kind, spec)
    for version, kind, spec in (
        ("cert-manager.io/v1", "Certificate", CERTIFICATE),
        ("cert-manager.io/v1", "Issuer", ISSUER),
        ("monitoring.coreos.com/v1", "ServiceMonitor", SERVICE_MONITOR),
        ("monitoring.coreos.com/v1", "PodMonitor", POD_MONITOR),
        ("monitoring.coreos.com/v1", "PrometheusRule", RULES),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK),
    )
}
"""By apiVersion and kind."""
