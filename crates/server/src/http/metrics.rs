//! The metrics, in the Prometheus text format. Labels come from closed lists (methods, address templates,
//! classes of status, modes of retrieval), so their number is bounded and none names a tenant, a key or a
//! person.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// Upper ends of the buckets of durations, in seconds.
const BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        self.count += 1;
        self.seconds += seconds;
        for (bucket, end) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= end);
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    /// By method, template and class of status.
    requests: BTreeMap<(&'static str, String, &'static str), u64>,
    /// By template.
    durations: BTreeMap<String, Histogram>,
    in_flight: u64,
    denied: u64,
    not_found: u64,
    unauthenticated: u64,
    /// By code; the codes are a closed list.
    problems: BTreeMap<&'static str, u64>,
    retrievals: BTreeMap<&'static str, u64>,
    empty_retrievals: u64,
    /// Looks for kept answers by what came of them: `hit`, or why not.
    answers: BTreeMap<&'static str, u64>,
}

/// All counts of this process.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Counts>);

/// A request at work; it is no longer counted as such when this is dropped.
pub(super) struct InFlight<'a>(&'a Registry);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.change(|counts| counts.in_flight = counts.in_flight.saturating_sub(1));
    }
}

impl Registry {
    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        // A count that a panic cut short is off by one at most; it is no reason to stop counting.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a request as at work.
    pub(super) fn enter(&self) -> InFlight<'_> {
        self.change(|counts| counts.in_flight += 1);
        InFlight(self)
    }

    /// Counts a finished request.
    pub(super) fn request(&self, method: &'static str, route: &str, status: u16, seconds: f64) {
        self.change(|counts| {
            *counts.requests.entry((method, route.to_owned(), class(status))).or_default() += 1;
            counts.durations.entry(route.to_owned()).or_default().add(seconds);
        });
    }

    /// Counts a request that the role of its key does not allow.
    pub(super) fn denied(&self) {
        self.change(|counts| counts.denied += 1);
    }

    /// Counts a request for something unknown, of somebody else, or not allowed for another reason.
    pub(super) fn not_found(&self) {
        self.change(|counts| counts.not_found += 1);
    }

    /// Counts a look for a kept answer.
    pub(super) fn answer(&self, result: &'static str) {
        self.change(|counts| *counts.answers.entry(result).or_default() += 1);
    }

    /// Counts a request without a valid key.
    pub(super) fn unauthenticated(&self) {
        self.change(|counts| counts.unauthenticated += 1);
    }

    /// Counts a refusal by its code.
    pub(super) fn problem(&self, code: &'static str) {
        self.change(|counts| *counts.problems.entry(code).or_default() += 1);
    }

    /// Counts a search.
    pub(super) fn retrieval(&self, mode: &'static str, is_empty: bool) {
        self.change(|counts| {
            *counts.retrievals.entry(mode).or_default() += 1;
            counts.empty_retrievals += u64::from(is_empty);
        });
    }

    /// Everything as text.
    pub(super) fn render(&self) -> String {
        self.change(|counts| render(counts))
    }
}

fn class(status: u16) -> &'static str {
    match status / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "1xx",
    }
}

fn render(counts: &Counts) -> String {
    let mut out = String::new();
    head(&mut out, "merkwelt_http_requests_total", "counter", "Finished requests.");
    for ((method, route, class), n) in &counts.requests {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{class}\"");
        line(&mut out, &format!("merkwelt_http_requests_total{{{labels}}}"), n);
    }
    head(&mut out, "merkwelt_http_request_duration_seconds", "histogram", "Time until the answer began.");
    counts.durations.iter().for_each(|(route, histogram)| durations(&mut out, route, histogram));
    head(&mut out, "merkwelt_http_requests_in_flight", "gauge", "Requests at work.");
    line(&mut out, "merkwelt_http_requests_in_flight", counts.in_flight);
    head(&mut out, "merkwelt_denials_total", "counter", "Requests that the role of the key does not allow.");
    line(&mut out, "merkwelt_denials_total", counts.denied);
    head(
        &mut out,
        "merkwelt_not_found_total",
        "counter",
        "Requests for what is unknown, foreign or denied otherwise.",
    );
    line(&mut out, "merkwelt_not_found_total", counts.not_found);
    head(&mut out, "merkwelt_unauthenticated_total", "counter", "Requests without a valid key.");
    line(&mut out, "merkwelt_unauthenticated_total", counts.unauthenticated);
    head(&mut out, "merkwelt_problems_total", "counter", "Refusals by the code of the problem.");
    for (code, n) in &counts.problems {
        line(&mut out, &format!("merkwelt_problems_total{{code=\"{code}\"}}"), n);
    }
    head(
        &mut out,
        "merkwelt_retrievals_total",
        "counter",
        "Searches and context packs by mode of retrieval.",
    );
    for (mode, n) in &counts.retrievals {
        line(&mut out, &format!("merkwelt_retrievals_total{{mode=\"{mode}\"}}"), n);
    }
    head(
        &mut out,
        "merkwelt_empty_retrievals_total",
        "counter",
        "Searches and context packs that delivered nothing.",
    );
    line(&mut out, "merkwelt_empty_retrievals_total", counts.empty_retrievals);
    head(
        &mut out,
        "merkwelt_answer_lookups_total",
        "counter",
        "Looks for kept answers by what came of them.",
    );
    for (result, n) in &counts.answers {
        line(&mut out, &format!("merkwelt_answer_lookups_total{{result=\"{result}\"}}"), n);
    }
    out
}

fn durations(out: &mut String, route: &str, histogram: &Histogram) {
    const NAME: &str = "merkwelt_http_request_duration_seconds";
    for (n, end) in histogram.buckets.iter().zip(BUCKETS) {
        line(out, &format!("{NAME}_bucket{{route=\"{route}\",le=\"{end}\"}}"), n);
    }
    line(out, &format!("{NAME}_bucket{{route=\"{route}\",le=\"+Inf\"}}"), histogram.count);
    line(out, &format!("{NAME}_sum{{route=\"{route}\"}}"), histogram.seconds);
    line(out, &format!("{NAME}_count{{route=\"{route}\"}}"), histogram.count);
}

// Writing into a `String` cannot fail.
fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, series: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{series} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_out_as_prometheus_reads_them() {
        let registry = Registry::default();
        let at_work = registry.enter();
        registry.request("GET", "/v1/memories/{id}", 404, 0.003);
        registry.request("GET", "/v1/memories/{id}", 404, 0.2);
        registry.retrieval("lexical", true);
        registry.problem("overloaded");
        let text = registry.render();
        for expected in [
            "merkwelt_http_requests_total{method=\"GET\",route=\"/v1/memories/{id}\",status=\"4xx\"} 2\n",
            "merkwelt_http_request_duration_seconds_bucket{route=\"/v1/memories/{id}\",le=\"0.0025\"} 0\n",
            "merkwelt_http_request_duration_seconds_bucket{route=\"/v1/memories/{id}\",le=\"0.005\"} 1\n",
            "merkwelt_http_request_duration_seconds_bucket{route=\"/v1/memories/{id}\",le=\"+Inf\"} 2\n",
            "merkwelt_http_requests_in_flight 1\n",
            "merkwelt_problems_total{code=\"overloaded\"} 1\n",
            "merkwelt_retrievals_total{mode=\"lexical\"} 1\n",
            "merkwelt_empty_retrievals_total 1\n",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        drop(at_work);
        assert!(registry.render().contains("merkwelt_http_requests_in_flight 0\n"));
    }
}
