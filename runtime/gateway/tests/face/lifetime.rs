//! How connections and the server end.

use std::time::{Duration, Instant};

use spillgate_gateway::GatewayOptions;
use tokio::net::TcpStream;

use crate::support::{Face, Wire, get, patiently, until};

/// A call that runs for a while, on a connection of its own.
async fn running(face: &Face, turns: u64) -> Wire {
    let mut wire = face.connect().await;
    wire.write(get("agent-key", &format!("/api/slow/{turns}")).as_bytes()).await;
    until("the call to run", || face.tenant("agent", |tenant| tenant.gate.in_flight()) >= 1).await;
    wire
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_stopping_server_finishes_what_it_accepted_and_refuses_the_rest() {
    let mut face = Face::start().await;
    let mut silent = face.connect().await;
    let mut kept_alive = face.connect().await;
    kept_alive.write(get("agent-key", "/api/echo/1").as_bytes()).await;
    assert_eq!(kept_alive.reply().await.status, 200);
    // About a second of work in a debug build.
    let mut accepted = running(&face, 3_000_000).await;
    face.stop.cancel();
    patiently("the port to be closed", async {
        while TcpStream::connect(face.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    kept_alive.write(get("agent-key", "/api/echo/1").as_bytes()).await;
    let refused = kept_alive.reply().await;
    refused.problem(503, "draining");
    assert_eq!(refused.header("connection"), Some("close"));
    kept_alive.closed().await;
    silent.closed().await;
    let reply = accepted.reply().await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{}", reply.body);
    accepted.closed().await;
    patiently("the server to end", &mut face.served).await.expect("it ended well");
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_the_grace_time_ends_what_does_not_end_by_itself() {
    let mut face = Face::start_with("1s", GatewayOptions::default()).await;
    let mut endless = running(&face, 100_000_000_000).await;
    let began = Instant::now();
    face.stop.cancel();
    patiently("the server to end", &mut face.served).await.expect("it ended well");
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&began.elapsed()), "{:?}", began.elapsed());
    endless.closed().await;
    until("the statement to be ended", || face.tenant("agent", |tenant| tenant.gate.in_flight()) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_stops_at_once() {
    let mut face = Face::start_with("10s", GatewayOptions::default()).await;
    assert_eq!(face.get("agent-key", "/api/echo/1").await.status, 200);
    let began = Instant::now();
    face.stop.cancel();
    patiently("the server to end", &mut face.served).await.expect("it ended well");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_on_one_connection_come_in_order() {
    let face = Face::start().await;
    let mut wire = face.connect().await;
    let requests: String = (0..20).map(|number| get("agent-key", &format!("/api/echo/{number}"))).collect();
    wire.write(requests.as_bytes()).await;
    for number in 0..20 {
        assert_eq!(wire.reply().await.json()["rows"][0]["ID"], number);
    }
}
