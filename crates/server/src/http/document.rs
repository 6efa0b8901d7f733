//! The document of the API, OpenAPI 3.1: what is common to all operations is added here, from the same
//! tables that the code runs by, so that no handler can forget it.

use merkwelt_authz::Role;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Components, Content, Header, HeaderBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder,
    PathItem, Ref, RefOr, Required, Response, ResponseBuilder, SecurityRequirement,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::precise;
use super::problem::{Code, FieldError, MEDIA_TYPE, ProblemView};
use super::routes::ROUTES;

const DESCRIPTION: &str = "\
Merkwelt keeps what an agent may know about the people it works for, and delivers it in a token budget, with \
evidence for every read.

**Keys.** Every request under `/v1` needs exactly one API key, as `Authorization: Bearer`, `Authorization: Token` \
or `X-API-Key`. `/healthz`, `/readyz`, `/metrics` and `/openapi.json` need none. The key names the tenant; groups come \
from the directory. No field of a request can name either.

**Subjects.** `Merkwelt-Subject` names the person a request is for, in percent-encoded UTF-8. Without it a request \
sees only what everybody in the tenant may see.

**Evidence.** Content is sent only after its read event is durable. The headers `Merkwelt-Read-Id`, \
`Merkwelt-Ledger-Index` and `Merkwelt-Ledger-Leaf` say where.

**Repeating.** A write of a memory or a conversation with the same `Idempotency-Key` and the same content is done once \
and answered alike; with other content it is refused. Other writes refuse the header.

**Refusals** are problems (RFC 9457). Their codes are stable:

| code | status | when |
|---|---|---|
";

/// Real answers, kept equal to the code by a test.
pub(super) const EXAMPLES: &[(&str, &str, &str)] = &[
    ("remember", "201", include_str!("examples/remember.json")),
    ("recall", "200", include_str!("examples/recall.json")),
    ("assemble_context", "200", include_str!("examples/assemble_context.json")),
    ("open_conversation", "201", include_str!("examples/open_conversation.json")),
    ("append_turn", "201", include_str!("examples/append_turn.json")),
];

/// Parameters of all operations under `/v1`.
const HEADERS: [(&str, &str); 5] = [
    ("Merkwelt-Subject", "The subject the request is for, in percent-encoded UTF-8."),
    ("Merkwelt-Purpose", "Why data are processed; part of the evidence. `assist` if absent."),
    ("Merkwelt-Run", "The caller's own run, for the evidence."),
    ("Merkwelt-Call", "The call inside the run, for the evidence."),
    ("traceparent", "Trace and span of the caller (W3C), for the evidence. A malformed one is ignored."),
];

const IDEMPOTENCY: (&str, &str) =
    ("Idempotency-Key", "1 to 128 visible ASCII characters; makes a repeated request harmless.");

/// Operations whose answer can be given again.
const REPEATABLE: [&str; 8] = [
    "remember",
    "remember_many",
    "correct_memory",
    "retract_memory",
    "open_conversation",
    "append_turn",
    "summarise_conversation",
    "delete_conversation",
];

/// Operations that may not fit the present state.
const CONFLICTS: [&str; 12] = [
    "revoke_key",
    "summarise_conversation",
    "open_conversation",
    "hand_over_conversation",
    "correct_memory",
    "create_group",
    "create_tenant",
    "register_source",
    "put_revision",
    "publish_revision",
    "restore_revision",
    "discard_revision",
];

/// Operations that deliver content.
const READS: [&str; 11] = [
    "hand_over_conversation",
    "resolve_citation",
    "look_up_answer",
    "check_authorization",
    "list_memories",
    "read_memory",
    "recall",
    "assemble_context",
    "read_pack",
    "list_conversations",
    "read_conversation",
];

