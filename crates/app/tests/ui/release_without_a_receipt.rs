//! Only the app releases, and only with the receipt of a durable read event.
use merkwelt_app::Released;
use merkwelt_domain::ReadId;
use merkwelt_store::change::Receipt;

fn release(body: Vec<u8>, id: ReadId, receipt: Receipt) {
    let _ = Released::seal(body, id, receipt);
}

fn main() {}
