//! The configuration file, which an operator writes by hand.

use std::path::PathBuf;

use merkwelt_server::config::{Config, Places};

/// A file that is accepted says the same each time, stays within the ranges, and does not hide an unknown key.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let places = Places { data_dir: PathBuf::from("data"), instance_key: None, config: None };
    let Ok(config) = Config::parse(text, &places, None) else { return };
    let shown = format!("{config:?}");
    assert_eq!(format!("{:?}", Config::parse(text, &places, None).unwrap()), shown);
    let commented = format!("# first\n{text}\n# last");
    assert_eq!(format!("{:?}", Config::parse(&commented, &places, None).unwrap()), shown);
    let unknown = format!("{text}\n[nobody_knows_this]\nx = 1\n");
    assert!(Config::parse(&unknown, &places, None).is_err(), "an unknown key is accepted");
    let limits = config.limits;
    for number in
        [limits.concurrent_requests, limits.key_requests, limits.tenant_requests, limits.connections]
    {
        assert!((1..=100_000).contains(&number));
    }
    for time in [limits.header_timeout, limits.body_timeout, limits.request_timeout] {
        assert!((1..=3600).contains(&time.as_secs()));
    }
    assert!((1..=256).contains(&config.threads.get()));
    assert!((1..=100_000).contains(&config.open_tenants));
    let lifetimes = config.settings.lifetimes;
    for days in [lifetimes.user_fact_days, lifetimes.feedback_days, lifetimes.reference_days] {
        assert!((1..=36_500).contains(&days));
    }
}