/// What each operation is there for, by the numbers of `docs/requirements.md`.
const REQUIREMENTS: &[(&str, &str)] = &[
    ("remember", "R-006, R-017, R-070, I-11"),
    ("list_memories", "R-023, R-038, R-071, R-080"),
    ("remember_many", "R-006, R-070"),
    ("read_memory", "R-034, R-038, R-080"),
    ("correct_memory", "R-017, L-07"),
    ("retract_memory", "R-017, R-034"),
    ("recall", "R-007, R-023, R-080, R-083"),
    ("assemble_context", "R-003, R-008, R-013, R-037, R-095"),
    ("read_pack", "R-096"),
    ("open_conversation", "R-001, R-027, R-028"),
    ("list_conversations", "R-028"),
    ("read_conversation", "R-016, R-034"),
    ("delete_conversation", "R-026"),
    ("append_turn", "R-001, R-027, R-058"),
    ("summarise_conversation", "R-018, R-019"),
    ("hand_over_conversation", "R-033"),
    ("organisation_switch", "R-033"),
    ("set_organisation_switch", "R-033"),
    ("list_groups", "R-035"),
    ("create_group", "R-035"),
    ("delete_group", "R-029, R-035"),
    ("list_members", "R-035"),
    ("change_members", "R-029, R-035"),
    ("list_keys", "R-031"),
    ("create_key", "R-031"),
    ("revoke_key", "R-029"),
    ("list_tenants", "R-022"),
    ("create_tenant", "R-022"),
    ("read_checkpoint", "R-097, L-22"),
    ("export_ledger", "R-097, R-099"),
    ("prove_entry", "L-22"),
];

/// Everything but the paths.
pub(super) fn base() -> OpenApi {
    let license = LicenseBuilder::new().name("Apache License 2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Merkwelt")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(description()))
        .license(Some(license))
        .build();
    let mut components = Components::new();
    components.schemas.insert("Problem".to_owned(), ProblemView::schema());
    components.schemas.insert(FieldError::name().into_owned(), FieldError::schema());
    for (name, description) in HEADERS.into_iter().chain([IDEMPOTENCY]) {
        components.parameters.insert(name.to_owned(), parameter(name, description).into());
    }
    for status in statuses() {
        components.responses.insert(problem_name(status), problem(status).into());
    }
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API key.")).build();
    let header = ApiKey::Header(ApiKeyValue::with_description("X-API-Key", "An API key."));
    components.security_schemes.insert("bearer".to_owned(), SecurityScheme::Http(bearer).into());
    components.security_schemes.insert("api_key".to_owned(), SecurityScheme::ApiKey(header).into());
    OpenApiBuilder::new().info(info).components(Some(components)).build()
}

fn description() -> String {
    let row = |code: &Code| format!("| `{}` | {} | {} |\n", code.name, code.status, code.meaning);
    Code::ALL.iter().map(row).fold(DESCRIPTION.to_owned(), |text, row| text + &row)
}

