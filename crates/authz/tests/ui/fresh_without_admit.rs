//! The receipt of freshness has one maker (I-7).

use merkwelt_domain::freshness::Fresh;

fn serve<T>(candidate: T) -> Fresh<T> {
    Fresh(candidate)
}

fn main() {
    let _ = serve::<u8>;
}
