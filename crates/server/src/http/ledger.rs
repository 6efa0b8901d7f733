//! The tenant's ledger: its signed head, a proof for one entry, and the whole of it as a file that verifies
//! offline. Entries hold no content.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::try_unfold;
use merkwelt_app::{App, LedgerHead};
use merkwelt_authz::Request;
use merkwelt_ledger::export::{Header, Writer};
use merkwelt_ledger::{SignedCheckpoint, VerifierKey};

use super::Face;
use super::body::Id;
use super::caller::Asker;
use super::problem::{Code, Problem};

/// The key that verifies a checkpoint, as C2SP writes it.
pub(super) const VERIFIER_KEY: HeaderName = HeaderName::from_static("merkwelt-verifier-key");

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Entries that are read at once for an export.
const PAGE: u32 = 500;

/// The signed head
///
/// A checkpoint over everything durable now, as a C2SP signed note.
#[utoipa::path(
    get, path = "/v1/ledger/checkpoint", operation_id = "read_checkpoint", tag = "ledger",
    responses((
        status = 200, description = "A C2SP `tlog-checkpoint` in a signed note.", body = String,
        content_type = "text/plain",
        headers(("Merkwelt-Verifier-Key" = String, description = "The key that verifies it, as C2SP writes it."))
    ))
)]
pub(super) async fn checkpoint(State(face): State<Face>, asker: Asker) -> Result<Response, Problem> {
    let head = face.app.ledger_head(&asker.request).await?;
    let key = HeaderValue::from_str(&head.verifier_key).map_err(|_| Problem::of(Code::UNAVAILABLE))?;
    Ok(([(header::CONTENT_TYPE, TEXT), (VERIFIER_KEY, key)], head.note).into_response())
}

/// A proof for one entry
#[utoipa::path(
    get, path = "/v1/ledger/entries/{index}/proof", operation_id = "prove_entry", tag = "ledger",
    params(("index" = u64, Path, description = "Index of the entry, counted from 0.")),
    responses((
        status = 200, description = "A C2SP `tlog-proof`.", body = String, content_type = "text/plain"
    ))
)]
pub(super) async fn proof(
    State(face): State<Face>,
    asker: Asker,
    Id(index): Id<u64>,
) -> Result<Response, Problem> {
    let proof = face.app.ledger_proof(&asker.request, index).await?;
    Ok(([(header::CONTENT_TYPE, TEXT)], proof).into_response())
}

/// The whole ledger
///
/// One line for each entry and a signed checkpoint at the end; without it the file is cut short and does
/// not verify.
#[utoipa::path(
    get, path = "/v1/ledger/export", operation_id = "export_ledger", tag = "ledger",
    responses((
        status = 200, description = "JSON lines in the format `merkwelt-ledger-export`.", body = String,
        content_type = "application/x-ndjson"
    ))
)]
pub(super) async fn export(State(face): State<Face>, asker: Asker) -> Result<Response, Problem> {
    let head = face.app.ledger_head(&asker.request).await?;
    let export = Export::begin(face.app, asker.request, &head).map_err(|_| Problem::of(Code::UNAVAILABLE))?;
    let body = Body::from_stream(try_unfold(export, Export::page));
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

/// An export under way. Each page is authorised again, so that a revoked permission ends it.
struct Export {
    app: Arc<App>,
    request: Request,
    checkpoint: SignedCheckpoint,
    written: Written,
    /// `None` after the last line.
    writer: Option<Writer<Written>>,
    next: u64,
}

impl Export {
    fn begin(app: Arc<App>, request: Request, head: &LedgerHead) -> io::Result<Self> {
        let checkpoint = SignedCheckpoint::parse(&head.note).map_err(io::Error::other)?;
        let key = VerifierKey::parse(&head.verifier_key).map_err(io::Error::other)?;
        let written = Written::default();
        let line = Header { origin: checkpoint.checkpoint().origin().to_owned(), key };
        let writer = Writer::new(written.clone(), &line).map_err(io::Error::other)?;
        Ok(Self { app, request, checkpoint, written, writer: Some(writer), next: 0 })
    }

    /// The next page of lines.
    async fn page(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let Some(mut writer) = self.writer.take() else { return Ok(None) };
        let left = self.checkpoint.checkpoint().size().saturating_sub(self.next);
        let max = u32::try_from(left).unwrap_or(PAGE).min(PAGE);
        if max == 0 {
            writer.finish(&self.checkpoint).map_err(io::Error::other)?;
            return Ok(Some((self.written.take(), self)));
        }
        let leaves =
            self.app.ledger_entries(&self.request, self.next, max).await.map_err(io::Error::other)?;
        if leaves.is_empty() {
            return Err(io::Error::other("entries are missing"));
        }
        for leaf in leaves {
            writer.entry(self.next, &leaf).map_err(io::Error::other)?;
            self.next += 1;
        }
        self.writer = Some(writer);
        Ok(Some((self.written.take(), self)))
    }
}

/// What the writer wrote since the last page.
#[derive(Debug, Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
