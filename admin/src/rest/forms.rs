//! The JSON that the API takes and gives, as schemas (draft 2020-12) with an example each, for the OpenAPI document. Owns
//! their names; what a rule body may hold is told by the table that checks it. Must never be what checks a request.

use super::patch::PATCHABLE;
use serde_json::{Map, Value, json};
use warmpath_core::rule::body::schema;

/// A document of the API.
pub struct Form {
    /// Its name among the document's schemas.
    pub name: &'static str,
    /// What it may hold.
    pub schema: fn() -> Value,
    /// One that it may be.
    pub example: fn() -> Value,
}

/// All of them: what a row names stands here.
pub const FORMS: &[&Form] = &[
    &RULE,
    &RULES,
    &PATCH,
    &RULE_LIST,
    &APPLIED,
    &HOST,
    &HOST_LIST,
    &PARAMS,
    &SNAPSHOT,
    &RESTORED,
    &HISTORY,
    &ROLLED_BACK,
    &CAPABILITIES,
    &READY,
    &DROPPED,
    &SUCCESS,
    &ERROR,
    &ANY,
];

/// A rule body.
pub const RULE: Form = Form { name: "Rule", schema, example: rule };
/// A list of rule bodies.
pub const RULES: Form = Form {
    name: "Rules",
    schema: || json!({"type": "array", "items": {"$ref": "#/components/schemas/Rule"}}),
    example: || json!([rule()]),
};
/// A merge patch of a rule.
pub const PATCH: Form = Form {
    name: "RulePatch",
    schema: patch,
    example: || json!({"serviceArguments": {"sel": 4, "name": null}}),
};
/// All rules.
pub const RULE_LIST: Form = Form {
    name: "RuleList",
    schema: || {
        let read = json!({"type": "object", "required": ["serviceArguments", "endpoints"]});
        object(&["lbAttr"], json!({"lbAttr": {"type": "array", "items": read}}))
    },
    example: || json!({"lbAttr": [rule()]}),
};
/// What a list of rules changed.
pub const APPLIED: Form = Form {
    name: "Applied",
    schema: || {
        object(
            &["result", "changed"],
            json!({"result": {"const": "Success"}, "changed": {"type": "integer"}}),
        )
    },
    example: || json!({"result": "Success", "changed": 1}),
};
/// A probed host.
pub const HOST: Form = Form { name: "Host", schema: host, example: a_host };
/// All probed hosts.
pub const HOST_LIST: Form = Form {
    name: "HostList",
    schema: || {
        object(&["Attr"], json!({"Attr": {"type": "array", "items": {"$ref": "#/components/schemas/Host"}}}))
    },
    example: || json!({"Attr": [a_host()]}),
};
/// The log's level.
pub const PARAMS: Form = Form {
    name: "Params",
    schema: || object(&["logLevel"], json!({"logLevel": {"enum": ["info"]}})),
    example: || json!({"logLevel": "info"}),
};
/// All that the operator wants.
pub const SNAPSHOT: Form = Form {
    name: "Snapshot",
    schema: || {
        object(
            &["kind", "schema", "generation", "rules"],
            json!({
                "kind": {"const": "warmpath-snapshot"},
                "schema": {"type": "string", "pattern": r"^1\.\d+$"},
                "generation": {"type": "integer", "minimum": 0},
                "rules": {"type": "array", "items": {"$ref": "#/components/schemas/Rule"}},
                "endpoints": {"type": "array", "items": {"$ref": "#/components/schemas/Host"}},
            }),
        )
    },
    example: || json!({"kind": "warmpath-snapshot", "schema": "1.1", "generation": 1, "rules": [rule()], "endpoints": []}),
};
/// What a restore changes.
pub const RESTORED: Form = Form {
    name: "Restored",
    schema: || {
        let list = json!({"type": "array", "items": {"type": "object"}});
        object(
            &["mode", "created", "replaced", "deleted", "unchanged"],
            json!({"mode": mode(), "created": list, "replaced": list, "deleted": list, "unchanged": {"type": "integer"}}),
        )
    },
    example: || json!({"mode": "dry-run", "created": [], "replaced": [], "deleted": [], "unchanged": 1}),
};
/// The bodies that were applied of a rule.
pub const HISTORY: Form = Form {
    name: "History",
    schema: || {
        let number = json!({"type": "integer", "minimum": 0});
        let change = object(
            &["number", "at", "body"],
            json!({"number": number, "at": number, "body": {"type": "string"}}),
        );
        object(
            &["id", "changes"],
            json!({"id": {"type": "string"}, "changes": {"type": "array", "maxItems": 10, "items": change}}),
        )
    },
    example: || json!({"id": "chat", "name": "", "changes": [{"number": 1, "at": 1_700_000_000, "body": rule().to_string()}]}),
};
/// What going back changes.
pub const ROLLED_BACK: Form = Form {
    name: "RolledBack",
    schema: || {
        let difference = object(&["member", "now", "then"], json!({"member": {"type": "string"}}));
        object(
            &["mode", "number", "differences"],
            json!({"mode": mode(), "differences": {"type": "array", "items": difference}}),
        )
    },
    example: || json!({"mode": "dry-run", "number": 1, "differences": [{"member": "serviceArguments.sel", "now": 0, "then": 4}]}),
};
/// What this build can do.
pub const CAPABILITIES: Form = Form {
    name: "Capabilities",
    schema: || {
        let capability = object(
            &["name", "ready", "reason_code", "reason"],
            json!({"name": {"type": "string"}, "ready": {"type": "boolean"}, "reason_code": {"type": "string"}, "reason": {"type": "string"}}),
        );
        object(&["capabilities"], json!({"capabilities": {"type": "array", "items": capability}}))
    },
    example: || json!({"capabilities": [{"name": "chwbl", "ready": true, "reason_code": "", "reason": ""}]}),
};
/// Whether requests are welcome.
pub const READY: Form = Form {
    name: "Ready",
    schema: || {
        let list = json!({"type": "array", "items": {"type": "string"}});
        object(
            &["ready", "reasons", "warnings", "boot"],
            json!({"ready": {"type": "boolean"}, "reasons": list, "warnings": list, "boot": {"type": "object"}}),
        )
    },
    example: || json!({"ready": true, "reasons": [], "warnings": [], "boot": {"degraded": false}}),
};
/// Connections that were closed.
pub const DROPPED: Form = Form {
    name: "Dropped",
    schema: || object(&["droppedConnections"], json!({"droppedConnections": {"type": "integer"}})),
    example: || json!({"droppedConnections": 0}),
};
/// An accepted change.
pub const SUCCESS: Form = Form {
    name: "Success",
    schema: || object(&["result"], json!({"result": {"const": "Success"}})),
    example: || json!({"result": "Success"}),
};
/// A refusal.
pub const ERROR: Form = Form {
    name: "Error",
    schema: || {
        object(
            &["code", "message", "result", "reason_code"],
            json!({
                "code": {"type": "integer", "description": "the status"},
                "message": {"type": "string", "description": "its class"},
                "result": {"type": "string", "description": "the sentence that scripts search"},
                "reason_code": {"type": "string", "description": "a word for programs"},
                "member": {"type": "string"},
                "allowed": {},
            }),
        )
    },
    example: || {
        json!({
            "code": 404, "message": "Resource not found", "reason_code": "no_such_rule",
            "result": "lbrule not-exists error: no such rule: 127.0.0.1:80/tcp",
        })
    },
};
/// An object that is told of nowhere else.
pub const ANY: Form = Form { name: "Told", schema: || json!({"type": "object"}), example: || json!({}) };

fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

fn mode() -> Value {
    json!({"enum": ["dry-run", "commit"]})
}

fn rule() -> Value {
    json!({
        "serviceArguments": {"externalIP": "127.0.0.1", "port": 8080, "protocol": "tcp", "mode": 4, "sel": 4},
        "endpoints": [{"endpointIP": "127.0.0.1", "targetPort": 8001, "weight": 1}],
    })
}

/// The members of a rule that may change one by one; null takes one away.
fn patch() -> Value {
    let whole = schema();
    let known = &whole["properties"]["serviceArguments"]["properties"];
    let nullable = |name: &&str| (name.to_string(), json!({"anyOf": [known[*name], {"type": "null"}]}));
    let properties: Map<String, Value> = PATCHABLE.iter().map(nullable).collect();
    let service = json!({"type": "object", "additionalProperties": false, "properties": properties});
    json!({
        "type": "object", "additionalProperties": false, "required": ["serviceArguments"],
        "properties": {"serviceArguments": service},
    })
}

fn host() -> Value {
    let number = |most: u32| json!({"type": "integer", "minimum": 0, "maximum": most});
    let text = json!({"type": "string", "maxLength": 255});
    json!({
        "type": "object", "additionalProperties": false, "required": ["hostName"],
        "properties": {
            "hostName": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
            "name": text, "probeReq": text, "probeResp": text,
            "probeType": {"enum": ["", "tcp", "http", "none"]},
            "probePort": number(65_535),
            "probeDuration": number(86_400),
            "inactiveReTries": number(100),
            "currState": {"readOnly": true},
            "minDelay": {"readOnly": true}, "avgDelay": {"readOnly": true}, "maxDelay": {"readOnly": true},
        },
    })
}

fn a_host() -> Value {
    json!({"hostName": "10.0.0.1", "name": "engine", "probeType": "http", "probeReq": "/health", "probePort": 8000})
}
