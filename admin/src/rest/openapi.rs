//! The OpenAPI 3.1 document, made of the table of rows. Must never tell of a path that is not served, nor leave one out.

use super::forms::{self, FORMS, Form};
use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::routes::{Answered, Call, ROOT, Route, routes};
use serde_json::{Map, Value, json};

/// The row of the document.
pub const ROUTES: &[Route] =
    &[Route::own("/netlox/v1/openapi.json", openapi, "this API as an OpenAPI 3.1 document")];

/// Statuses that any path may refuse with.
const REFUSALS: [(&str, &str); 8] = [
    ("400", "an argument or body that can't be"),
    ("401", "no token, where tokens are asked for"),
    ("403", "a request of a web page"),
    ("404", "no such rule, host or change"),
    ("409", "there already, ambiguous, or fixed while the rule exists"),
    ("412", "the gateway's environment lacks what the rule needs"),
    ("422", "a value outside of its schema"),
    ("503", "the gateway is going down, or the event core silent"),
];

fn openapi(_: &Gateway, _: &Call) -> Answered {
    Ok(Answer::json(200, &document()))
}

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in routes() {
        let path = route.path.strip_prefix(ROOT).filter(|path| !path.is_empty()).unwrap_or("/");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[route.method.to_ascii_lowercase()] = operation(route);
    }
    let schemas: Map<String, Value> =
        FORMS.iter().map(|form| (form.name.to_string(), schema(form))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "warmpath admin API", "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": ROOT}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn schema(form: &Form) -> Value {
    let mut schema = (form.schema)();
    schema["examples"] = json!([(form.example)()]);
    schema
}

fn operation(route: &Route) -> Value {
    let mut responses = Map::new();
    let given = match route.gives {
        Some(form) => content(form),
        None => json!({"text/plain": {"schema": {"type": "string"}}}),
    };
    responses.insert("200".into(), json!({"description": route.doc, "content": given}));
    for (status, what) in REFUSALS {
        responses.insert(status.into(), json!({"description": what, "content": content(&forms::ERROR)}));
    }
    if route.takes.is_some() {
        for (status, what) in
            [("413", "a body that is too large"), ("507", "a full disk; nothing was changed")]
        {
            responses.insert(status.into(), json!({"description": what, "content": content(&forms::ERROR)}));
        }
    }
    if route.path.ends_with("/status/ready") {
        responses
            .insert("503".into(), json!({"description": "not ready", "content": content(&forms::READY)}));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.doc,
        "parameters": parameters(route),
        "responses": responses,
    });
    if let Some(form) = route.takes {
        operation["requestBody"] = json!({"required": true, "content": content(form)});
    }
    operation
}

fn content(form: &Form) -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{}", form.name)}}})
}

fn parameters(route: &Route) -> Vec<Value> {
    let names = route.path.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'));
    let path = names.map(|name| {
        let schema = match name {
            "port" | "portmax" => json!({"type": "integer", "minimum": 0, "maximum": 65_535}),
            "protocol" => json!({"enum": ["tcp"]}),
            "ip" => json!({"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}),
            _ => json!({"type": "string", "minLength": 1}),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    let query = route.query.iter().map(|member| {
        json!({
            "name": member.name, "in": "query", "required": member.needed, "description": member.doc,
            "schema": {"type": "string"},
        })
    });
    path.chain(query).collect()
}

/// The method and the words of the path.
fn operation_id(route: &Route) -> String {
    let path = route.path.strip_prefix(ROOT).unwrap_or(route.path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    format!("{}_{}", route.method.to_ascii_lowercase(), words.join("_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use boon::{Compiler, Draft, Schemas};
    use std::collections::BTreeSet;

    #[test]
    fn every_served_path_is_told_of_once_and_no_other_is() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let told = paths.values().map(|item| item.as_object().unwrap().len()).sum::<usize>();
        assert_eq!(told, routes().count());
        let mut ids = BTreeSet::new();
        for route in routes() {
            let path = route.path.strip_prefix(ROOT).filter(|path| !path.is_empty()).unwrap_or("/");
            let operation = &paths[path][route.method.to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.doc, "{path}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_string()), "{path}");
        }
    }

    #[test]
    fn every_example_is_valid_by_its_schema_and_every_form_a_row_names_is_there() {
        let document = document();
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.enable_format_assertions();
        compiler.add_resource("http://localhost/openapi.json", document.clone()).unwrap();
        let mut of = |name: &str| {
            let place = format!("http://localhost/openapi.json#/components/schemas/{name}");
            compiler.compile(&place, &mut schemas).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let compiled: Vec<_> = FORMS.iter().map(|form| (form, of(form.name))).collect();
        for (form, index) in &compiled {
            schemas.validate(&(form.example)(), *index).unwrap_or_else(|e| panic!("{}: {e}", form.name));
        }
        let named = routes().flat_map(|route| route.takes.into_iter().chain(route.gives));
        for form in named {
            assert!(
                FORMS.iter().any(|known| known.name == form.name),
                "{} is not among the forms",
                form.name
            );
        }
        let (_, rule) = compiled.iter().find(|(form, _)| form.name == "Rule").unwrap();
        for wrong in [json!({}), json!({"serviceArguments": {"externalIP": "x", "port": 1}, "endpoints": []})]
        {
            assert!(schemas.validate(&wrong, *rule).is_err(), "{wrong}");
        }
    }
}