/// Adds to every operation what it shares with the others.
pub(super) fn complete(mut document: OpenApi) -> OpenApi {
    if let Some(components) = &mut document.components {
        precise::bodies(components);
    }
    for (path, item) in &mut document.paths.paths {
        let needs_key = path.starts_with("/v1/");
        for (method, operation) in operations(item) {
            precise::parameters(path, operation);
            complete_operation(method, path, needs_key, operation);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    [("GET", get), ("PUT", put), ("POST", post), ("DELETE", delete)]
        .into_iter()
        .filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}

fn complete_operation(method: &str, path: &str, needs_key: bool, operation: &mut Operation) {
    let id = operation.operation_id.clone().unwrap_or_default();
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        add_headers(&id, response);
        let example = EXAMPLES.iter().find(|(of, code, _)| *of == id && code == status);
        if let Some((_, _, json)) = example {
            add_example(response, json);
        }
    }
    for status in statuses().into_iter().filter(|status| may_answer(*status, method, path, &id)) {
        let reference = Ref::from_response_name(problem_name(status));
        operation.responses.responses.insert(status.to_string(), reference.into());
    }
    if needs_key {
        let told = told(method, path, &id);
        operation.description =
            Some(operation.description.take().map_or(told.clone(), |d| format!("{d}\n\n{told}")));
        let required =
            [SecurityRequirement::new("bearer", [""; 0]), SecurityRequirement::new("api_key", [""; 0])];
        operation.security = Some(required.into());
        let idempotency = REPEATABLE.contains(&id.as_str()).then_some(IDEMPOTENCY);
        let names = HEADERS.into_iter().chain(idempotency).map(|(name, _)| name);
        let references = names.map(|name| RefOr::Ref(Ref::new(format!("#/components/parameters/{name}"))));
        operation.parameters.get_or_insert_default().extend(references);
    }
}

/// Which keys may do it, and what for.
fn told(method: &str, path: &str, id: &str) -> String {
    let actions = ROUTES.iter().find(|(m, r, _)| *m == method && *r == path).map_or(&[][..], |(_, _, a)| a);
    let may = |role: &Role| actions.iter().any(|action| role.may(*action));
    let roles: Vec<_> =
        Role::ALL.iter().filter(|role| may(role)).map(|role| format!("`{}`", role.name())).collect();
    let roles = format!("Roles: {}.", roles.join(", "));
    match REQUIREMENTS.iter().find(|(of, _)| *of == id) {
        Some((_, numbers)) => format!("{roles} Serves {numbers}."),
        None => roles,
    }
}

/// Which refusals an operation can answer with. 405 belongs to addresses, not to operations.
fn may_answer(status: u16, method: &str, path: &str, id: &str) -> bool {
    if !path.starts_with("/v1/") {
        return status == 500 || (status == 503 && path == "/readyz");
    }
    let has_body = matches!(method, "POST" | "PUT");
    match status {
        405 => false,
        408 | 413 => has_body || method == "DELETE",
        415 => has_body,
        409 => CONFLICTS.contains(&id),
        410 => matches!(id, "read_pack" | "restore_revision"),
        422 => REPEATABLE.contains(&id) || id == "assemble_context",
        _ => true,
    }
}

/// The statuses of all codes, in order.
fn statuses() -> std::collections::BTreeSet<u16> {
    Code::ALL.iter().map(|code| code.status).collect()
}

fn problem_name(status: u16) -> String {
    format!("Problem{status}")
}

fn problem(status: u16) -> Response {
    let codes: Vec<_> = Code::ALL.iter().filter(|code| code.status == status).collect();
    let lines: Vec<_> = codes.iter().map(|code| format!("`{}`: {}", code.name, code.meaning)).collect();
    let mut response = ResponseBuilder::new()
        .description(lines.join("\n\n"))
        .content(MEDIA_TYPE, Content::new(Some(Ref::from_schema_name("Problem"))))
        .header("X-Request-Id", text_header("The id of this request."))
        .build();
    let of_status: &[(&str, &str)] = match status {
        401 => &[("WWW-Authenticate", "`Bearer`.")],
        405 => &[("Allow", "The methods there are.")],
        429 => &[("Retry-After", "Seconds.")],
        503 => &[("Retry-After", "Seconds; for `busy`, `overloaded` and `timeout`.")],
        _ => &[],
    };
    for (name, description) in of_status {
        response.headers.insert((*name).to_owned(), text_header(description).into());
    }
    response
}

fn add_headers(id: &str, response: &mut Response) {
    let of_reads: &[(&str, &str)] = &[
        ("Merkwelt-Read-Id", "The read event."),
        ("Merkwelt-Ledger-Index", "Index of the read event in the tenant's ledger."),
        ("Merkwelt-Ledger-Leaf", "Leaf hash of the read event in hexadecimal."),
    ];
    let reads = if READS.contains(&id) { of_reads } else { &[] };
    for (name, description) in reads.iter().chain(&[("X-Request-Id", "The id of this request.")]) {
        response.headers.insert((*name).to_owned(), text_header(description).into());
    }
}

fn add_example(response: &mut Response, json: &str) {
    if let Some(RefOr::T(content)) = response.content.get_mut("application/json") {
        content.example = serde_json::from_str(json).ok();
    }
}

fn text() -> Object {
    ObjectBuilder::new().schema_type(Type::String).build()
}

fn text_header(description: &str) -> Header {
    HeaderBuilder::new().schema(Some(Schema::from(text()))).description(Some(description)).build()
}

fn parameter(name: &str, description: &str) -> Parameter {
    let mut parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(Schema::from(text())))
        .build();
    precise::parameter("", &mut parameter);
    parameter
}
