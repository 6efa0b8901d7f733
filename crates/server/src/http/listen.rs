//! The sockets under the face: how many connections are open at once, and how long the head of a request may
//! take. Where all are taken, a connection that is waiting for a request gives way to a new one, so somebody who
//! opens many and says little keeps nobody out.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::Limits;

/// Pause after the system refused a connection, for instance because there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// More headers than any client of this service sends; a request with more is refused before it is routed.
const HEADERS_MAX: usize = 100;

/// Serves `router` on `listener` until `stopped` resolves, then finishes what is under way, for as long as a request
/// may take.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stopped: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_headers(HEADERS_MAX);
    let seats = Seats::new(limits.connections);
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut stopped = pin!(stopped);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stopped => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((socket, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Without a seat the socket is closed here: everybody who has one is being served.
        if let Some(seat) = seats.take() {
            connections.spawn(connection(socket, router.clone(), http.clone(), seat, stopping.clone()));
        }
    }
    drop(listener);
    drop(stop);
    let ended = async { while connections.join_next().await.is_some() {} };
    // Nobody waits longer than a request may take; what is still open then is dropped with the set.
    if tokio::time::timeout(limits.request_timeout, ended).await.is_err() {
        tracing::warn!("connections were still open and are cut off");
    }
}

async fn connection(
    socket: TcpStream,
    router: Router,
    http: http1::Builder,
    seat: Seat,
    mut stopping: watch::Receiver<()>,
) {
    // Answers are written whole, so there is nothing to wait for. A socket without the option works too.
    let _ = socket.set_nodelay(true);
    let place = Arc::clone(&seat.place);
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        place.works();
        let answer = router.call(request);
        let (place, seats) = (Arc::clone(&place), seat.seats.clone());
        async move {
            let answer = answer.await;
            seats.waits(&place);
            answer
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
    let mut told = false;
    loop {
        tokio::select! {
            // What goes wrong on one connection concerns nobody else, and the log is not for strangers.
            _ = connection.as_mut() => return,
            () = place.leave.notified() => {
                if place.is_waiting() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            }
            _ = stopping.changed(), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The open connections.
#[derive(Clone)]
struct Seats {
    max: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    /// Counts connections and, in the same row, the moments at which they began to wait.
    last: u64,
    places: BTreeMap<u64, Arc<Place>>,
}

/// One open connection.
struct Place {
    /// When it began to wait for a request, in the row of [`Taken::last`]; zero while one is at work.
    waiting_since: AtomicU64,
    leave: Notify,
}

/// Holds a place until it is dropped.
struct Seat {
    seats: Seats,
    number: u64,
    place: Arc<Place>,
}

impl Seats {
    fn new(max: usize) -> Self {
        Self { max, taken: Arc::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Taken) -> T) -> T {
        // No change can panic half way, so a poisoned lock is as good as any.
        change(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A place for a new connection. If all are taken, the one that has been waiting longest is told to leave;
    /// if all are at work there is none.
    fn take(&self) -> Option<Seat> {
        self.change(|taken| {
            if taken.places.len() >= self.max {
                let waiting = taken.places.iter().filter(|(_, place)| place.is_waiting());
                let since = |place: &Place| place.waiting_since.load(Ordering::Acquire);
                let number = *waiting.min_by_key(|(_, place)| since(place))?.0;
                taken.places.remove(&number)?.leave.notify_one();
            }
            taken.last += 1;
            let number = taken.last;
            let place = Arc::new(Place { waiting_since: AtomicU64::new(number), leave: Notify::new() });
            taken.places.insert(number, Arc::clone(&place));
            Some(Seat { seats: self.clone(), number, place })
        })
    }

    fn waits(&self, place: &Place) {
        let now = self.change(|taken| {
            taken.last += 1;
            taken.last
        });
        place.waiting_since.store(now, Ordering::Release);
    }
}

impl Place {
    fn works(&self) {
        self.waiting_since.store(0, Ordering::Release);
    }

    fn is_waiting(&self) -> bool {
        self.waiting_since.load(Ordering::Acquire) != 0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.change(|taken| taken.places.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_connection_gives_way_to_a_new_one_and_one_at_work_does_not() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take().unwrap(), seats.take().unwrap());
        first.place.works();
        let third = seats.take().unwrap();
        assert!(seats.change(|taken| !taken.places.contains_key(&second.number)));
        drop(second);
        assert_eq!(seats.change(|taken| taken.places.len()), 2);
        third.place.works();
        assert!(seats.take().is_none(), "both are at work");
        seats.waits(&first.place);
        assert!(seats.take().is_some());
    }
}
