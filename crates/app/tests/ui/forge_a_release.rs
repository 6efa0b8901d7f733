//! A release has no public field.
use merkwelt_app::Released;

fn forge() -> Released {
    Released { body: Vec::new() }
}

fn main() {}
