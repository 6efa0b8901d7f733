//! How fast entries are appended and a log is verified offline.

use merkwelt_ledger::entry::{denial, genesis};
use merkwelt_ledger::export::{Header, Writer};
use merkwelt_ledger::{
    Actor, Checkpoint, Head, SignedCheckpoint, Signer, Token, UtcMillis, append, verify_export,
};

use super::{Figure, Options};
use crate::bench::clock;
use crate::bench::isolation::count;

const ORIGIN: &str = "bench.example/tenant/t-1";

/// Measures with small entries in batches of one, as single requests append them. Reads with three records each
/// are measured by `cargo bench -p merkwelt-ledger`.
pub(super) fn measure(options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let n: usize = if options.quick { 20_000 } else { 100_000 };
    let signer = Signer::from_seed(ORIGIN, &[1; 32])?;
    let (tenant, actor) = (Token::parse("t-1")?, Actor::Key(Token::parse("key-1")?));
    let (action, reason) = (Token::parse("recall")?, Token::parse("role")?);
    let header = Header { origin: ORIGIN.to_owned(), key: signer.verifier_key().clone() };
    let mut out = Writer::new(Vec::new(), &header)?;
    let mut head = Head::empty();
    let started = clock::now();
    for number in 0..n {
        let draft = if number == 0 {
            genesis(tenant.clone(), actor.clone(), signer.verifier_key().clone(), None)
        } else {
            denial(tenant.clone(), actor.clone(), action.clone(), reason.clone())
        };
        let at = UtcMillis::from_unix_ms(i64::try_from(number)?)?;
        let appended = append(&head, &[draft], at)?;
        for leaf in &appended.leaves {
            out.entry(leaf.index, &leaf.bytes)?;
        }
        head = appended.head;
    }
    let seconds = clock::millis_since(started) / 1e3;
    keep(Figure::new("ledger", "entries appended and exported", count(n) / seconds, "entries/s"));
    let checkpoint = Checkpoint::new(ORIGIN, head.size(), head.root())?;
    let export = out.finish(&SignedCheckpoint::sign(checkpoint, &signer)?)?;
    let started = clock::now();
    let report = verify_export(export.as_slice(), Some(signer.verifier_key()), None)?;
    let seconds = clock::millis_since(started) / 1e3;
    let rate = count(usize::try_from(report.size)?) / seconds;
    keep(Figure::new("ledger", "entries verified offline", rate, "entries/s").at_least(10_000.0));
    Ok(())
}
